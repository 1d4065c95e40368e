//! What a person reads when a model cannot be timed.

use std::ffi::{OsStr, c_int};
use std::path::PathBuf;

/// Why a model has no figure. The exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The library cannot be opened.
    #[error(
        "{} cannot be opened; --library names libLiteRt.so of the Python package ai-edge-litert: {source}",
        library.display()
    )]
    Unopened {
        library: PathBuf,
        source: libloading::Error,
    },
    /// The library lacks a function.
    #[error(
        "{} has no function {function}, so it is not libLiteRt.so of LiteRT {version}: {source}",
        library.display()
    )]
    Missing {
        library: PathBuf,
        function: &'static str,
        /// The LiteRT that has it.
        version: &'static str,
        source: libloading::Error,
    },
    /// A function of the library has failed.
    #[error("{function} answered LiteRtStatus {status}; what LiteRT has logged says why")]
    Call { function: &'static str, status: c_int },
    /// A function of the library has given no memory.
    #[error("{0} says that it has succeeded and gives no address")]
    Null(&'static str),
    /// The library did not take the number of threads.
    #[error(
        "LiteRT was told to compute with {wanted} threads and has {found}, so its figures would be of something else"
    )]
    Threads { wanted: usize, found: usize },
    /// A file could not be read.
    #[error("failed to read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file could not be written.
    #[error("failed to write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// An input of another size.
    #[error("{} has {found} bytes, the input takes {expected}", path.display())]
    Size {
        path: PathBuf,
        found: usize,
        expected: usize,
    },
    /// A path that C cannot be given.
    #[error("{path:?} has a NUL byte, which no path of a model can have")]
    Path { path: PathBuf },
    /// The report could not be printed.
    #[error("failed to write the report: {0}")]
    Print(#[from] serde_json::Error),
}

impl Error {
    pub(crate) fn unopened(library: &OsStr, source: libloading::Error) -> Error {
        Error::Unopened {
            library: library.into(),
            source,
        }
    }

    pub(crate) fn missing(
        library: &OsStr,
        function: &'static str,
        version: &'static str,
        source: libloading::Error,
    ) -> Error {
        Error::Missing {
            library: library.into(),
            function,
            version,
            source,
        }
    }
}
