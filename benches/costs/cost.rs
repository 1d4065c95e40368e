//! Figures, and what they are called.

use std::path::Path;

use nnhal_bench::samples::median;
use serde::Serialize;

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) name: String,
    /// The median, in nanoseconds.
    pub(super) p50_ns: f64,
    /// The fastest, which other programs disturbed least.
    pub(super) min_ns: f64,
    pub(super) max_ns: f64,
}

/// The figure of these times.
pub(super) fn cost(name: impl Into<String>, nanos: &[f64]) -> Cost {
    Cost {
        name: name.into(),
        p50_ns: median(nanos),
        min_ns: nanos.iter().copied().fold(f64::INFINITY, f64::min),
        max_ns: nanos.iter().copied().fold(0.0, f64::max),
    }
}

/// What a model is called here: the name of the directory that its file is in.
pub(super) fn model_name(path: &Path) -> String {
    let directory = path.parent().and_then(Path::file_name);
    directory
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
