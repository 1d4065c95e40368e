//! What a person reads when a command fails.

use std::path::{Path, PathBuf};

use nnhal_conformance::runner::RunError;

use crate::feed::FeedError;
use crate::in_process::InProcessError;
use crate::npy::NpyError;

/// Why a command failed. The exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file could not be read.
    #[error("failed to read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// An array file that cannot be used.
    #[error("{} {source}", path.display())]
    Array { path: PathBuf, source: NpyError },
    /// Arrays that do not fit the model.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The driver or the way to it.
    #[error(transparent)]
    Client(#[from] nnhal_client::Error),
    /// The runtime above the drivers.
    #[error(transparent)]
    Runtime(#[from] nnhal_client::runtime::RuntimeError),
    /// The executor in this process.
    #[error(transparent)]
    InProcess(#[from] InProcessError),
    /// A measurement.
    #[error(transparent)]
    Bench(#[from] nnhal_bench::Error),
    /// A run of the conformance corpus.
    #[error(transparent)]
    Corpus(#[from] RunError),
    /// Output could not be written.
    #[error("failed to write the output: {0}")]
    Write(#[from] std::io::Error),
    /// A graph cannot be drawn.
    #[error("the graph cannot be drawn: {0}")]
    Drawing(String),
    /// A result that is told in full on standard output already.
    #[error("{0}")]
    Result(String),
}

impl Error {
    /// For `map_err` on reading a file.
    pub(crate) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Read {
            path: path.into(),
            source,
        }
    }

    /// For `map_err` on reading an array.
    pub(crate) fn array(path: &Path) -> impl FnOnce(NpyError) -> Error {
        move |source| Error::Array {
            path: path.into(),
            source,
        }
    }
}
