//! Depthwise convolutions of floats beside the reference.

use nnhal_hal::{OperandType, OperationType};

use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

/// Filter, stride, dilation, extents of the image, channels.
type Case = (u32, u32, u32, [u32; 2], u32);

#[test]
fn filters_of_every_kind_give_what_the_reference_gives() {
    let cases: [Case; 16] = [
        (3, 1, 1, [5, 9], 40),
        (3, 1, 1, [4, 7], 19),
        (3, 2, 1, [9, 11], 16),
        (3, 2, 1, [3, 3], 33),
        (5, 1, 1, [7, 12], 24),
        (5, 2, 1, [12, 13], 17),
        (3, 1, 2, [9, 9], 21),
        (3, 1, 1, [6, 8], 8),
        (3, 2, 1, [7, 10], 13),
        (5, 1, 1, [6, 6], 3),
        (2, 1, 1, [5, 6], 18),
        (4, 3, 1, [8, 8], 9),
        (3, 1, 1, [5, 14], 8),
        (3, 2, 1, [7, 21], 11),
        (5, 1, 1, [6, 14], 9),
        (5, 2, 1, [9, 24], 8),
    ];
    for (filter, stride, dilation, [height, width], channels) in cases {
        let value = |at: u32, by: u32| (at * by % 37) as f32 / 8.0 - 2.0;
        let values = |count: u32, by: u32| (0..count).map(|at| value(at, by)).collect::<Vec<_>>();
        let output = |extent: u32| extent.div_ceil(stride);
        let compute = |kernels| {
            OneOperation::new(OperationType::DEPTHWISE_CONV_2D)
                .tensor(
                    OperandType::TENSOR_FLOAT32,
                    &[2, height, width, channels],
                    &values(2 * height * width * channels, 7),
                )
                .tensor(
                    OperandType::TENSOR_FLOAT32,
                    &[1, filter, filter, channels],
                    &values(filter * filter * channels, 11),
                )
                .tensor(OperandType::TENSOR_FLOAT32, &[channels], &values(channels, 3))
                .i32(1)
                .i32(stride as i32)
                .i32(stride as i32)
                .i32(1)
                .i32(1)
                .tensor(OperandType::BOOL, &[], &[0_u8])
                .i32(dilation as i32)
                .i32(dilation as i32)
                .output(
                    OperandType::TENSOR_FLOAT32,
                    &[2, output(height), output(width), channels],
                )
                .with_constants()
                .run_by(kernels, &RunOptions::default())
                .unwrap()
                .remove(0)
                .data::<f32>()
        };
        let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
        for (found, exact) in found.iter().zip(&exact) {
            assert!(
                (found - exact).abs() < 1e-3,
                "{filter} {stride} {dilation} {channels}"
            );
        }
    }
}
