//! Reductions over axes: MEAN and the REDUCE_* operations.
//!
//! Sums, products and means of floats are accumulated in double precision and rounded once. A quantised mean
//! is the nearest step to the real one, so that signed and unsigned tensors agree.

use bytemuck::Pod;
use half::f16;
use nnhal_hal::ops::{OpError, reduction::reduced_axes};
use nnhal_hal::{OperandType as T, OperationType};

use super::broadcast::for_each_run;
use super::element::{Float, Quant8, by_element, not_taken};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::MEAN, mean),
    (OperationType::REDUCE_ALL, |context| {
        let combine = |all, value| u8::from(all != 0 && value != 0);
        reduce::<u8, u8>(context, 1, combine, |all| all)
    }),
    (OperationType::REDUCE_ANY, |context| {
        let combine = |any, value| u8::from(any != 0 || value != 0);
        reduce::<u8, u8>(context, 0, combine, |any| any)
    }),
    (OperationType::REDUCE_MAX, |context| extremum(context, true)),
    (OperationType::REDUCE_MIN, |context| extremum(context, false)),
    (OperationType::REDUCE_PROD, |context| {
        float_reduction(context, 1.0, |product, value| product * value)
    }),
    (OperationType::REDUCE_SUM, |context| {
        float_reduction(context, 0.0, |sum, value| sum + value)
    }),
];

/// Reduces input 0 along the axes that input 1 names: every output element is `finish` of the accumulator
/// that began as `start` and took in its elements by `combine`.
fn reduce<E: Pod, A: Pod>(
    context: &mut KernelContext<'_>,
    start: A,
    combine: impl Fn(A, E) -> A,
    finish: impl Fn(A) -> E,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let reduced = reduced_axes(context.inputs.rules())?;
    let mut kept = input.shape;
    for (extent, _) in kept
        .dims_mut()
        .iter_mut()
        .zip(reduced)
        .filter(|(_, reduced)| *reduced)
    {
        *extent = 1;
    }
    let data = input.data::<E>()?;
    let output = context.outputs.data::<E>(0)?;
    let [accumulators] = context.scratch.carve::<A, 1>([output.len()])?;
    accumulators.fill(start);
    // The accumulators broadcast to the input: a run has one of them, or one for each element.
    for_each_run(&input.shape, &kept, &input.shape, |run| {
        let elements = &data[run.output..][..run.length];
        if run.left_moves {
            for (accumulator, element) in accumulators[run.left..].iter_mut().zip(elements) {
                *accumulator = combine(*accumulator, *element);
            }
        } else {
            let accumulator = &mut accumulators[run.left];
            *accumulator = elements.iter().fold(*accumulator, |accumulator, element| {
                combine(accumulator, *element)
            });
        }
    })?;
    for (result, accumulator) in output.iter_mut().zip(&*accumulators) {
        *result = finish(*accumulator);
    }
    Ok(())
}

/// How many input elements make one output element. An error if there are none to make one of.
fn elements_for_each_output(context: &mut KernelContext<'_>) -> Result<usize, KernelError> {
    let element_count = |bytes: usize, ty: T| bytes / ty.element_size().max(1);
    let input = context.inputs.tensor(0)?;
    let inputs = element_count(input.bytes.len(), input.ty());
    let output = context.outputs.tensor(0)?;
    let outputs = element_count(output.bytes.len(), output.ty());
    if outputs == 0 {
        return Ok(0);
    }
    if inputs == 0 {
        return Err(OpError::input(
            0,
            format!(
                "with dimensions {:?} has no element along the reduced axes",
                input.shape
            ),
        )
        .into());
    }
    Ok(inputs / outputs)
}

fn mean(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => float_mean(context),
        [u8, i8] => quantized_mean(context),
    })
}

fn float_mean<E: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let count = elements_for_each_output(context)? as f64;
    reduce::<E, f64>(
        context,
        0.0,
        |sum, value| sum + f64::from(value.to_f32()),
        |sum| E::from_f32((sum / count) as f32),
    )
}

fn quantized_mean<E: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let count = elements_for_each_output(context)? as i64;
    let zero_point = i64::from(context.inputs.tensor(0)?.zero_point());
    reduce::<E, i64>(
        context,
        0,
        |sum, value| sum + i64::from(value.to_i32()),
        |sum| {
            let sum = sum - zero_point * count;
            // To nearest, ties away from the zero point.
            let half = if sum < 0 { -(count / 2) } else { count / 2 };
            E::saturate(((sum + half) / count + zero_point) as i32)
        },
    )
}

