//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod driver;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod run;
pub(crate) mod vts;

use std::path::{Path, PathBuf};

use nnhal_tflite::ImportedModel;

use crate::error::Error;
use crate::feed::NamedArray;
use crate::npy::Array;

/// Reads .npy files.
fn read_arrays(paths: &[PathBuf]) -> Result<Vec<NamedArray>, Error> {
    paths
        .iter()
        .map(|path| Ok((path.clone(), Array::read(path).map_err(Error::array(path))?)))
        .collect()
}

/// Imports a .tflite file.
pub(crate) fn import(path: &Path) -> Result<ImportedModel, Error> {
    let bytes = crate::input_file::read(path).map_err(Error::read(path))?;
    let model = nnhal_tflite::import(&bytes).map_err(Error::import(path))?;
    for note in &model.notes {
        tracing::info!("{}: {note}", path.display());
    }
    Ok(model)
}

/// The same, to be computed as coarsely as 16-bit floats where `is_relaxed` says so.
pub(crate) fn import_relaxed(path: &Path, is_relaxed: bool) -> Result<ImportedModel, Error> {
    let mut model = import(path)?;
    model.model.relax_computation_float32_to_float16 |= is_relaxed;
    Ok(model)
}

/// Writes a value as JSON to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
