//! Prints the page of operations for the documentation.

fn main() {
    print!("{}", nnhal::ops::page::operation_page());
}
