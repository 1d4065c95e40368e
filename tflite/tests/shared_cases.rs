//! Small models of the shared collection with LiteRT's answers: those with the operations that NNAPI has had
//! since its feature levels 6 and 7.

#![forbid(unsafe_code)]

mod support;

use std::path::Path;

use nnhal_cpu::KernelSet;
use support::{Accuracy, Npy, Runner, is_quantized, shared_cases, worst};

/// The cases.
const CASES: &[&str] = &[
    "attention",
    "bmm_adj",
    "einsum",
    "keras_bilstm",
    "mirror_sym",
    "pack",
    "q8_mirror",
    "q8_rsqrt",
];

/// What is wrong with the outputs of a case; nothing, if they are right.
fn differences(folder: &Path, kernels: KernelSet) -> Result<(), String> {
    let bytes = std::fs::read(folder.join("model.tflite")).unwrap();
    let imported = nnhal_tflite::import(&bytes).map_err(|error| error.to_string())?;
    let mut runner = Runner::with_kernels(imported, kernels)?;
    let read = |what: &str, index: usize| Npy::read(&folder.join(format!("{what}_{index}.npy")));
    let inputs: Vec<Npy> = (0..runner.imported.inputs.len())
        .map(|index| read("input", index))
        .collect();
    let arguments: Vec<&[u8]> = inputs.iter().map(|npy| npy.bytes.as_slice()).collect();
    let results = runner.run(&arguments);
    for (index, result) in results.iter().enumerate() {
        let info = &runner.imported.outputs[index];
        let expected = read("output", index);
        if expected.bytes.len() != result.len() {
            return Err(format!(
                "output {index} has {} bytes, not {}",
                result.len(),
                expected.bytes.len()
            ));
        }
        let accuracy = if is_quantized(info.operand_type) {
            Accuracy::Steps(1)
        } else {
            Accuracy::Float {
                absolute: 1e-4,
                relative: 1e-4,
            }
        };
        let off = worst(info, &expected.bytes, result, accuracy);
        if off > 1.0 {
            return Err(format!("output {index} is {off} times too far off"));
        }
    }
    Ok(())
}

#[test]
fn models_with_newer_operations_give_what_litert_gives() {
    let Some(folder) = shared_cases() else { return };
    let mut wrong = Vec::new();
    for case in CASES {
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let found = differences(&folder.join(case), kernels);
            wrong.extend(found.err().map(|error| format!("{case} by {kernels:?}: {error}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
