//! Why a file cannot be imported.

use nnhal_hal::validate::ModelError;

use crate::file::FileError;

/// Why a file cannot be imported. The message names the place in the file, what is wrong there and what would
/// be right; nothing about it changes by trying again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The bytes are not a sound `.tflite` file.
    #[error(transparent)]
    File(#[from] FileError),
    /// An operator that has no equivalent in NNAPI, or not in this use.
    #[error("operation #{index} {operator}{} cannot be mapped: {reason}", graph_suffix(*.graph))]
    Operation {
        /// The graph of the file; 0 is the main one.
        graph: usize,
        /// Index of the operator in its graph.
        index: usize,
        /// The operator's name.
        operator: String,
        /// What NNAPI lacks or demands.
        reason: String,
    },
    /// An input or output of a graph that no operand can stand for.
    #[error("{label}{} cannot be mapped: it {reason}", graph_suffix(*.graph))]
    Tensor {
        /// The graph of the file; 0 is the main one.
        graph: usize,
        /// Index and name of the tensor.
        label: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A variable that no input and output can stand for.
    #[error("the variable {name:?} cannot be mapped: it {reason}")]
    Variable {
        /// Its name in the file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A signature that the file has not.
    #[error("the file has no signature {name:?}; it has {known:?}")]
    Signature {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The model as a whole breaks a rule of NNAPI.
    #[error("the model cannot be mapped: {0}")]
    Model(#[from] ModelError),
}

/// Where, unless in the main graph.
fn graph_suffix(graph: usize) -> String {
    match graph {
        0 => String::new(),
        number => format!(" of graph #{number}"),
    }
}
