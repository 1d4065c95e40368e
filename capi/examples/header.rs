//! Prints `include/NeuralNetworks.h` as it is made from the sources.

#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    print!("{}", support::header());
}
