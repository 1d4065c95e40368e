//! Windows whose elements are combined by a function that the operator names, or a graph that it refers to.

use nnhal_hal::tflite;

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::padding::value_in;
use crate::file::options::{ReduceWindowOptions, StablehloReduceWindowOptions};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::REDUCE_WINDOW, &[tflite::REDUCE_WINDOW], "", |node| {
        let function = node.options::<ReduceWindowOptions>()?.reduce_function;
        let input = node.input(0)?;
        let inputs = [
            input,
            value_in(node, 1, input)?,
            node.input(2)?,
            node.input(3)?,
            node.input(4)?,
            node.scalar_i32(function)?,
        ];
        let output = node.output_moved_from(0, input)?;
        node.emit(tflite::REDUCE_WINDOW, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::STABLEHLO_REDUCE_WINDOW,
        &[tflite::DILATE, tflite::REDUCE_WINDOW],
        "one input; the body is one addition, product, maximum, minimum, and or or",
        stablehlo_reduce_window,
    ),
];

fn stablehlo_reduce_window(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    if node.input_count() != 2 || node.output_count() != 1 {
        return Err("it reduces several tensors, must be one".into());
    }
    let options = node.options::<StablehloReduceWindowOptions<'_>>()?;
    let function = function(node, options.body_subgraph_index)?;
    let input = node.input(0)?;
    let rank = node.rank(0)?;
    // Lists that are left out do nothing.
    let ones = || vec![1_i64; rank];
    let or_ones = |list: Vec<i64>| if list.is_empty() { ones() } else { list };
    let padding = options.padding.to_vec();
    let padding = if padding.is_empty() {
        vec![0; 2 * rank]
    } else {
        padding
    };
    let dilations = or_ones(options.base_dilations.to_vec());
    let start = value_in(node, 1, input)?;
    let output = node.output_moved_from(0, input)?;
    let mut covered = input;
    if dilations != ones() || padding.iter().any(|room| *room != 0) {
        let operand = node.graph.builder.operand(input).clone();
        covered = node.temporary(nnhal_hal::Operand {
            dimensions: vec![0; rank],
            ..operand
        })?;
        let edges = node.narrowed_values(padding.into_iter())?;
        let inputs = [
            input,
            node.narrowed(dilations.into_iter())?,
            start,
            node.pairs_i32(&edges)?,
        ];
        node.emit(tflite::DILATE, &inputs, &[covered])?;
    }
    let inputs = [
        covered,
        start,
        node.narrowed(options.window_dimensions.to_vec().into_iter())?,
        node.narrowed(or_ones(options.window_strides.to_vec()).into_iter())?,
        node.narrowed(or_ones(options.window_dilations.to_vec()).into_iter())?,
        node.scalar_i32(function)?,
    ];
    node.emit(tflite::REDUCE_WINDOW, &inputs, &[output])
}

/// REDUCE_WINDOW's number of what a graph of one operator does.
pub(super) fn function(node: &Node<'_, '_, '_, '_>, graph: i32) -> Result<i32, Refusal> {
    let file = node.graph.model.file;
    let found = usize::try_from(graph)
        .ok()
        .and_then(|graph| file.graphs().get(graph));
    let Some(body) = found else {
        return Err(Refusal::Reason(format!(
            "it refers to graph {graph}, which the file has not"
        )));
    };
    let [operator] = &body.operators[..] else {
        let count = body.operators.len();
        return Err(Refusal::Reason(format!(
            "its body has {count} operators, must have one"
        )));
    };
    match Builtin::of(file, operator) {
        Some(Builtin::STABLEHLO_ADD | Builtin::ADD) => Ok(1),
        Some(Builtin::STABLEHLO_MULTIPLY | Builtin::MUL) => Ok(2),
        Some(Builtin::STABLEHLO_MINIMUM | Builtin::MINIMUM) => Ok(3),
        Some(Builtin::STABLEHLO_MAXIMUM | Builtin::MAXIMUM) => Ok(4),
        Some(Builtin::STABLEHLO_AND | Builtin::LOGICAL_AND) => Ok(5),
        Some(Builtin::STABLEHLO_OR | Builtin::LOGICAL_OR) => Ok(6),
        _ => Err("its body is no addition, product, maximum, minimum, and or or".into()),
    }
}
