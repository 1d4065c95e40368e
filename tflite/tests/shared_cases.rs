//! The shared collection of small models, one operator or idiom each, with LiteRT's answers.

#![forbid(unsafe_code)]

mod support;

use std::path::Path;

use nnhal_cpu::KernelSet;
use support::{Accuracy, Npy, Runner, is_quantized, shared_cases, worst};

/// The names of the cases.
fn cases(folder: &Path) -> Vec<String> {
    let manifest = std::fs::read(folder.join("MANIFEST.json")).unwrap();
    let manifest: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    manifest.keys().cloned().collect()
}

/// What is wrong with the outputs of a case; nothing, if they are right.
fn check(folder: &Path, kernels: KernelSet) -> Result<(), String> {
    let bytes = std::fs::read(folder.join("model.tflite")).unwrap();
    let imported = nnhal_tflite::import(&bytes).map_err(|error| error.to_string())?;
    let mut runner = Runner::with_kernels(imported, kernels)?;
    let read = |what: &str, index: usize| Npy::read(&folder.join(format!("{what}_{index}.npy")));
    let inputs: Vec<Npy> = (0..runner.imported.inputs.len())
        .map(|index| read("input", index))
        .collect();
    let arguments: Vec<&[u8]> = inputs.iter().map(|npy| npy.bytes.as_slice()).collect();
    let results = runner.try_run(&arguments)?;
    for (index, result) in results.iter().enumerate() {
        let info = &runner.imported.outputs[index];
        let expected = read("output", index);
        if expected.bytes.len() != result.len() {
            let lengths = (result.len(), expected.bytes.len());
            return Err(format!(
                "output {index} has {} bytes, not {}",
                lengths.0, lengths.1
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
fn small_models_give_what_litert_gives() {
    let Some(folder) = shared_cases() else { return };
    let mut wrong = Vec::new();
    for case in cases(&folder) {
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let found = check(&folder.join(&case), kernels);
            wrong.extend(found.err().map(|error| format!("{case} by {kernels:?}: {error}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
