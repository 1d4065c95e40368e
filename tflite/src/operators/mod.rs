//! The operators of the `.tflite` format and what they are in NNAPI: one [`Mapping`] for each, in one file
//! per family. The table in `docs/tflite-operators.md` is made from the same list.

mod builtin;
mod mapping;
mod node;
mod outputs;
mod scatter;
mod unmapped;

mod activation;
mod arithmetic;
mod batch_matmul;
mod case;
mod comparison;
mod composite;
mod control_flow;
mod convolution;
mod elementwise;
mod floats;
mod fold;
mod fully_connected;
mod hybrid;
mod joining;
mod lookup;
mod normalization;
mod padding;
mod pooling;
mod quantization;
mod quantized_lstm;
mod random;
mod recurrent;
mod reduction;
mod regions;
mod resources;
mod searching;
mod segments;
mod sequence;
mod series;
mod shape;
mod slicing;
mod sparse;
mod spatial;
mod spectra;
mod volumes;
mod windows;

pub use builtin::Builtin;
pub(crate) use control_flow::{Argument, Calls, counted_calls};
pub(crate) use mapping::Mapping;
pub(crate) use node::{Node, Refusal};

use crate::error::ImportError;
use crate::file::File;

/// Every mapping, by family.
pub(crate) const FAMILIES: &[(&str, &[Mapping])] = &[
    ("Arithmetic", arithmetic::MAPPINGS),
    ("Element-wise functions", elementwise::MAPPINGS),
    ("Activations", activation::MAPPINGS),
    ("Comparison and logic", comparison::MAPPINGS),
    ("Convolutions", convolution::MAPPINGS),
    ("Convolutions of volumes", volumes::MAPPINGS),
    ("Dense layers", fully_connected::MAPPINGS),
    ("Products of matrices", batch_matmul::MAPPINGS),
    ("Pooling", pooling::MAPPINGS),
    ("Normalization", normalization::MAPPINGS),
    ("Reductions", reduction::MAPPINGS),
    ("Windows", windows::MAPPINGS),
    ("Spectra", spectra::MAPPINGS),
    ("Sums, numbers and classes in a row", series::MAPPINGS),
    ("Shapes", shape::MAPPINGS),
    ("Slices", slicing::MAPPINGS),
    ("Joining and repeating", joining::MAPPINGS),
    ("Padding", padding::MAPPINGS),
    ("Space and depth", spatial::MAPPINGS),
    ("Look-up", lookup::MAPPINGS),
    ("Gather and scatter, diagonals and sequences", scatter::MAPPINGS),
    ("Gather and scatter of regions", regions::MAPPINGS),
    ("Segments", segments::MAPPINGS),
    ("Search", searching::MAPPINGS),
    ("Random numbers", random::MAPPINGS),
    ("Types and quantization", quantization::MAPPINGS),
    ("Recurrent layers, one step", recurrent::MAPPINGS),
    ("Recurrent layers, sequences", sequence::MAPPINGS),
    ("Control flow", control_flow::MAPPINGS),
    ("One of many graphs", case::MAPPINGS),
    ("Composites", composite::MAPPINGS),
    ("Resource variables", resources::MAPPINGS),
];

/// The mapping of an operator.
fn mapping(operator: Builtin) -> Option<&'static Mapping> {
    FAMILIES
        .iter()
        .flat_map(|(_, family)| family.iter())
        .find(|mapping| mapping.operator == operator)
}

/// Why an operator has no mapping; `None` if it has one.
pub(crate) fn unmapped_reason(operator: Builtin) -> Option<&'static str> {
    match mapping(operator) {
        Some(_) => None,
        None => unmapped::reason(operator),
    }
}

/// The graphs that an operator calls, which are imported before it is mapped.
pub(crate) fn calls<'a>(node: &mut Node<'_, '_, '_, 'a>) -> Result<Calls<'a>, Refusal> {
    match Builtin::of(node.graph.model.file, node.operator()) {
        Some(operator) => control_flow::calls(node, operator),
        None => Ok(Calls::default()),
    }
}

/// Adds the operations of one operator.
pub(crate) fn map(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    match Builtin::of(node.graph.model.file, node.operator()) {
        None => Err(Refusal::from("its operator code is missing")),
        Some(Builtin::CUSTOM) => Err(Refusal::from("NNAPI has no equivalent of custom operators")),
        Some(operator) => map_builtin(node, operator),
    }
}

/// What is said of an operator that cannot be mapped.
pub(crate) fn error(node: &Node<'_, '_, '_, '_>, refusal: Refusal) -> ImportError {
    let (graph, index) = (node.graph.number(), node.index());
    match refusal {
        Refusal::Inner(error) => *error,
        Refusal::Reason(reason) => ImportError::Operation {
            graph,
            index,
            operator: name(node.graph.model.file, graph, index),
            reason,
        },
    }
}

fn map_builtin(node: &mut Node<'_, '_, '_, '_>, operator: Builtin) -> Result<(), Refusal> {
    if fold::fold(node, operator)? {
        return Ok(());
    }
    match mapping(operator) {
        Some(mapping) => (mapping.map)(node),
        None => Err(Refusal::from(
            unmapped::reason(operator).unwrap_or("it is not an operator that this version of the format has"),
        )),
    }
}

/// The name of an operator of the file, for messages.
pub(crate) fn name(file: &File<'_>, graph: usize, index: usize) -> String {
    let operator = file
        .graphs()
        .get(graph)
        .and_then(|graph| graph.operators.get(index));
    match operator.and_then(|operator| file.code(operator)) {
        Some(code) if Builtin::of_code(code) == Builtin::CUSTOM => {
            format!("CUSTOM \"{}\"", code.custom_code.to_text())
        }
        Some(code) => Builtin::of_code(code).to_string(),
        None => "operator".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Builtin, FAMILIES, unmapped};

    #[test]
    fn every_operator_is_either_mapped_once_or_has_a_reason() {
        for operator in Builtin::ALL {
            let mapped = FAMILIES
                .iter()
                .flat_map(|(_, family)| family.iter())
                .filter(|mapping| mapping.operator == *operator)
                .count();
            match mapped {
                0 => assert!(unmapped::reason(*operator).is_some(), "{operator} has no reason"),
                1 => assert!(unmapped::own_reason(*operator).is_none(), "{operator} is mapped"),
                _ => panic!("{operator} is mapped {mapped} times"),
            }
        }
    }
}
