//! The importer of `.tflite` files.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = nnhal_tflite::import(bytes);
});
