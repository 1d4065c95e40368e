//! The files of a compilation cache, and what is made ready of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::resource::{Resource, setrlimit};

/// What a model may allocate, as for the target `model`.
const MEMORY: u64 = 512 << 20;

fuzz_target!(
    init: {
        setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY).expect("a memory limit");
    },
    |bytes: &[u8]| {
        nnhal_driver::fuzzing::cache_files(bytes);
    }
);
