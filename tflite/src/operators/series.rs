//! Sums that grow along an axis, numbers in equal steps, and classes by boundaries.

use nnhal_hal::{Operand, OperandType, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{BucketizeOptions, CumsumOptions};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::CUMSUM, &[tflite::CUMSUM], "", |node| {
        let options = node.options::<CumsumOptions>()?;
        let inputs = [
            node.input(0)?,
            node.input(1)?,
            node.scalar_bool(options.exclusive)?,
            node.scalar_bool(options.reverse)?,
        ];
        let output = node.output(0)?;
        node.emit(tflite::CUMSUM, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::RANGE,
        &[tflite::RANGE],
        "a constant, where start, limit and step are constant integers",
        |node| {
            let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
            let output = node.output(0)?;
            node.emit(tflite::RANGE, &inputs, &[output])
        },
    ),
    Mapping::new(Builtin::BUCKETIZE, &[tflite::BUCKETIZE], "", bucketize),
];

fn bucketize(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let boundaries = node.options::<BucketizeOptions<'_>>()?.boundaries.to_vec();
    if boundaries.is_empty() || !boundaries.is_sorted() {
        return Err("its boundaries must be numbers that rise, at least one".into());
    }
    let count = u32::try_from(boundaries.len()).map_err(|error| error.to_string())?;
    let bytes: Vec<u8> = boundaries.iter().flat_map(|value| value.to_le_bytes()).collect();
    let operand = Operand::new(OperandType::TENSOR_FLOAT32, &[count]);
    let boundaries = node.graph.constant(operand, &bytes)?;
    let input = node.input(0)?;
    let output = node.output(0)?;
    node.emit(tflite::BUCKETIZE, &[input, boundaries], &[output])
}
