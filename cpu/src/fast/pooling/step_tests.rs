//! Pooling beside the reference.

use nnhal_hal::{Operand, OperandType as T, OperationType};

use crate::kernels::testing::OneOperation;
use crate::{KernelSet, RunOptions};

/// Pools 3 by 2 pixels of an image with stride 2 and padding, by both sets of kernels.
fn assert_alike<E: bytemuck::Pod>(ty: T, channels: u32, value: impl Fn(u32) -> E) {
    let data: Vec<E> = (0..2 * 5 * 7 * channels).map(value).collect();
    let operand = |dims: &[u32]| match ty {
        T::TENSOR_FLOAT32 => Operand::new(ty, dims),
        _ => Operand::new(ty, dims).with_quantization(0.5, 3),
    };
    for operation in [OperationType::AVERAGE_POOL_2D, OperationType::MAX_POOL_2D] {
        for activation in [0, 3] {
            let compute = |kernels| {
                let one = OneOperation::new(operation).operand(operand(&[2, 5, 7, channels]), &data);
                let arguments = [1, 0, 1, 1, 2, 2, 2, 3, activation];
                let one = arguments.into_iter().fold(one, OneOperation::i32);
                let one = one.output_operand(operand(&[0, 0, 0, 0]));
                one.run_by(kernels, &RunOptions::default()).unwrap().remove(0)
            };
            let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
            assert_eq!(found.dims, exact.dims);
            assert_eq!(
                found.bytes, exact.bytes,
                "{operation} {ty} {channels} {activation}"
            );
        }
    }
}

#[test]
fn any_number_of_channels_has_the_bits_of_the_reference() {
    for channels in [1, 3, 8, 13, 16, 28, 32, 47, 72] {
        // Sums of such floats are exact in any order.
        assert_alike(T::TENSOR_FLOAT32, channels, |at| {
            ((at * 37) % 211) as f32 / 8.0 - 9.0
        });
        assert_alike(T::TENSOR_QUANT8_ASYMM, channels, |at| (at * 151 + 7) as u8);
        assert_alike(T::TENSOR_QUANT8_ASYMM_SIGNED, channels, |at| (at * 151 + 7) as i8);
    }
}
