//! The header is the one that the sources make, and has all of the interface.

mod support;

use std::path::Path;

fn kept() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/NeuralNetworks.h");
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn header_is_the_one_made_from_the_sources() {
    assert!(
        support::header() == kept(),
        "capi/include/NeuralNetworks.h is out of date: cargo run -p nnhal-capi --example header > \
         capi/include/NeuralNetworks.h"
    );
}

#[test]
fn header_has_every_function_of_the_interface() {
    let header = kept();
    for (level, count, functions) in support::FUNCTIONS {
        assert_eq!(functions.len(), count, "feature level {level}");
        for function in functions {
            assert!(
                header.contains(&format!("ANeuralNetworks{function}(")),
                "{function}"
            );
        }
    }
}
