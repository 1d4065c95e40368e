//! `nnhal dump`: a model's graph for Graphviz, or drawn by it.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use nnhal::diag::Dot;

use crate::arguments::{DumpArguments, GraphFormat};
use crate::error::Error;

/// Graphviz's program.
const GRAPHVIZ: &str = "dot";

/// Prints the graph of the model that NNAPI sees, which is not operator for operator the file's.
pub(crate) fn run(arguments: &DumpArguments) -> Result<(), Error> {
    let file = super::load(&arguments.model)?;
    let dot = Dot(file.model.hal()).to_string();
    let text = match arguments.format {
        GraphFormat::Dot => dot.into_bytes(),
        GraphFormat::Svg => svg(GRAPHVIZ, &dot)?,
    };
    io::stdout().lock().write_all(&text)?;
    Ok(())
}

/// Has Graphviz draw a graph.
fn svg(program: &str, dot: &str) -> Result<Vec<u8>, Error> {
    let failed = |reason: &dyn std::fmt::Display| Error::Drawing(reason.to_string());
    let mut child = Command::new(program)
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            failed(&format!(
                "the program {program} of Graphviz does not start: {error}"
            ))
        })?;
    // It reads all of the graph before it draws, and tells what is wrong with it on standard error itself.
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(dot.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&format!("{program} ended with {}", output.status)));
    }
    written.map_err(|error| failed(&error))?;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_operations() {
        if Command::new(GRAPHVIZ).arg("-V").output().is_err() {
            eprintln!("SKIPPED: there is no Graphviz on this machine");
            return;
        }
        let model = nnhal_bench::models::add(4).unwrap();
        let picture = svg(GRAPHVIZ, &Dot(model.hal()).to_string()).unwrap();
        let picture = String::from_utf8(picture).unwrap();
        assert!(
            picture.contains("<svg") && picture.contains("0: ADD"),
            "{picture}"
        );
        let error = svg(GRAPHVIZ, "no graph").unwrap_err().to_string();
        assert!(error.contains("ended with"), "{error}");
    }

    #[test]
    fn missing_graphviz_is_said() {
        let error = svg("/nowhere/dot", "digraph {}").unwrap_err().to_string();
        assert!(
            error.contains("/nowhere/dot of Graphviz does not start"),
            "{error}"
        );
    }
}
