//! The packets that a client receives from its worker by burst.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nnhal_client::fuzzing::burst_results(bytes));
