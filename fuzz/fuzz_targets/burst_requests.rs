//! The packets that a worker receives from its client by burst.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nnhal_driver::fuzzing::burst_requests(bytes));
