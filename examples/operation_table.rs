//! Prints the page of operations for the documentation.

fn main() {
    print!("{}", nnhal_hal::ops::page::operation_page());
}
