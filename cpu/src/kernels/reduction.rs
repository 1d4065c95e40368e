//! Reductions over axes: MEAN and the REDUCE_* operations.
//!
//! Sums, products and means of floats are accumulated in double precision and rounded once. A quantised mean
//! is the nearest step to the real one, so that signed and unsigned tensors agree. Integers wrap; their mean
//! is cut off towards 0, as in TFLite's kernel.

use std::ops::{Add, BitAnd, BitOr, Mul};

use bytemuck::Pod;
use half::f16;
use nnhal_hal::ops::{OpError, reduction::reduced_axes};
use nnhal_hal::{OperandType as T, OperationType, tflite};

use super::broadcast::for_each_run;
use super::element::{Float, Integer, Quantized, by_element, not_taken};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::MEAN, mean),
    (OperationType::REDUCE_ALL, all),
    (OperationType::REDUCE_ANY, any),
    (OperationType::REDUCE_MAX, maximum),
    (OperationType::REDUCE_MIN, minimum),
    (OperationType::REDUCE_PROD, product),
    (OperationType::REDUCE_SUM, sum),
    (tflite::MEAN, mean),
    (tflite::REDUCE_ALL, all),
    (tflite::REDUCE_ANY, any),
    (tflite::REDUCE_MAX, maximum),
    (tflite::REDUCE_MIN, minimum),
    (tflite::REDUCE_PROD, product),
    (tflite::REDUCE_SUM, sum),
];

/// How many elements of a run are combined side by side. The mean of each row of 192 takes 1/4 of the time
/// by it.
const LANES: usize = 8;

fn all(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    reduce::<u8, u8>(context, 1, is_true, u8::bitand, identity)
}

fn any(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    reduce::<u8, u8>(context, 0, is_true, u8::bitor, identity)
}

fn is_true(value: u8) -> u8 {
    u8::from(value != 0)
}

fn identity<T>(value: T) -> T {
    value
}

fn maximum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    extremum(context, true)
}

fn minimum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    extremum(context, false)
}

fn product(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        T::TENSOR_INT32 => reduce::<i32, i32>(context, 1, identity, i32::wrapping_mul, identity),
        tflite::TENSOR_INT64 => reduce::<i64, i64>(context, 1, identity, i64::wrapping_mul, identity),
        _ => float_reduction(context, 1.0, f64::mul),
    }
}

fn sum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        T::TENSOR_INT32 => reduce::<i32, i32>(context, 0, identity, i32::wrapping_add, identity),
        tflite::TENSOR_INT64 => reduce::<i64, i64>(context, 0, identity, i64::wrapping_add, identity),
        _ => float_reduction(context, 0.0, f64::add),
    }
}

/// Reduces input 0 along the axes that input 1 names: every output element is `finish` of what `combine`
/// makes, in any order, of `start` and what `take` makes of its elements. `start` changes nothing.
fn reduce<E: Pod, A: Pod>(
    context: &mut KernelContext<'_>,
    start: A,
    take: impl Fn(E) -> A,
    combine: impl Fn(A, A) -> A,
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
                *accumulator = combine(*accumulator, take(*element));
            }
        } else {
            let accumulator = &mut accumulators[run.left];
            // Side by side: one after the other, each waits for the one before it.
            let mut lanes = [start; LANES];
            let (whole, rest) = elements.as_chunks::<LANES>();
            for elements in whole {
                for (lane, element) in lanes.iter_mut().zip(elements) {
                    *lane = combine(*lane, take(*element));
                }
            }
            let rest = rest.iter().map(|element| take(*element));
            *accumulator = lanes.into_iter().chain(rest).fold(*accumulator, &combine);
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
        [i32, i64] => integer_mean(context),
        [u8, i8, i16] => quantized_mean(context),
    })
}

/// Sums of 64-bit integers wrap; those of fewer bits have room.
fn integer_mean<E: Integer>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let count = elements_for_each_output(context)?.max(1) as i64;
    reduce::<E, i64>(
        context,
        0,
        |value| value.into(),
        i64::wrapping_add,
        // A mean of integers has room in their type.
        |sum| E::wrap(sum / count),
    )
}

fn float_mean<E: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let count = elements_for_each_output(context)? as f64;
    reduce::<E, f64>(
        context,
        0.0,
        |value| f64::from(value.to_f32()),
        f64::add,
        |sum| E::from_f32((sum / count) as f32),
    )
}

fn quantized_mean<E: Quantized>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let count = elements_for_each_output(context)? as i64;
    let (input, output) = (context.inputs.tensor(0)?, context.outputs.tensor(0)?);
    let zero_point = i64::from(input.zero_point());
    let output_zero = output.zero_point();
    let is_rescaled = input.scale() != output.scale();
    let factor = f64::from(input.scale()) / (f64::from(output.scale()) * count as f64);
    reduce::<E, i64>(
        context,
        0,
        |value| i64::from(value.to_i32()),
        i64::add,
        |sum| {
            let sum = sum - zero_point * count;
            // To nearest, ties away from the zero point.
            let mean = if is_rescaled {
                (sum as f64 * factor).round() as i32
            } else {
                let half = if sum < 0 { -(count / 2) } else { count / 2 };
                ((sum + half) / count) as i32
            };
            E::saturate(mean.saturating_add(output_zero))
        },
    )
}

fn extremum(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    elements_for_each_output(context)?;
    by_element!(context, {
        [f32, f16] => float_extremum(context, largest),
        [i32, i64, u8, i8, i16] => integer_extremum(context, largest),
    })
}

fn float_extremum<E: Float>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    if largest {
        reduce::<E, f32>(context, f32::NEG_INFINITY, E::to_f32, f32::max, E::from_f32)
    } else {
        reduce::<E, f32>(context, f32::INFINITY, E::to_f32, f32::min, E::from_f32)
    }
}

fn integer_extremum<E: Integer>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    if largest {
        reduce::<E, E>(context, E::saturate(i64::MIN), identity, E::max, identity)
    } else {
        reduce::<E, E>(context, E::saturate(i64::MAX), identity, E::min, identity)
    }
}

fn float_reduction(
    context: &mut KernelContext<'_>,
    start: f64,
    combine: impl Fn(f64, f64) -> f64,
) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        T::TENSOR_FLOAT32 => reduce::<f32, f64>(context, start, f64::from, combine, |accumulator| {
            accumulator as f32
        }),
        T::TENSOR_FLOAT16 => reduce::<f16, f64>(context, start, f16::to_f64, combine, f16::from_f64),
        ty => Err(not_taken(0, ty)),
    }
}

#[cfg(test)]
#[path = "reduction_tests.rs"]
mod tests;
