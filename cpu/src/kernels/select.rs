//! SELECT: each element from one of two tensors, by a mask. Quantised elements are brought to the output's
//! scale.

use bytemuck::Pod;
use nnhal_hal::{OperandType, OperationType};

use super::element::{Quant8, not_taken};
use super::fixed_point::requantize;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::SELECT, select)];

fn select(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(1)?.ty() {
        OperandType::TENSOR_FLOAT32 | OperandType::TENSOR_INT32 => {
            choose::<u32>(context, |value| value, |value| value)
        }
        OperandType::TENSOR_FLOAT16 => choose::<u16>(context, |value| value, |value| value),
        OperandType::TENSOR_QUANT8_ASYMM => quantized::<u8>(context),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => quantized::<i8>(context),
        ty => Err(not_taken(1, ty)),
    }
}

fn quantized<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (first, second) = (context.inputs.tensor(1)?, context.inputs.tensor(2)?);
    let output = context.outputs.tensor(0)?;
    let to = (output.scale(), output.zero_point());
    let from = [&first, &second].map(|tensor| (tensor.scale(), tensor.zero_point()));
    let bring = |from| move |value: T| T::saturate(requantize(value.to_i32(), from, to));
    choose::<T>(context, bring(from[0]), bring(from[1]))
}

/// `first` of an element of input 1 where the mask is true, `second` of one of input 2 elsewhere.
fn choose<T: Pod>(
    context: &mut KernelContext<'_>,
    first: impl Fn(T) -> T,
    second: impl Fn(T) -> T,
) -> Result<(), KernelError> {
    let mask = context.inputs.data::<u8>(0)?;
    let (ones, twos) = (context.inputs.data::<T>(1)?, context.inputs.data::<T>(2)?);
    let output = context.outputs.data::<T>(0)?;
    for (((result, mask), one), two) in output.iter_mut().zip(mask).zip(ones).zip(twos) {
        *result = if *mask != 0 { first(*one) } else { second(*two) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;

    fn quantized(dims: &[u32], scale: f32, zero_point: i32) -> Operand {
        Operand::new(OperandType::TENSOR_QUANT8_ASYMM, dims).with_quantization(scale, zero_point)
    }

    #[test]
    fn quantised_elements_are_brought_to_the_output_scale() {
        let (_, data) = OneOperation::new(OperationType::SELECT)
            .tensor(OperandType::TENSOR_BOOL8, &[3], &[2_u8, 0, 0])
            .operand(quantized(&[3], 2.0, 0), &[5_u8, 5, 5])
            .operand(quantized(&[3], 1.0, 100), &[0_u8, 7, 250])
            .output_operand(quantized(&[], 0.5, 10))
            .run_one::<u8>()
            .unwrap();
        assert_eq!(data, [30, 0, 255]);
    }

    #[test]
    fn shapes_that_differ_give_an_error() {
        let error = OneOperation::new(OperationType::SELECT)
            .tensor(OperandType::TENSOR_BOOL8, &[1], &[1_u8])
            .tensor(OperandType::TENSOR_FLOAT32, &[2], &[1.0_f32, 2.0])
            .tensor(OperandType::TENSOR_FLOAT32, &[2], &[1.0_f32, 2.0])
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run()
            .unwrap_err();
        assert!(error.contains("input 1"), "{error}");
    }
}
