//! Models of `.tflite` files.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;
use nnhal::diag::tags;
use nnhal_tflite::ImportedModel;
pub use nnhal_tflite::{
    ElementError, ElementType, ImportError, ImportOptions, Note, Quantization, State, TensorInfo,
};

use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;

/// A model of a `.tflite` file as [`Device::prepare`](crate::Device::prepare) takes it, and what a program
/// must know to execute it.
///
/// The inputs of [`model`](TfliteModel::model) are [`inputs`](TfliteModel::inputs) in the file's order and
/// then one for each of [`states`](TfliteModel::states); its outputs likewise.
///
/// ```no_run
/// use nnhal_client::{Devices, ExecuteOptions, Input, Output, PrepareOptions, TfliteModel};
///
/// let file = TfliteModel::load("model.tflite")?;
/// for tensor in file.inputs.iter().chain(&file.outputs) {
///     println!("{tensor}");
/// }
/// let prepared = Devices::open()?.fastest()?.prepare(&file.model, &PrepareOptions::new())?;
/// let mut scores = [0.0_f32; 10];
/// prepared.run(&[Input::from(&[0.0_f32; 64])], &mut [Output::from(&mut scores)], &ExecuteOptions::new())?;
/// # Ok::<(), nnhal_client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TfliteModel {
    /// The model. Its larger constants are in sealed memory, which drivers use in place.
    pub model: Model,
    /// The inputs of the file's main graph.
    pub inputs: Vec<TensorInfo>,
    /// The outputs of the file's main graph.
    pub outputs: Vec<TensorInfo>,
    /// What must be carried from one execution to the next.
    pub states: Vec<State>,
    /// Whether weights are stored as float16: what is computed with them is as coarse, whatever the types
    /// say.
    pub has_float16_weights: bool,
    /// Where the model differs from the file without being wrong.
    pub notes: Vec<Note>,
}

impl TfliteModel {
    /// Reads a file. What is noted of it goes to the log, too.
    ///
    /// # Errors
    /// [`ErrorKind::ReadModel`], also for what is no regular file; [`ErrorKind::ImportModel`] if it is not a
    /// sound `.tflite` file, or has an operator that NNAPI has not; the system has no memory.
    pub fn load(path: impl AsRef<Path>) -> Result<TfliteModel> {
        TfliteModel::load_with(path, &ImportOptions::default())
    }

    /// The same of another signature of the file, or for inputs of other dimensions.
    ///
    /// # Errors
    /// As [`TfliteModel::load`].
    pub fn load_with(path: impl AsRef<Path>, options: &ImportOptions) -> Result<TfliteModel> {
        let path = path.as_ref();
        let bytes = read(path).map_err(|source| ErrorKind::ReadModel {
            path: path.to_owned(),
            source: Arc::new(source),
        })?;
        TfliteModel::from_bytes_with(&path.display().to_string(), &bytes, options)
    }

    /// What the inputs of a file's model are, and which of their dimensions it leaves open.
    ///
    /// # Errors
    /// As [`TfliteModel::load`], but for what operators are about.
    pub fn inputs_of(name: &str, bytes: &[u8], options: &ImportOptions) -> Result<Vec<TensorInfo>> {
        nnhal_tflite::inputs(bytes, options).map_err(|source| cannot_import(name, source))
    }

    /// The model of a file that has been read; `name` says in messages where it came from.
    ///
    /// # Errors
    /// As [`TfliteModel::load`].
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<TfliteModel> {
        TfliteModel::from_bytes_with(name, bytes, &ImportOptions::default())
    }

    /// The same of another signature of the file, or for inputs of other dimensions.
    ///
    /// # Errors
    /// As [`TfliteModel::load`].
    pub fn from_bytes_with(name: &str, bytes: &[u8], options: &ImportOptions) -> Result<TfliteModel> {
        let imported = nnhal_tflite::import_with(bytes, options);
        let imported = imported.map_err(|source| cannot_import(name, source))?;
        let ImportedModel {
            model,
            inputs,
            outputs,
            states,
            has_float16_weights,
            notes,
        } = imported;
        for note in &notes {
            tracing::info!(target: tags::MODEL, "{name}: {note}");
        }
        Ok(TfliteModel {
            model: Model::from_hal(model, Vec::new()).share_constants()?,
            inputs,
            outputs,
            states,
            has_float16_weights,
            notes,
        })
    }
}

fn cannot_import(name: &str, source: ImportError) -> Error {
    let (name, source) = (name.to_owned(), Arc::new(source));
    ErrorKind::ImportModel { name, source }.into()
}

/// Reads a file in full. What is no regular file has no end that could be waited for, and is refused.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a pipe would wait for somebody to write to it.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ErrorStatus;

    use super::*;

    fn digits(name: &str) -> std::path::PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/digits");
        folder.join(name)
    }

    #[test]
    fn large_constants_are_in_sealed_memory() {
        let file = TfliteModel::load(digits("digits_float.tflite")).unwrap();
        let [memory] = file.model.pools() else {
            panic!("{:?}", file.model.pools())
        };
        assert!(memory.size() > 40_000);
        memory.write_at(0, &[0]).unwrap_err();
        assert!(file.model.hal().operand_values.len() < 4096);
    }

    #[test]
    fn inputs_and_outputs_say_how_they_are_filled() {
        let file = TfliteModel::load(digits("digits_int8.tflite")).unwrap();
        let ([input], [output]) = (&file.inputs[..], &file.outputs[..]) else {
            panic!("{:?}, {:?}", file.inputs, file.outputs)
        };
        assert_eq!(
            (&input.name[..], input.element_type),
            ("serving_default_image:0", ElementType::Int8)
        );
        assert_eq!(
            (&input.dimensions[..], &output.dimensions[..]),
            (&[1, 8, 8, 1][..], &[1, 10][..])
        );
        for (tensor, ty) in [
            (input, &file.model.inputs()[0]),
            (output, &file.model.outputs()[0]),
        ] {
            let quantization = tensor.quantization.unwrap();
            assert_eq!(
                (quantization.scale, quantization.zero_point),
                (ty.scale(), ty.zero_point())
            );
            assert_eq!(quantization.zero_point, -128);
        }
    }

    #[test]
    fn file_that_cannot_be_used_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let missing = TfliteModel::load(folder.path().join("missing.tflite")).unwrap_err();
        assert!(missing.to_string().contains("failed to read"), "{missing}");
        assert!(missing.to_string().contains("missing.tflite"), "{missing}");
        let error = TfliteModel::from_bytes("the text", b"no model at all").unwrap_err();
        assert!(
            error.to_string().starts_with("failed to import the text: "),
            "{error}"
        );
        assert_eq!(error.status(), ErrorStatus::InvalidArgument);
    }

    #[test]
    fn pipe_and_directory_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("model.tflite");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), folder.path()] {
            let error = TfliteModel::load(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
}
