//! PAD and PAD_V2: more room around a tensor, filled with what means zero, or with a given value.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, OperationType};

use super::blocks::{Layout, copy_block, steps_of};
use super::element::{Float, Quant8, by_element};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::PAD, pad), (OperationType::PAD_V2, pad_v2)];

fn pad(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let zero_point = context.inputs.tensor(0)?.zero_point();
    by_element!(context, {
        [f32, f16] => with_float(context, 0.0),
        [u8, i8] => with_quantized(context, zero_point),
    })
}

fn pad_v2(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (float, quantized) = (context.inputs.f32(2), context.inputs.i32(2));
    by_element!(context, {
        [f32, f16] => with_float(context, float?),
        [u8, i8] => with_quantized(context, quantized?),
    })
}

fn with_float<T: Float>(context: &mut KernelContext<'_>, value: f32) -> Result<(), KernelError> {
    fill_around(context, T::from_f32(value))
}

fn with_quantized<T: Quant8>(context: &mut KernelContext<'_>, value: i32) -> Result<(), KernelError> {
    if (T::LEAST..=T::MOST).contains(&value) {
        return fill_around(context, T::saturate(value));
    }
    let message = format!("(pad_value) is {value}, must be from {} to {}", T::LEAST, T::MOST);
    Err(OpError::input(2, message).into())
}

fn fill_around<T: bytemuck::Pod>(context: &mut KernelContext<'_>, value: T) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let paddings = context.inputs.data::<i32>(1)?;
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let steps = steps_of(shape.dims());
    let start = paddings
        .chunks_exact(2)
        .zip(&steps[..MAX_RANK])
        .map(|(around, step)| around[0] as isize * step)
        .sum();
    let target = output.into_data::<T>()?;
    if target.len() > input.data::<T>()?.len() {
        target.fill(value);
    }
    copy_block(
        input.dims(),
        input.data::<T>()?,
        &Layout::whole(input.dims()),
        target,
        &Layout::new(start, &steps[..shape.rank()]),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn pad(paddings: &[i32], dims: &[u32]) -> Result<(Vec<u32>, Vec<i8>), String> {
        let operand =
            |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims).with_quantization(1.0, -3);
        OneOperation::new(OperationType::PAD)
            .operand(operand(&[2, 1]), &[1_i8, 2])
            .tensor(T::TENSOR_INT32, dims, paddings)
            .output_operand(operand(&[]))
            .run_one()
    }

    #[test]
    fn pad_fills_with_the_zero_point() {
        let (dims, data) = pad(&[1, 0, 0, 1], &[2, 2]).unwrap();
        assert_eq!((dims, data), (vec![3, 2], vec![-3, -3, 1, -3, 2, -3]));
    }

    #[test]
    fn paddings_that_are_negative_or_enormous_or_of_wrong_shape_give_an_error() {
        assert!(pad(&[-1, 0, 0, 1], &[2, 2]).unwrap_err().contains("(paddings)"));
        assert!(pad(&[i32::MAX, i32::MAX, 0, i32::MAX], &[2, 2]).is_err());
        assert!(pad(&[1, 0], &[1, 2]).unwrap_err().contains("must be [2, 2]"));
        assert!(pad(&[1, 0, 0, 1], &[1, 4]).is_err());
    }

    #[test]
    fn pad_v2_of_floats_takes_a_float() {
        let result = OneOperation::new(OperationType::PAD_V2)
            .tensor(T::TENSOR_FLOAT32, &[1], &[5_f32])
            .tensor(T::TENSOR_INT32, &[1, 2], &[0, 1])
            .f32(0.25)
            .output(T::TENSOR_FLOAT32, &[0])
            .run_one::<f32>();
        assert_eq!(result.unwrap(), (vec![2], vec![5.0, 0.25]));
    }

    #[test]
    fn pad_v2_fills_with_its_value_and_refuses_values_outside_the_type() {
        let pad_v2 = |value| {
            let operand = |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(1.0, 9);
            OneOperation::new(OperationType::PAD_V2)
                .operand(operand(&[1]), &[5_u8])
                .tensor(T::TENSOR_INT32, &[1, 2], &[1, 2])
                .i32(value)
                .output_operand(operand(&[0]))
                .run_one::<u8>()
        };
        assert_eq!(pad_v2(77).unwrap(), (vec![4], vec![77, 5, 77, 77]));
        assert!(pad_v2(256).unwrap_err().contains("(pad_value) is 256"));
        assert!(pad_v2(-1).is_err());
    }
}
