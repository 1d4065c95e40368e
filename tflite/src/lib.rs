//! Imports `.tflite` files as [`nnhal_hal`] models.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bytes = std::fs::read("model.tflite")?;
//! let imported = nnhal_tflite::import(&bytes)?;
//! for input in &imported.inputs {
//!     println!("{} {:?}", input.name, input.dimensions);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every builtin operator with an equivalent in NNAPI or in the extension [`nnhal_hal::tflite`] is mapped;
//! [`operator_table`] lists them. An operator that has none is refused by index, name and reason. float32,
//! float16 weights, int8 (one scale in all, or one a channel), uint8 and int16 are supported; what becomes of
//! each is in the table.
//!
//! A file is untrusted: whatever its bytes, [`import`] returns a model that [`nnhal_hal::validate`] accepts
//! or an [`ImportError`], within memory in proportion to the file's size.

#![forbid(unsafe_code)]

mod constants;
mod error;
mod file;
mod generators;
mod graph;
mod graph_import;
mod import;
mod import_options;
mod imported;
mod narrowing;
mod operators;
mod resources;
mod table;
mod tensor;
mod values;

pub use error::ImportError;
pub use file::{FileError, reader::ReadError};
pub use import_options::ImportOptions;
pub use imported::{ElementError, ImportedModel, Note, State, TensorInfo};
pub use operators::Builtin;
pub use table::operator_table;
pub use tensor::{ElementType, Quantization};

/// Imports the model in the bytes of a `.tflite` file.
///
/// # Errors
/// If the bytes are not a sound `.tflite` file, or the model has something that NNAPI has not; the error
/// names the place in the file and what is wrong there.
pub fn import(bytes: &[u8]) -> Result<ImportedModel, ImportError> {
    import_with(bytes, &ImportOptions::default())
}

/// What the inputs of the model are, and which dimensions the file leaves open, whatever its operators.
///
/// # Errors
/// As [`import`], but for what operators are about.
pub fn inputs(bytes: &[u8], options: &ImportOptions) -> Result<Vec<TensorInfo>, ImportError> {
    import::inputs(&file::File::read(bytes)?, options)
}

/// The same as [`import`] of another signature of the file, or for inputs of other dimensions.
///
/// # Errors
/// As [`import`]; also if there is no such signature, or if dimensions are not what the file leaves open.
pub fn import_with(bytes: &[u8], options: &ImportOptions) -> Result<ImportedModel, ImportError> {
    import::import(&file::File::read(bytes)?, options)
}
