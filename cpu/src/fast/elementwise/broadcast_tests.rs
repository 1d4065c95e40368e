use nnhal_hal::{Operand, OperandType, OperationType, Shape};

use crate::fast::elementwise::binary::Binary;
use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

const OPERATIONS: [OperationType; 7] = [
    OperationType::ADD,
    OperationType::SUB,
    OperationType::MUL,
    OperationType::DIV,
    OperationType::MAXIMUM,
    OperationType::MINIMUM,
    OperationType::PRELU,
];

/// Shapes of two operands: a row, long and short ones, for all rows; an element for each row, for all rows of
/// an image, or for all; the other way round; products of leading extents; and several at once.
const SHAPES: [[&[u32]; 2]; 15] = [
    [&[2, 3, 5, 130], &[130]],
    [&[2, 30, 5, 3], &[3]],
    [&[3], &[2, 30, 5, 3]],
    [&[2, 3, 5, 130], &[2, 3, 5, 1]],
    [&[2, 30, 5, 3], &[2, 30, 5, 1]],
    [&[2, 1, 1, 1], &[2, 30, 5, 3]],
    [&[2, 4, 5, 70], &[1, 1, 1, 1]],
    [&[1, 1, 1], &[2, 4, 5, 70]],
    [&[2, 4, 5, 70], &[2, 1, 1, 70]],
    [&[2, 1, 1, 140], &[2, 4, 5, 140]],
    [&[190, 1], &[1, 190]],
    [&[1, 7], &[90, 1]],
    [&[3, 1, 4, 1], &[1, 5, 1, 6]],
    [&[4, 1, 33], &[1, 9, 33]],
    [&[0, 4], &[1, 4]],
];

fn elements(dims: &[u32]) -> usize {
    Shape::new(dims).unwrap().elements().unwrap()
}

/// An operation on two operands of these shapes, all else of which may be known when the model is prepared,
/// by these kernels: dimensions and bytes.
fn result(
    (operation, ty): (OperationType, OperandType),
    (shapes, is_known): ([&[u32]; 2], bool),
    kernels: KernelSet,
) -> (Vec<u32>, Vec<u8>) {
    let operand = |dims: &[u32], zero_point| match ty {
        OperandType::TENSOR_FLOAT32 => Operand::new(ty, dims),
        _ => Operand::new(ty, dims).with_quantization(0.5, zero_point),
    };
    let mut one = OneOperation::new(operation);
    for (at, dims) in shapes.into_iter().enumerate() {
        let values = (0..elements(dims)).map(|place| (place * 37 + at * 11) % 251);
        let operand = operand(dims, 5 * at as i32);
        one = if ty == OperandType::TENSOR_FLOAT32 {
            one.operand(
                operand,
                &values.map(|value| value as f32 - 90.5).collect::<Vec<_>>(),
            )
        } else {
            one.operand(operand, &values.map(|value| value as u8).collect::<Vec<_>>())
        };
    }
    if Binary::of(operation).unwrap().has_activation() {
        one = one.i32(1);
    }
    if is_known {
        one = one.with_constants();
    }
    let one = one.output_operand(operand(&[], 9));
    let found = one.run_by(kernels, &RunOptions::default()).unwrap().remove(0);
    (found.dims, found.bytes)
}

#[test]
fn operands_that_broadcast_give_the_bits_of_the_reference() {
    for ty in [
        OperandType::TENSOR_FLOAT32,
        OperandType::TENSOR_QUANT8_ASYMM,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
    ] {
        let is_float = ty == OperandType::TENSOR_FLOAT32;
        let takes = |operation: &OperationType| is_float || *operation != OperationType::DIV;
        for operation in OPERATIONS.into_iter().filter(takes) {
            // What is known when the model is prepared may be computed in another way.
            let is_any = |(shapes, is_known): &([&[u32]; 2], bool)| !is_known || elements(shapes[0]) > 0;
            let cases = SHAPES
                .into_iter()
                .flat_map(|shapes| [(shapes, false), (shapes, true)]);
            for (shapes, is_known) in cases.filter(is_any) {
                let by = |kernels| result((operation, ty), (shapes, is_known), kernels);
                assert!(
                    by(KernelSet::Fast) == by(KernelSet::Reference),
                    "{operation} of {ty} {shapes:?}, {is_known}"
                );
            }
        }
    }
}
