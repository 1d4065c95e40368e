//! The memory of a burst's rings, from both sides.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nnhal_conformance::fuzzing::rings(bytes));
