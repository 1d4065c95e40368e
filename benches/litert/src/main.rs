//! Times one model by LiteRT's C API, with XNNPACK, for `benches/compute.py`: what LiteRT takes without
//! Python.
//!
//! The library is `libLiteRt.so` of the Python package ai-edge-litert. Prints a report in JSON:
//! `{"rows":[{"model","threads","litert_c_ms","litert_c_min_ms","calls"}]}`.

mod buffer;
mod error;
mod functions;
mod owned;
mod rounds;
mod session;
mod signature;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::functions::Functions;
use crate::session::Session;

/// Calls before the first that counts.
const WARM_UP: usize = 3;

/// Times a model by LiteRT's C API on the processor.
#[derive(Debug, Parser)]
struct Arguments {
    /// The model, a .tflite file.
    model: PathBuf,
    /// `libLiteRt.so` of the Python package ai-edge-litert.
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// How many threads compute.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How many rounds of calls; the figure is the median of their medians.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a round lasts, in milliseconds.
    #[arg(long, default_value_t = 200)]
    round_ms: u64,
    /// Where the values of the inputs lie, in files `N.bin`: N is a tensor's number in the model, the bytes
    /// are those that it holds.
    #[arg(long, value_name = "DIR")]
    inputs: PathBuf,
    /// Where to write the values of the outputs of the first call, likewise.
    #[arg(long, value_name = "DIR")]
    outputs: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: [Row; 1],
}

#[derive(Debug, Serialize)]
struct Row {
    model: PathBuf,
    threads: usize,
    litert_c_ms: f64,
    litert_c_min_ms: f64,
    calls: usize,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let functions = Functions::open(arguments.library.as_os_str())?;
    let session = Session::open(functions, &arguments.model, arguments.threads)?;
    for input in session.inputs() {
        fill(input, &arguments.inputs)?;
    }
    let mut call = session.call();
    call()?;
    if let Some(folder) = &arguments.outputs {
        write_all(session.outputs(), folder)?;
    }
    for _ in 1..WARM_UP {
        call()?;
    }
    let budget = Duration::from_millis(arguments.round_ms);
    let times = rounds::measure(arguments.rounds as usize, budget, call)?;
    let row = Row {
        model: arguments.model.clone(),
        threads: arguments.threads,
        litert_c_ms: times.median_ms,
        litert_c_min_ms: times.least_ms,
        calls: times.calls,
    };
    println!("{}", serde_json::to_string(&Report { rows: [row] })?);
    Ok(())
}

/// Where a tensor's values lie in a folder.
fn file(folder: &Path, buffer: &Buffer) -> PathBuf {
    folder.join(format!("{}.bin", buffer.tensor()))
}

/// Gives an input the values of its file.
fn fill(input: &Buffer, folder: &Path) -> Result<(), Error> {
    let path = file(folder, input);
    let values = std::fs::read(&path).map_err(|source| Error::Read {
        path: path.clone(),
        source,
    })?;
    if values.len() != input.bytes() {
        return Err(Error::Size {
            path,
            found: values.len(),
            expected: input.bytes(),
        });
    }
    input.write(&values)
}

fn write_all(outputs: &[Buffer], folder: &Path) -> Result<(), Error> {
    for output in outputs {
        let path = file(folder, output);
        let values = output.read()?;
        std::fs::write(&path, values).map_err(|source| Error::Write { path, source })?;
    }
    Ok(())
}
