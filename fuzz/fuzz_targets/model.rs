//! Decoding, validation and execution of models.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::resource::{Resource, setrlimit};

/// What a model may allocate: an execution beyond it must end with an error. Workers have such a limit too.
const MEMORY: u64 = 512 << 20;

fuzz_target!(
    init: {
        setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY).expect("a memory limit");
    },
    |bytes: &[u8]| {
        nnhal_conformance::fuzzing::model(bytes);
    }
);
