//! What the tests share: .npy files, and runs of imported models in this process.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nnhal_cpu::{Execution, KernelSet, Program, RunOptions};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{NoPools, OperandType, Shape};
use nnhal_tflite::{ImportedModel, TensorInfo};

/// A .npy file: shape and bytes in C order.
#[derive(Debug)]
pub(crate) struct Npy {
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Npy {
    pub(crate) fn read(path: &Path) -> Npy {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let header = npyz::NpyFile::new(&bytes[..]).unwrap();
        let shape: Vec<usize> = header.shape().iter().map(|extent| *extent as usize).collect();
        assert_eq!(header.order(), npyz::Order::C, "{}", path.display());
        let npyz::DType::Plain(plain) = header.dtype() else {
            panic!("{}: structured elements", path.display());
        };
        let size = shape.iter().product::<usize>() * plain.num_bytes().unwrap();
        Npy {
            shape,
            bytes: bytes[bytes.len() - size..].to_vec(),
        }
    }

    /// How many invocations there are.
    pub(crate) fn invocations(&self) -> usize {
        self.shape[0]
    }

    /// The bytes of one invocation.
    pub(crate) fn invocation(&self, number: usize) -> &[u8] {
        let size = self.bytes.len() / self.shape[0];
        &self.bytes[number * size..(number + 1) * size]
    }
}

/// An imported model, ready to run here.
pub(crate) struct Runner {
    pub(crate) imported: ImportedModel,
    execution: Execution,
    states: Vec<Vec<u8>>,
}

impl Runner {
    pub(crate) fn new(imported: ImportedModel) -> Result<Runner, String> {
        Runner::with_kernels(imported, KernelSet::Reference)
    }

    /// The same with a choice of kernels.
    pub(crate) fn with_kernels(imported: ImportedModel, kernels: KernelSet) -> Result<Runner, String> {
        let valid = ValidModel::new(Arc::new(imported.model.clone()), &NoPools, &[]).unwrap();
        let program =
            Program::with_kernels(Arc::new(valid), &NoPools, kernels).map_err(|error| error.to_string())?;
        let states = imported
            .states
            .iter()
            .map(|state| state.initial.clone())
            .collect();
        Ok(Runner {
            execution: Execution::new(Arc::new(program)),
            imported,
            states,
        })
    }

    /// Runs once: elements of the file's types in and out.
    pub(crate) fn run(&mut self, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
        self.try_run(inputs).unwrap()
    }

    /// The same, or what stands against it.
    pub(crate) fn try_run(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        assert_eq!(inputs.len(), self.imported.inputs.len());
        for (index, (info, data)) in self.imported.inputs.iter().zip(inputs).enumerate() {
            let bytes = info.to_operand_bytes(data).map_err(text)?;
            let shape = Shape::new(&info.dimensions).map_err(text)?;
            let input = self.execution.input(index, &shape).map_err(text)?;
            if input.len() != bytes.len() {
                return Err(format!(
                    "input {index} has {} bytes, not {}",
                    input.len(),
                    bytes.len()
                ));
            }
            input.copy_from_slice(&bytes);
        }
        for (state, value) in self.imported.states.iter().zip(&self.states) {
            let shape = Shape::new(&state.dimensions).map_err(text)?;
            self.execution
                .input(state.input, &shape)
                .map_err(text)?
                .copy_from_slice(value);
        }
        self.execution.run(&RunOptions::default()).map_err(text)?;
        for (state, value) in self.imported.states.iter().zip(&mut self.states) {
            value.copy_from_slice(self.execution.output(state.output).unwrap().1);
        }
        let output = |(index, info): (usize, &TensorInfo)| {
            let (_, bytes) = self.execution.output(index).unwrap();
            info.from_operand_bytes(bytes).unwrap()
        };
        Ok(self.imported.outputs.iter().enumerate().map(output).collect())
    }

