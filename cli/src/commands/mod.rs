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

use nnhal_client::TfliteModel;
use nnhal_client::tflite::ImportOptions;

use crate::arguments::RunArguments;
use crate::error::Error;
use crate::feed::{self, NamedArray};
use crate::npy::Array;

/// Reads .npy files.
fn read_arrays(paths: &[PathBuf]) -> Result<Vec<NamedArray>, Error> {
    paths
        .iter()
        .map(|path| Ok((path.clone(), Array::read(path).map_err(Error::array(path))?)))
        .collect()
}

/// Loads a .tflite file.
pub(crate) fn load(path: &Path) -> Result<TfliteModel, Error> {
    let bytes = crate::input_file::read(path).map_err(Error::read(path))?;
    Ok(TfliteModel::from_bytes(&path.display().to_string(), &bytes)?)
}

/// The same, to be computed as coarsely as 16-bit floats where `is_relaxed` says so.
pub(crate) fn load_relaxed(path: &Path, is_relaxed: bool) -> Result<TfliteModel, Error> {
    Ok(relaxed(load(path)?, is_relaxed))
}

/// The model of a run: its signature, and inputs of the dimensions that the arrays have.
fn load_for(arguments: &RunArguments, arrays: &[NamedArray]) -> Result<TfliteModel, Error> {
    let mut options = ImportOptions {
        signature: arguments.signature.clone(),
        ..ImportOptions::default()
    };
    let path = &arguments.model;
    let bytes = crate::input_file::read(path).map_err(Error::read(path))?;
    let name = path.display().to_string();
    let inputs = TfliteModel::inputs_of(&name, &bytes, &options)?;
    options.input_dimensions = feed::input_dimensions(&inputs, arrays);
    let file = TfliteModel::from_bytes_with(&name, &bytes, &options)?;
    Ok(relaxed(file, arguments.relaxed))
}

fn relaxed(mut file: TfliteModel, is_relaxed: bool) -> TfliteModel {
    if is_relaxed {
        file.model = file.model.relax_float32_to_float16(true);
    }
    file
}

/// Writes a value as JSON to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
