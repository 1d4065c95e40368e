//! The models of the shared collection give their expected outputs.

#![forbid(unsafe_code)]

mod support;

use std::path::Path;

use nnhal_cpu::KernelSet;
use serde_json::Value;
use support::{Accuracy, Npy, Runner, is_quantized, shared_models, worst};

fn manifest(folder: &Path) -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(folder.join("MANIFEST.json")).unwrap();
    match serde_json::from_str(&text).unwrap() {
        Value::Object(models) => models,
        other => panic!("the manifest is {other}"),
    }
}

/// Models of which integers may be one step off: their FULLY_CONNECTED of bytes is NNAPI's, which rounds sums
/// in two stages where LiteRT's reference kernel rounds them once.
const ONE_STEP: &[&str] = &["tflm_dtln_noise_suppression"];

#[test]
fn inputs_are_those_that_the_manifest_lists() {
    let Some(folder) = shared_models() else { return };
    for (name, entry) in manifest(&folder) {
        let bytes = std::fs::read(folder.join(&name).join("model.tflite")).unwrap();
        let imported = nnhal_tflite::import(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let listed = entry["inputs"].as_array().unwrap();
        assert_eq!(imported.inputs.len(), listed.len(), "{name}");
        for (info, listed) in imported.inputs.iter().zip(listed) {
            assert_eq!(info.name, listed["name"], "{name}");
            assert_eq!(info.element_type.to_string(), listed["dtype"], "{name}");
        }
    }
}

/// Runs every listed model with both sets of kernels and compares all outputs of all invocations: integers
/// are exact, floats of float weights within 1e-5 + 1e-4 of the value, of 16-bit ones within a thousandth of
/// the range.
fn check_outputs(wanted: impl Fn(&str, &Value) -> bool) {
    let Some(folder) = shared_models() else { return };
    let mut failures = Vec::new();
    for (name, entry) in manifest(&folder) {
        if !wanted(&name, &entry) {
            continue;
        }
        let has_half_weights = entry["dtypes"].get("FLOAT16").is_some();
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let checked = check_model(&folder.join(&name), &name, (kernels, has_half_weights));
            failures.extend(checked.err().map(|error| format!("{error} ({kernels:?})")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check_model(
    folder: &Path,
    name: &str,
    (kernels, has_half_weights): (KernelSet, bool),
) -> Result<(), String> {
    let bytes = std::fs::read(folder.join("model.tflite")).unwrap();
    let imported = nnhal_tflite::import(&bytes).map_err(|error| format!("{name}: {error}"))?;
    let mut runner = Runner::with_kernels(imported, kernels).map_err(|error| format!("{name}: {error}"))?;
    let files = |what: &str, count: usize| -> Vec<Npy> {
        (0..count)
            .map(|index| Npy::read(&folder.join(format!("{what}_{index}.npy"))))
            .collect()
    };
    let inputs = files("input", runner.imported.inputs.len());
    let expected = files("output", runner.imported.outputs.len());
    for invocation in 0..inputs[0].invocations() {
        let arguments: Vec<&[u8]> = inputs.iter().map(|npy| npy.invocation(invocation)).collect();
        let results = runner.run(&arguments);
        for (index, (result, expected)) in results.iter().zip(&expected).enumerate() {
            let info = &runner.imported.outputs[index];
            let accuracy =
                if is_quantized(info.operand_type) || !info.element_type.to_string().starts_with("float") {
                    Accuracy::Steps(i64::from(ONE_STEP.contains(&name)))
                } else if has_half_weights {
                    Accuracy::PartOfRange(1e-3)
                } else {
                    Accuracy::Float {
                        absolute: 1e-5,
                        relative: 1e-4,
                    }
                };
            let off = worst(info, expected.invocation(invocation), result, accuracy);
            println!(
                "{name} by {kernels:?}: output {index}, invocation {invocation}: {off:.3} of what is allowed"
            );
            if off > 1.0 {
                return Err(format!(
                    "{name}: output {index} of invocation {invocation} is {off} times too far off"
                ));
            }
        }
    }
    Ok(())
}

/// Models with more multiplications than this, in millions, count as large.
const LARGE: f64 = 100.0;

fn is_large(entry: &Value) -> bool {
    entry["mmacs"].as_f64().is_some_and(|millions| millions > LARGE)
}

#[test]
fn small_models_give_their_expected_outputs() {
    check_outputs(|_, entry| !is_large(entry));
}

#[test]
fn large_models_give_their_expected_outputs() {
    check_outputs(|_, entry| is_large(entry));
}