    /// The shape of an output of the last run.
    pub(crate) fn output_shape(&self, index: usize) -> Vec<usize> {
        let (shape, _) = self.execution.output(index).unwrap();
        shape.dims().iter().map(|extent| *extent as usize).collect()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// How far results may be from the reference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Accuracy {
    /// Float results: `|expected - actual| <= absolute + relative * |expected|`.
    Float { absolute: f32, relative: f32 },
    /// Float results: within this part of the range of the expected values, zero included.
    PartOfRange(f32),
    /// Integers: at most this many steps off.
    Steps(i64),
}

/// The largest error in terms of what is allowed; above 1 is too far.
pub(crate) fn worst(info: &TensorInfo, expected: &[u8], actual: &[u8], accuracy: Accuracy) -> f64 {
    assert_eq!(expected.len(), actual.len(), "{}", info.name);
    let (expected, actual) = (numbers(info, expected), numbers(info, actual));
    let low = expected.iter().copied().fold(0.0, f64::min);
    let high = expected.iter().copied().fold(0.0, f64::max);
    let allowed = |expected: f64| match accuracy {
        Accuracy::Float { absolute, relative } => f64::from(absolute) + f64::from(relative) * expected.abs(),
        Accuracy::PartOfRange(part) => f64::from(part) * (high - low),
        Accuracy::Steps(steps) => steps as f64,
    };
    expected
        .iter()
        .zip(&actual)
        .map(|(expected, actual)| {
            let error = (expected - actual).abs();
            // Equal values are right even where nothing else would be.
            if error == 0.0 {
                0.0
            } else {
                error / allowed(*expected).max(1e-30)
            }
        })
        .fold(0.0, |worst: f64, error| {
            if error.is_nan() {
                f64::INFINITY
            } else {
                worst.max(error)
            }
        })
}

fn numbers(info: &TensorInfo, bytes: &[u8]) -> Vec<f64> {
    use nnhal_tflite::ElementType as E;
    match info.element_type {
        // Real and imaginary parts, where elements are complex.
        E::Float32 | E::Other(8) => bytes
            .chunks_exact(4)
            .map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap())))
            .collect(),
        E::Int32 => bytes
            .chunks_exact(4)
            .map(|c| f64::from(i32::from_le_bytes(c.try_into().unwrap())))
            .collect(),
        // By halves, where there are 64 bits.
        E::Other(12 | 15) => bytes
            .chunks_exact(4)
            .map(|c| f64::from(u32::from_le_bytes(c.try_into().unwrap())))
            .collect(),
        E::Int64 => bytes
            .chunks_exact(8)
            .map(|c| i64::from_le_bytes(c.try_into().unwrap()) as f64)
            .collect(),
        E::Int16 => bytes
            .chunks_exact(2)
            .map(|c| f64::from(i16::from_le_bytes(c.try_into().unwrap())))
            .collect(),
        E::Uint8 | E::Bool => bytes.iter().map(|byte| f64::from(*byte)).collect(),
        E::Int8 => bytes.iter().map(|byte| f64::from(*byte as i8)).collect(),
        other => panic!("{other} results"),
    }
}

/// Whether results of this operand type are integers in steps.
pub(crate) fn is_quantized(ty: OperandType) -> bool {
    ty.is_quantized_per_tensor()
}

/// The folder of real models, or `None`, with a note to whoever watches, if it is not there.
pub(crate) fn shared_models() -> Option<PathBuf> {
    shared("models")
}

/// The folder of small models with LiteRT's answers, in the same way.
pub(crate) fn shared_cases() -> Option<PathBuf> {
    shared("tflite-cases")
}

fn shared(part: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("NNHAL_SHARED")
        .map_or_else(beside, PathBuf::from)
        .join(part);
    if folder.join("MANIFEST.json").is_file() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no {part} in {}; set NNHAL_SHARED to test with them",
        folder.display()
    );
    None
}
