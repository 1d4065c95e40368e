//! Models with a vendor's extension, on a device that has it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = vendor_driver::fuzzing::extension(bytes);
});
