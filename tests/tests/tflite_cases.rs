//! The shared collection of small TFLite models with LiteRT's answers, through the driver: on both devices,
//! by synchronous executions and by a burst.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use nnhal_client::tflite::{ElementType, TensorInfo};
use nnhal_client::{
    BurstOptions, Device, Devices, ExecuteOptions, Input, Output, PrepareOptions, TfliteModel,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// The collection; `None`, with a note to whoever watches, if it is not there.
fn collection() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("NNHAL_SHARED").map_or_else(beside, PathBuf::from);
    let folder = shared.join("tflite-cases");
    if folder.join("MANIFEST.json").is_file() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no {}; set NNHAL_SHARED to test with it",
        folder.display()
    );
    None
}

/// The elements of a .npy file, in C order.
fn elements(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = npyz::NpyFile::new(&bytes[..]).unwrap();
    let npyz::DType::Plain(plain) = file.dtype() else {
        panic!("{}: structured elements", path.display());
    };
    let size = file.shape().iter().product::<u64>() as usize * plain.num_bytes().unwrap();
    bytes[bytes.len() - size..].to_vec()
}

/// A case: what goes in, in the operands' types, and what LiteRT gives, in the file's.
struct Case {
    file: TfliteModel,
    inputs: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

impl Case {
    /// Reads it, and imports the model.
    fn read(folder: &Path) -> Result<Case, String> {
        let file = TfliteModel::load(folder.join("model.tflite")).map_err(|error| error.to_string())?;
        let read = |what: &str, index: usize| elements(&folder.join(format!("{what}_{index}.npy")));
        let given = file.inputs.iter().enumerate();
        let given = given.map(|(index, info)| info.to_operand_bytes(&read("input", index)).unwrap());
        let inputs = given
            .chain(file.states.iter().map(|state| state.initial.clone()))
            .collect();
        let expected = (0..file.outputs.len())
            .map(|index| read("output", index))
            .collect();
        Ok(Case {
            file,
            inputs,
            expected,
        })
    }

    /// Memory for the outputs, those that carry states last.
    fn rooms(&self) -> Vec<Vec<u8>> {
        let outputs = self.file.outputs.iter().zip(&self.expected);
        let outputs = outputs.map(|(info, expected)| vec![0; info.to_operand_bytes(expected).unwrap().len()]);
        let states = self.file.states.iter().map(|state| vec![0; state.initial.len()]);
        outputs.chain(states).collect()
    }

    /// What is wrong with the outputs by each way.
    fn check(&self, device: &Device) -> Result<(), String> {
        let text = |error: nnhal_client::Error| error.to_string();
        let prepared = device
            .prepare(&self.file.model, &PrepareOptions::new())
            .map_err(text)?;
        let mut burst = prepared.burst(&BurstOptions::new()).map_err(text)?;
        let inputs: Vec<Input<'_>> = self.inputs.iter().map(|bytes| Input::from(&bytes[..])).collect();
        let options = ExecuteOptions::new();
        let (mut by_run, mut by_burst) = (self.rooms(), self.rooms());
        prepared
            .run(&inputs, &mut outputs(&mut by_run), &options)
            .map_err(text)?;
        burst
            .run(&inputs, &mut outputs(&mut by_burst), &options)
            .map_err(text)?;
        if by_run != by_burst {
            return Err("a burst gives something else".to_owned());
        }
        let results = self.file.outputs.iter().zip(&by_run).zip(&self.expected);
        for (index, ((info, result), expected)) in results.enumerate() {
            compare(info, &info.from_operand_bytes(result).unwrap(), expected)
                .map_err(|error| format!("output {index} {error}"))?;
        }
        Ok(())
    }
}

fn outputs(rooms: &mut [Vec<u8>]) -> Vec<Output<'_>> {
    rooms.iter_mut().map(|room| Output::from(&mut room[..])).collect()
}

/// Floats may differ in their last digits, quantised values by a step. Other integers are exact.
fn compare(info: &TensorInfo, found: &[u8], expected: &[u8]) -> Result<(), String> {
    if info.element_type != ElementType::Float32 {
        let step = u8::from(info.quantization.is_some());
        let size = info.element_type.size().unwrap_or(1);
        let pairs = found.chunks_exact(size).zip(expected.chunks_exact(size));
        let integer = |bytes: &[u8]| integer(bytes, info.element_type);
        let is_close =
            |(found, expected): (&[u8], &[u8])| integer(found).abs_diff(integer(expected)) <= step.into();
        return if pairs.into_iter().all(is_close) {
            Ok(())
        } else {
            Err(format!("is {found:?}, not {expected:?}"))
        };
    }
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let chunks = bytes.chunks_exact(4);
        chunks
            .map(|chunk| f32::from_ne_bytes(chunk.try_into().unwrap()))
            .collect()
    };
    for (found, expected) in floats(found).into_iter().zip(floats(expected)) {
        let is_same = found == expected || (found.is_nan() && expected.is_nan());
        if !is_same
            && (found - expected)
                .abs()
                .partial_cmp(&(1e-4 + 1e-4 * expected.abs()))
                != Some(std::cmp::Ordering::Less)
        {
            return Err(format!("has {found}, not {expected}"));
        }
    }
    Ok(())
}

/// A little-endian integer. But for bytes and truth values, which have no sign, its sign is extended.
fn integer(bytes: &[u8], ty: ElementType) -> i64 {
    let is_signed = !matches!(ty, ElementType::Uint8 | ElementType::Bool);
    let is_negative = is_signed && bytes.last().is_some_and(|byte| *byte > 127);
    let mut wide = [if is_negative { 255 } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

#[test]
fn small_models_give_what_litert_gives_by_every_way() {
    let Some(folder) = collection() else { return };
    let manifest = std::fs::read(folder.join("MANIFEST.json")).unwrap();
    let manifest: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let devices = ["nnhal-reference", "nnhal-cpu"].map(|name| devices.device(name).unwrap());
    let mut wrong = Vec::new();
    for name in manifest.keys() {
        let case = Case::read(&folder.join(name));
        for device in &devices {
            let found = case
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|case| case.check(device));
            wrong.extend(
                found
                    .err()
                    .map(|error| format!("{name} on {}: {error}", device.name())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
