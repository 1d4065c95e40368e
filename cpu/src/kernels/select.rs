//! SELECT: each element from one of two tensors, by a mask. Quantised elements are brought to the output's
//! scale. The extension's operation takes operands that broadcast.

use bytemuck::Pod;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::blocks::by_element_size;
use super::broadcast::for_each_run;
use super::element::Quantized;
use super::fixed_point::requantize;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::SELECT, select), (tflite::SELECT, select)];

fn select(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(1)?.ty() {
        OperandType::TENSOR_QUANT8_ASYMM => quantized::<u8>(context),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => quantized::<i8>(context),
        OperandType::TENSOR_QUANT16_SYMM => quantized::<i16>(context),
        ty => by_element_size!(ty, unchanged(context)),
    }
}

fn unchanged<T: Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    choose::<T>(context, |value| value, |value| value)
}

fn quantized<T: Quantized>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
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
    let shape = context.outputs.tensor(0)?.shape;
    for index in 0..3 {
        if context.inputs.tensor(index)?.shape != shape {
            take(context, 1, true, first)?;
            return take(context, 2, false, second);
        }
    }
    let mask = context.inputs.data::<u8>(0)?;
    let (ones, twos) = (context.inputs.data::<T>(1)?, context.inputs.data::<T>(2)?);
    let output = context.outputs.data::<T>(0)?;
    for (((result, mask), one), two) in output.iter_mut().zip(mask).zip(ones).zip(twos) {
        *result = if *mask != 0 { first(*one) } else { second(*two) };
    }
    Ok(())
}

/// `bring` of the elements of an input where the mask is `wanted`; both broadcast to the output.
fn take<T: Pod>(
    context: &mut KernelContext<'_>,
    number: usize,
    wanted: bool,
    bring: impl Fn(T) -> T,
) -> Result<(), KernelError> {
    let (mask, input) = (context.inputs.tensor(0)?, context.inputs.tensor(number)?);
    let (masks, values) = (mask.data::<u8>()?, input.data::<T>()?);
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let results = output.into_data::<T>()?;
    for_each_run(&shape, &mask.shape, &input.shape, |run| {
        let results = &mut results[run.output..][..run.length];
        for (step, result) in results.iter_mut().enumerate() {
            let mask = masks[run.left + if run.left_moves { step } else { 0 }];
            if (mask != 0) == wanted {
                *result = bring(values[run.right + if run.right_moves { step } else { 0 }]);
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

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

    fn broadcast(mask: &[u32], one: &[u32], two: &[u32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        let count = |dims: &[u32]| dims.iter().product::<u32>() as usize;
        let masks: Vec<u8> = (0..count(mask)).map(|at| (at % 2 == 0).into()).collect();
        let ones: Vec<i32> = (1..).take(count(one)).collect();
        let twos: Vec<i32> = (1..).take(count(two)).map(|value| -value).collect();
        OneOperation::new(tflite::SELECT)
            .tensor(OperandType::TENSOR_BOOL8, mask, &masks)
            .tensor(OperandType::TENSOR_INT32, one, &ones)
            .tensor(OperandType::TENSOR_INT32, two, &twos)
            .output(OperandType::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn condition_and_choices_broadcast() {
        assert_eq!(
            broadcast(&[2, 1], &[2, 3], &[1, 3]).unwrap(),
            (vec![2, 3], vec![1, 2, 3, -1, -2, -3])
        );
        assert_eq!(broadcast(&[1], &[2], &[1]).unwrap(), (vec![2], vec![1, 2]));
        assert_eq!(
            broadcast(&[2], &[1, 1], &[2, 1]).unwrap(),
            (vec![2, 2], vec![1, -1, 1, -2])
        );
        assert_eq!(broadcast(&[3], &[3], &[3]).unwrap().1, [1, -2, 3]);
        assert_eq!(broadcast(&[0], &[1], &[1]).unwrap(), (vec![0], vec![]));
        assert!(
            broadcast(&[2], &[3], &[1])
                .unwrap_err()
                .contains("do not broadcast")
        );
        assert!(
            broadcast(&[1], &[3], &[2])
                .unwrap_err()
                .contains("do not broadcast")
        );
    }

    #[test]
    fn truth_values_and_sixteen_bit_steps_are_chosen_too() {
        let (_, data) = OneOperation::new(tflite::SELECT)
            .tensor(OperandType::TENSOR_BOOL8, &[2], &[1_u8, 0])
            .tensor(OperandType::TENSOR_BOOL8, &[1], &[1_u8])
            .tensor(OperandType::TENSOR_BOOL8, &[2], &[1_u8, 0])
            .output(OperandType::TENSOR_BOOL8, &[])
            .run_one::<u8>()
            .unwrap();
        assert_eq!(data, [1, 0]);
        let steps = |scale| Operand::new(OperandType::TENSOR_QUANT16_SYMM, &[2]).with_quantization(scale, 0);
        let (_, data) = OneOperation::new(tflite::SELECT)
            .tensor(OperandType::TENSOR_BOOL8, &[2], &[1_u8, 0])
            .operand(steps(2.0), &[100_i16, 0])
            .operand(steps(1.0), &[0_i16, 20_000])
            .output_operand(steps(0.5))
            .run_one::<i16>()
            .unwrap();
        assert_eq!(data, [400, 32_767]);
    }
}
