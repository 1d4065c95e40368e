use nnhal_hal::{Operand, OperandType, OperationType};

use crate::fast::elementwise::binary::Binary;
use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

const TYPES: [OperandType; 2] = [
    OperandType::TENSOR_QUANT8_ASYMM,
    OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
];

/// What an operation gives for all pairs of bytes, and for some more that do not fill a vector.
fn all_pairs(
    operation: OperationType,
    ty: OperandType,
    (scales, zero_points): ([f32; 3], [i32; 3]),
    activation: i32,
    (kernels, is_known): (KernelSet, bool),
) -> Vec<u8> {
    let left: Vec<u8> = (0..65_536 + 70).map(|at: u32| (at >> 8) as u8).collect();
    let right: Vec<u8> = (0..65_536 + 70).map(|at: u32| at as u8).collect();
    let operand = |scale: f32, zero_point: i32| {
        let mut operand = Operand::new(ty, &[left.len() as u32]);
        (operand.scale, operand.zero_point) = (scale, zero_point);
        operand
    };
    let mut one = OneOperation::new(operation)
        .operand(operand(scales[0], zero_points[0]), &left)
        .operand(operand(scales[1], zero_points[1]), &right);
    if Binary::of(operation).unwrap().has_activation() {
        one = one.i32(activation);
    }
    let one = one.output_operand(operand(scales[2], zero_points[2]));
    // By floats only where the activation is known when the model is prepared.
    let one = if is_known { one.with_constants() } else { one };
    one.run_by(kernels, &RunOptions::default())
        .unwrap()
        .remove(0)
        .bytes
}

/// Compares what operations give for all pairs of bytes with the reference, for some scales and zero points.
fn assert_like_reference(operations: &[OperationType], cases: &[([f32; 3], [i32; 3])]) {
    for (at, form) in cases.iter().enumerate() {
        for ty in TYPES {
            for operation in operations {
                let by = |kernels| all_pairs(*operation, ty, *form, at as i32 % 4, kernels);
                let exact = by((KernelSet::Reference, false));
                for is_known in [false, true] {
                    let found = by((KernelSet::Fast, is_known));
                    assert!(found == exact, "{operation} of {ty} {form:?}, known: {is_known}");
                }
            }
        }
    }
}

#[test]
fn all_pairs_have_the_sums_and_differences_of_the_reference() {
    // Equal ones, a power of two and any number between them, and one step that is not enough for the output
    // or for an input.
    let scales = [
        [0.5, 0.5, 1.0],
        [0.25, 0.5, 0.7],
        [0.037, 0.029, 0.05],
        [1.3, 0.000_3, 1.1],
        [0.1, 0.09, 1e-8],
        [1.0, 1e-11, 1.1],
        [1.0, 0.999_999_9, 2.0],
        // Ties, on both sides of real 0, and very different scales.
        [0.5, 0.5, 0.5],
        [0.5, 0.125, 1.0],
        [0.3, 0.6, 2.4],
        [100.0, 0.001, 90.0],
        [0.01, 0.02, 1e6],
        // Such as models have.
        [0.023_529, 0.117_3, 0.101_7],
        [0.184_3, 0.172_2, 0.211_9],
        [0.071_4, 0.052_8, 0.089_1],
        [0.310_7, 0.299_1, 0.420_3],
    ];
    let zero_points = [[3, 120, 7], [1, 4, 100], [90, 0, 0]];
    let cases: Vec<_> = (0..scales.len())
        .map(|at| (scales[at], zero_points[at % 3]))
        .collect();
    assert_like_reference(&[OperationType::ADD, OperationType::SUB], &cases);
}

#[test]
fn all_pairs_have_the_products_of_the_reference() {
    // Ties, scales of models, and a multiplier that is nearly 1, is just below a half or leaves nothing.
    let both = [
        ([0.5, 0.25, 0.5], [3, 120, 7]),
        ([0.5, 0.5, 64.0], [0, 0, 0]),
        ([0.023_529, 0.117_3, 0.101_7], [127, 1, 100]),
        ([0.003_9, 0.071_4, 0.003_9], [0, 90, 0]),
        ([0.071_4, 0.052_8, 0.003_8], [64, 64, 64]),
        ([1.0, 1.0, 2.000_01], [127, 127, 127]),
        ([1e-6, 1e-6, 1e3], [100, 100, 100]),
    ];
    assert_like_reference(&[OperationType::MUL, OperationType::PRELU], &both);
    // What is scaled up, as far as beyond 32 bits.
    let scaled_up = [
        ([1.0, 1.0, 1.0], [127, 127, 127]),
        ([3.0, 7.0, 0.1], [5, 9, 80]),
        ([1e3, 1e3, 1e-6], [100, 100, 100]),
    ];
    assert_like_reference(&[OperationType::PRELU], &scaled_up);
}

#[test]
fn all_pairs_have_the_extremes_of_the_reference() {
    // Of the same form, one other, both others, and steps so different that all values are clamped or become
    // one.
    assert_like_reference(
        &[OperationType::MAXIMUM, OperationType::MINIMUM],
        &[
            ([0.5, 0.5, 0.5], [7, 7, 7]),
            ([0.25, 0.5, 0.5], [7, 7, 7]),
            ([0.5, 0.3, 0.5], [7, 9, 7]),
            ([0.037, 0.029, 0.05], [3, 120, 7]),
            ([1.0, 1e-3, 1e-6], [50, 60, 70]),
            ([1e-6, 1e-5, 1.0], [50, 60, 70]),
        ],
    );
}

#[test]
fn operations_on_bytes_say_what_computes_them() {
    let name = |operation| {
        let operand = Operand::new(TYPES[0], &[2]).with_quantization(0.5, 3);
        let mut one = OneOperation::new(operation)
            .operand(operand.clone(), &[1_u8, 2])
            .operand(operand.clone(), &[3_u8, 4]);
        if Binary::of(operation).unwrap().has_activation() {
            one = one.i32(0);
        }
        one.output_operand(operand).kernel_name()
    };
    let sums = [OperationType::ADD, OperationType::SUB].map(name);
    assert_eq!(sums, ["8-bit sum"; 2]);
    let products = [OperationType::MUL, OperationType::PRELU].map(name);
    assert_eq!(products, ["8-bit product"; 2]);
    let extremes = [OperationType::MAXIMUM, OperationType::MINIMUM].map(name);
    assert_eq!(extremes, ["8-bit maximum or minimum"; 2]);
}
