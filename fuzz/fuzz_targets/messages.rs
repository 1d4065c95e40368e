//! Control messages, handshakes, burst requests and results.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nnhal_conformance::fuzzing::messages(bytes));
