//! CONCATENATION: several tensors one after another along an axis. Quantised inputs of another scale or zero
//! point than the output are requantised, in float32 as the HAL reference does.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use super::element::Quant8;
use crate::kernel::{Kernel, KernelContext, KernelError, Tensor};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::CONCATENATION, concatenation),
    (tflite::CONCATENATION, concatenation),
];

fn concatenation(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    match ty {
        OperandType::TENSOR_QUANT8_ASYMM => join::<u8, _>(context, requantize),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => join::<i8, _>(context, requantize),
        ty => by_element_size!(ty, join_unchanged(context)),
    }
}

fn join_unchanged<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    join::<T, _>(context, |_, _, from, to| to.copy_from_slice(from))
}

/// Joins the inputs run by run; `convert` gets an input, the output's scale and zero point, and a run of
/// each.
fn join<T: bytemuck::Pod, F>(context: &mut KernelContext<'_>, convert: F) -> Result<(), KernelError>
where
    F: Fn(&Tensor<'_>, (f32, i32), &[T], &mut [T]),
{
    let inputs = context.inputs;
    let count = inputs.len().saturating_sub(1);
    let output = context.outputs.tensor(0)?;
    let (shape, quantization) = (output.shape, (output.scale(), output.zero_point()));
    let axis = usize::try_from(inputs.i32(count)?)
        .ok()
        .filter(|axis| *axis < shape.rank())
        .ok_or_else(|| OpError::input(count, "(axis) is outside the rank"))?;
    let target = output.into_data::<T>()?;
    if target.is_empty() {
        return Ok(());
    }
    let inner = count_of(&shape.dims()[axis + 1..]);
    let period = inner * shape.dim(axis) as usize;
    let mut offset = 0;
    for number in 0..count {
        let input = inputs.tensor(number)?;
        let run = inner * input.shape.dim(axis) as usize;
        if run == 0 {
            continue;
        }
        let rows = target.chunks_exact_mut(period);
        for (from, to) in input.data::<T>()?.chunks_exact(run).zip(rows) {
            convert(&input, quantization, from, &mut to[offset..offset + run]);
        }
        offset += run;
    }
    Ok(())
}

fn requantize<T: Quant8>(input: &Tensor<'_>, (scale, zero_point): (f32, i32), from: &[T], to: &mut [T]) {
    if input.scale() == scale && input.zero_point() == zero_point {
        to.copy_from_slice(from);
        return;
    }
    // Counted from the type's smallest value, so that a signed tensor gives what its unsigned twin gives.
    let factor = input.scale() * (1.0 / scale);
    let bias = -((input.zero_point() - T::LEAST) as f32) * factor;
    for (to, from) in to.iter_mut().zip(from) {
        let steps = ((from.to_i32() - T::LEAST) as f32 * factor + bias).round() as i32;
        *to = T::saturate(steps.saturating_add(zero_point));
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn inputs_of_other_scales_are_requantised() {
        let operand = |dims: &[u32], scale, zero_point| {
            Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(scale, zero_point)
        };
        let result = OneOperation::new(OperationType::CONCATENATION)
            .operand(operand(&[2, 1], 1.0, 0), &[1_u8, 200])
            .operand(operand(&[2, 2], 0.5, 10), &[10_u8, 13, 0, 255])
            .i32(1)
            .output_operand(operand(&[0, 0], 0.5, 10))
            .run_one::<u8>();
        assert_eq!(result.unwrap(), (vec![2, 3], vec![12, 10, 13, 255, 0, 255]));
    }

    #[test]
    fn sixteen_bit_steps_must_have_one_scale() {
        let join = |scale| {
            let steps = |scale| Operand::new(T::TENSOR_QUANT16_SYMM, &[1]).with_quantization(scale, 0);
            OneOperation::new(tflite::CONCATENATION)
                .operand(steps(0.5), &[300_i16])
                .operand(steps(scale), &[-400_i16])
                .i32(0)
                .output_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[2]).with_quantization(0.5, 0))
                .run_one::<i16>()
        };
        assert_eq!(join(0.5).unwrap().1, [300, -400]);
        assert!(join(0.25).unwrap_err().contains("those of input 1"));
    }

    fn join(axis: i32, second: &[u32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(OperationType::CONCATENATION)
            .tensor(T::TENSOR_FLOAT32, &[1, 2], &[1_f32, 2.0])
            .tensor(
                T::TENSOR_FLOAT32,
                second,
                &vec![3_f32; second.iter().product::<u32>() as usize],
            )
            .i32(axis)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn inputs_follow_each_other_and_empty_ones_add_nothing() {
        assert_eq!(join(0, &[0, 2]).unwrap(), (vec![1, 2], vec![1.0, 2.0]));
        assert_eq!(join(0, &[2, 2]).unwrap().0, [3, 2]);
        assert_eq!(join(1, &[1, 1]).unwrap(), (vec![1, 3], vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn axes_and_shapes_that_do_not_fit_give_an_error() {
        assert!(join(2, &[1, 2]).unwrap_err().contains("(axis) is 2"));
        assert!(join(-1, &[1, 2]).is_err());
        assert!(join(i32::MIN, &[1, 2]).is_err());
        assert!(join(0, &[1, 3]).unwrap_err().contains("input 1"));
        assert!(join(0, &[2]).is_err());
    }
}
