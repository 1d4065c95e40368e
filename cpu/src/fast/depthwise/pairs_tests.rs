//! Depthwise convolutions of 8-bit values beside the reference.

use nnhal_hal::{Operand, OperandType, OperationType};

use crate::fast::depthwise::pair_tiles::outputs_of_tile;
use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

/// Extents of the filter, stride, dilation, extents of the image, channels.
type Case = ([u32; 2], u32, u32, [u32; 2], u32);

#[test]
fn tiles_fit_their_runs() {
    for many in [false, true] {
        for run in 1..200 {
            assert!(outputs_of_tile(run, many) <= run);
        }
    }
    assert_eq!(
        [5, 7, 14, 112].map(|run| outputs_of_tile(run, true)),
        [4, 4, 4, 6]
    );
    assert_eq!([2, 7, 112].map(|run| outputs_of_tile(run, false)), [1, 3, 3]);
}

#[test]
fn filters_of_every_kind_give_the_bits_of_the_reference() {
    let cases: [Case; 24] = [
        ([3, 3], 1, 1, [5, 9], 40),
        ([3, 3], 1, 1, [4, 7], 19),
        ([3, 3], 2, 1, [9, 11], 16),
        ([3, 3], 2, 1, [3, 3], 33),
        ([5, 5], 1, 1, [7, 12], 24),
        ([5, 5], 2, 1, [12, 13], 17),
        ([3, 3], 1, 2, [9, 9], 21),
        ([3, 3], 1, 1, [6, 8], 8),
        ([3, 3], 1, 1, [6, 7], 8),
        ([3, 3], 2, 1, [6, 8], 8),
        ([5, 5], 1, 1, [5, 10], 8),
        ([4, 4], 1, 1, [5, 10], 8),
        ([3, 3], 1, 2, [9, 10], 8),
        ([3, 3], 2, 1, [7, 10], 13),
        ([5, 5], 1, 1, [6, 6], 3),
        ([2, 2], 1, 1, [5, 6], 18),
        ([4, 4], 3, 1, [8, 8], 9),
        ([3, 1], 1, 1, [30, 1], 40),
        ([5, 1], 2, 1, [24, 1], 8),
        ([10, 1], 1, 1, [15, 1], 128),
        ([1, 3], 1, 1, [2, 9], 16),
        ([3, 5], 1, 1, [6, 8], 7),
        ([5, 3], 2, 1, [9, 8], 32),
        ([3, 3], 1, 1, [2, 2], 5),
    ];
    // With the smaller scale, multipliers are too large for products of bytes.
    for (ty, least, scale) in [
        (OperandType::TENSOR_QUANT8_ASYMM, 0, 2.0),
        (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, 128, 2.0),
        (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, 128, 0.015),
    ] {
        for case in cases {
            let ([rows, across], stride, dilation, [height, width], channels) = case;
            let values = |count: u32, by: u32| -> Vec<u8> {
                (0..count)
                    .map(|at| ((at * by + at / 7) % 251) as u8 ^ least)
                    .collect()
            };
            let operand = |dims: &[u32], scale, zero_point| {
                Operand::new(ty, dims).with_quantization(scale, zero_point - i32::from(least))
            };
            let extents = [2, height.div_ceil(stride), width.div_ceil(stride), channels];
            let bias: Vec<i32> = (0..channels as i32).map(|at| at * 100 - 700).collect();
            let compute = |kernels| {
                OneOperation::new(OperationType::DEPTHWISE_CONV_2D)
                    .operand(
                        operand(&[2, height, width, channels], 0.5, 3),
                        &values(2 * height * width * channels, 7),
                    )
                    .operand(
                        operand(&[1, rows, across, channels], 0.02, 120),
                        &values(rows * across * channels, 11),
                    )
                    .operand(
                        Operand::new(OperandType::TENSOR_INT32, &[channels]).with_quantization(0.01, 0),
                        &bias,
                    )
                    .i32(1)
                    .i32(stride as i32)
                    .i32(stride as i32)
                    .i32(1)
                    .i32(1)
                    .tensor(OperandType::BOOL, &[], &[0_u8])
                    .i32(dilation as i32)
                    .i32(dilation as i32)
                    .output_operand(operand(&extents, scale, 100))
                    .with_constants()
                    .run_by(kernels, &RunOptions::default())
                    .unwrap()
                    .remove(0)
                    .bytes
            };
            let exact = compute(KernelSet::Reference);
            assert!(exact.iter().any(|value| *value != exact[0]), "{case:?}");
            assert_eq!(compute(KernelSet::Fast), exact, "{ty} {case:?} {scale}");
        }
    }
}
