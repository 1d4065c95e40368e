//! What is found by values: the largest, the distinct, those that are not zero, and the best boxes.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::TOPK_V2,
        &[tflite::TOPK_V2],
        "of equal values the one with the smaller index comes first, other than in NNAPI",
        |node| {
            let inputs = node.inputs(2)?;
            let outputs = [node.output_moved_from(0, inputs[0])?, node.output(1)?];
            node.emit(tflite::TOPK_V2, &inputs, &outputs)
        },
    ),
    Mapping::new(Builtin::UNIQUE, &[tflite::UNIQUE], "", |node| {
        let input = node.input(0)?;
        let outputs = [node.output_moved_from(0, input)?, node.output(1)?];
        node.set_dimensions(outputs[0], vec![0]);
        let count = node.graph.builder.dimensions(input).map_or(0, |dims| dims[0]);
        node.set_dimensions(outputs[1], vec![count]);
        node.emit(tflite::UNIQUE, &[input], &outputs)
    }),
    Mapping::new(Builtin::WHERE, &[tflite::WHERE], "", |node| {
        let input = node.input(0)?;
        let rank = node.graph.builder.operand(input).dimensions.len();
        let output = node.output(0)?;
        node.set_dimensions(output, vec![0, rank as u32]);
        node.emit(tflite::WHERE, &[input], &[output])
    }),
    Mapping::new(
        Builtin::NON_MAX_SUPPRESSION_V4,
        &[tflite::NON_MAX_SUPPRESSION_V4],
        "",
        |node| suppress(node, tflite::NON_MAX_SUPPRESSION_V4, 5, 2),
    ),
    Mapping::new(
        Builtin::NON_MAX_SUPPRESSION_V5,
        &[tflite::NON_MAX_SUPPRESSION_V5],
        "",
        |node| suppress(node, tflite::NON_MAX_SUPPRESSION_V5, 6, 3),
    ),
];

fn suppress(
    node: &mut Node<'_, '_, '_, '_>,
    kind: O,
    input_count: usize,
    output_count: usize,
) -> Result<(), Refusal> {
    let inputs = node.inputs(input_count)?;
    let outputs = (0..output_count)
        .map(|number| node.output(number))
        .collect::<Result<Vec<_>, _>>()?;
    node.emit(kind, &inputs, &outputs)
}
