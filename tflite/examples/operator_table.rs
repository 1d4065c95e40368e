//! Prints the page of operators for the documentation.

fn main() {
    print!("{}", nnhal_tflite::operator_table());
}
