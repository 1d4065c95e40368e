//! Reductions of rows, segment by segment.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::SEGMENT_SUM, &[tflite::SEGMENT_SUM], "", |node| {
        reduce(node, tflite::SEGMENT_SUM)
    }),
    Mapping::new(
        Builtin::UNSORTED_SEGMENT_SUM,
        &[tflite::UNSORTED_SEGMENT_SUM],
        "",
        |node| reduce(node, tflite::UNSORTED_SEGMENT_SUM),
    ),
    Mapping::new(
        Builtin::UNSORTED_SEGMENT_PROD,
        &[tflite::UNSORTED_SEGMENT_PROD],
        "",
        |node| reduce(node, tflite::UNSORTED_SEGMENT_PROD),
    ),
    Mapping::new(
        Builtin::UNSORTED_SEGMENT_MAX,
        &[tflite::UNSORTED_SEGMENT_MAX],
        "",
        |node| reduce(node, tflite::UNSORTED_SEGMENT_MAX),
    ),
    Mapping::new(
        Builtin::UNSORTED_SEGMENT_MIN,
        &[tflite::UNSORTED_SEGMENT_MIN],
        "",
        |node| reduce(node, tflite::UNSORTED_SEGMENT_MIN),
    ),
];

fn reduce(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let count = node.input_count();
    let inputs = node.inputs(count)?;
    let output = node.output(0)?;
    node.emit(kind, &inputs, &[output])
}