fn extremum(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    elements_for_each_output(context)?;
    by_element!(context, {
        [f32, f16] => float_extremum(context, largest),
        [u8, i8] => quantized_extremum(context, largest),
    })
}

fn float_extremum<E: Float>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    if largest {
        reduce::<E, f32>(
            context,
            f32::NEG_INFINITY,
            |most, value| most.max(value.to_f32()),
            E::from_f32,
        )
    } else {
        reduce::<E, f32>(
            context,
            f32::INFINITY,
            |least, value| least.min(value.to_f32()),
            E::from_f32,
        )
    }
}

fn quantized_extremum<E: Quant8>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    if largest {
        reduce::<E, E>(context, E::saturate(E::LEAST), E::max, |most| most)
    } else {
        reduce::<E, E>(context, E::saturate(E::MOST), E::min, |least| least)
    }
}

fn float_reduction(
    context: &mut KernelContext<'_>,
    start: f64,
    combine: impl Fn(f64, f64) -> f64,
) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        T::TENSOR_FLOAT32 => reduce::<f32, f64>(
            context,
            start,
            |accumulator, value| combine(accumulator, f64::from(value)),
            |accumulator| accumulator as f32,
        ),
        T::TENSOR_FLOAT16 => reduce::<f16, f64>(
            context,
            start,
            |accumulator, value| combine(accumulator, value.to_f64()),
            f16::from_f64,
        ),
        ty => Err(not_taken(0, ty)),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn sum_over(axes: &[i32], keep: bool) -> Result<(Vec<u32>, Vec<f32>), String> {
        let data: Vec<f32> = (0..12_u8).map(f32::from).collect();
        OneOperation::new(OperationType::REDUCE_SUM)
            .tensor(T::TENSOR_FLOAT32, &[2, 3, 2], &data)
            .tensor(T::TENSOR_INT32, &[axes.len() as u32], axes)
            .tensor(T::BOOL, &[], &[u8::from(keep)])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn axes_that_repeat_count_once() {
        let expected = (vec![2, 2], vec![6.0, 9.0, 24.0, 27.0]);
        assert_eq!(sum_over(&[1], false).unwrap(), expected);
        assert_eq!(sum_over(&[1, -2, 1], false).unwrap(), expected);
        assert_eq!(sum_over(&[1], true).unwrap().0, [2, 1, 2]);
    }

    #[test]
    fn all_axes_leave_one_dimension_of_one() {
        assert_eq!(sum_over(&[0, 1, 2], false).unwrap(), (vec![1], vec![66.0]));
        assert_eq!(
            sum_over(&[0, 2], false).unwrap(),
            (vec![3], vec![14.0, 22.0, 30.0])
        );
    }

    #[test]
    fn axis_outside_the_rank_gives_an_error() {
        for axis in [3, -4, i32::MAX, i32::MIN] {
            let error = sum_over(&[0, axis], false).unwrap_err();
            assert!(error.contains("input 1") && error.contains("axis"), "{error}");
        }
    }

    fn mean_of<E: bytemuck::Pod>(ty: T, zero_point: i32, data: &[E]) -> E {
        let operand = |dims: &[u32]| Operand::new(ty, dims).with_quantization(1.0, zero_point);
        let (_, result) = OneOperation::new(OperationType::MEAN)
            .operand(operand(&[data.len() as u32]), data)
            .tensor(T::TENSOR_INT32, &[1], &[0])
            .i32(0)
            .output_operand(operand(&[]))
            .run_one::<E>()
            .unwrap();
        result[0]
    }

    #[test]
    fn signed_and_unsigned_means_are_128_apart() {
        for pair in [[0_u8, 1], [127, 128], [128, 129], [254, 255], [3, 6]] {
            let signed = pair.map(|value| (i32::from(value) - 128) as i8);
            assert_eq!(
                i32::from(mean_of(T::TENSOR_QUANT8_ASYMM, 128, &pair)) - 128,
                i32::from(mean_of(T::TENSOR_QUANT8_ASYMM_SIGNED, 0, &signed))
            );
        }
    }
}
