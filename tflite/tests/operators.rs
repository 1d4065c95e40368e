//! Small models, one for each family of operators and element type, against the outputs of LiteRT's reference
//! kernels. `operators/make.py` writes them.

#![forbid(unsafe_code)]

mod support;

use std::path::{Path, PathBuf};

use support::{Accuracy, Npy, Runner, is_quantized, worst};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators")
}

/// The folders of the models.
fn families() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.tflite").is_file())
        .collect();
    found.sort();
    found
}

fn read_all(folder: &Path, what: &str, count: usize) -> Vec<Npy> {
    (0..count)
        .map(|index| Npy::read(&folder.join(format!("{what}_{index}.npy"))))
        .collect()
}

/// How near the outputs of a model must be. Hybrid kernels of the reference quantise their inputs, which
/// NNAPI has no operation for; there a result is right if it is near in terms of the output's range.
fn accuracy(family: &str, quantized: bool) -> Accuracy {
    if quantized {
        Accuracy::Steps(1)
    } else if family.ends_with("_hybrid") {
        Accuracy::PartOfRange(0.02)
    } else {
        Accuracy::Float {
            absolute: 1e-5,
            relative: 1e-4,
        }
    }
}

/// What is wrong with the outputs of a model; nothing, if they are right.
fn differences(folder: &Path) -> Vec<String> {
    let family = folder.file_name().unwrap().to_string_lossy().into_owned();
    let bytes = std::fs::read(folder.join("model.tflite")).unwrap();
    let imported = match nnhal_tflite::import(&bytes) {
        Ok(imported) => imported,
        Err(error) => return vec![format!("{family}: {error}")],
    };
    let mut runner = match Runner::new(imported) {
        Ok(runner) => runner,
        Err(error) => return vec![format!("{family}: {error}")],
    };
    let inputs = read_all(folder, "input", runner.imported.inputs.len());
    let expected = read_all(folder, "output", runner.imported.outputs.len());
    let mut wrong = Vec::new();
    for invocation in 0..inputs[0].invocations() {
        let arguments: Vec<&[u8]> = inputs.iter().map(|npy| npy.invocation(invocation)).collect();
        let results = runner.run(&arguments);
        for (index, (result, expected)) in results.iter().zip(&expected).enumerate() {
            let info = &runner.imported.outputs[index];
            let expected = expected.invocation(invocation);
            if expected.len() != result.len() {
                wrong.push(format!(
                    "{family}: {} (output {index}) has {} bytes, must have {}",
                    info.name,
                    result.len(),
                    expected.len()
                ));
                continue;
            }
            let ty = info.element_type.to_string();
            let integers = !(ty.starts_with("float") || ty.starts_with("complex"));
            let accuracy = if integers && !is_quantized(info.operand_type) {
                Accuracy::Steps(0)
            } else {
                accuracy(&family, is_quantized(info.operand_type))
            };
            let off = worst(info, expected, result, accuracy);
            if off > 1.0 {
                wrong.push(format!(
                    "{family}: {} (output {index}) of invocation {invocation} is {off} times too far off",
                    info.name
                ));
            }
        }
    }
    wrong
}

#[test]
fn operators_give_what_the_reference_kernels_give() {
    let families = families();
    assert!(!families.is_empty(), "no models in {}", folder().display());
    let wrong: Vec<String> = families.iter().flat_map(|family| differences(family)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_beyond_32_bits_do_not_wrap() {
    let folder = folder().join("moved_int64");
    let imported = nnhal_tflite::import(&std::fs::read(folder.join("model.tflite")).unwrap()).unwrap();
    let inputs = read_all(&folder, "input", imported.inputs.len());
    let mut runner = Runner::new(imported).unwrap();
    let mut run_from = |begin: [i64; 2]| {
        let begin = begin.map(i64::to_le_bytes).concat();
        let mut arguments: Vec<&[u8]> = inputs.iter().map(|npy| npy.invocation(0)).collect();
        // Where SLICE begins.
        arguments[2] = &begin;
        runner.try_run(&arguments).map(|_| ())
    };
    assert_eq!(run_from([0, 1]), Ok(()));
    for begin in [1 << 32, -(1 << 32), i64::MAX] {
        assert!(run_from([begin, 1]).unwrap_err().contains("(begin)"), "{begin}");
    }
}
