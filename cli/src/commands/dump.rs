//! `nnhal dump`: a model's graph for Graphviz.

use std::io::Write as _;

use nnhal::diag::Dot;

use crate::arguments::DumpArguments;
use crate::error::Error;

/// Prints the graph of the model that NNAPI sees, which is not operator for operator the file's.
pub(crate) fn run(arguments: &DumpArguments) -> Result<(), Error> {
    let model = super::import(&arguments.model)?;
    write!(std::io::stdout().lock(), "{}", Dot(&model.model))?;
    Ok(())
}
