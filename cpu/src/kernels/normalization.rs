//! Normalisation: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION.
//!
//! Sums are taken in double precision. Quantised L2_NORMALIZATION follows the HAL reference: one over the
//! root of the sum of squares in fixed point, then each value times that.

use half::f16;
use nnhal_hal::OperationType;
use nnhal_hal::ops::padding::Extents;
use nnhal_hal::ops::{OpError, shapes};

use super::broadcast::Lanes;
use super::element::{Float, Quant8, by_element};
use super::fixed_point::Multiplier;
use crate::kernel::{Inputs, Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::L2_NORMALIZATION, l2),
    (OperationType::LOCAL_RESPONSE_NORMALIZATION, local_response),
    (OperationType::INSTANCE_NORMALIZATION, instance),
];

/// The axis that input `index` names, the last if it is left out.
fn axis(inputs: &Inputs<'_>, index: usize) -> Result<usize, KernelError> {
    let rank = inputs.tensor(0)?.shape.rank();
    Ok(shapes::resolve_axis(index, inputs.i32_or(index, -1)?, rank)?)
}

/// The lanes along that axis.
fn lanes(inputs: &Inputs<'_>, index: usize) -> Result<Lanes, KernelError> {
    Ok(Lanes::along(&inputs.tensor(0)?.shape, axis(inputs, index)?))
}

fn l2(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => l2_float(context),
        [u8, i8] => l2_quantized(context),
    })
}

/// The smallest norm that vectors are divided by: what is all zero stays so.
const LEAST_NORM: f64 = 1e-6;

fn l2_float<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs, 1)?;
    let input = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    for start in lanes.starts() {
        let squares: f64 = lanes
            .lane(input, start)
            .map(|value| f64::from(value.to_f32()).powi(2))
            .sum();
        let norm = squares.sqrt().max(LEAST_NORM);
        for (result, value) in lanes.lane_mut(output, start).zip(lanes.lane(input, start)) {
            *result = T::from_f32((f64::from(value.to_f32()) / norm) as f32);
        }
    }
    Ok(())
}

/// Results have 7 fractional bits.
const RESULT_BITS: i32 = 7;

fn l2_quantized<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs, 1)?;
    let input = context.inputs.tensor(0)?;
    let is_last_axis = axis(&context.inputs, 1)? + 1 == input.shape.rank();
    // Signed values are shifted while they are scaled along the last axis, for which the HAL reference calls
    // TFLite's kernel. All others are shifted before, which rounds otherwise.
    let (shift_before, shift_within) = if T::LEAST < 0 && is_last_axis {
        (0, RESULT_BITS)
    } else {
        (RESULT_BITS, 0)
    };
    let zero_point = input.zero_point();
    let input = input.data::<T>()?;
    let output = context.outputs.tensor(0)?;
    let output_zero = output.zero_point();
    let output = output.into_data::<T>()?;
    for start in lanes.starts() {
        let squares: i64 = lanes
            .lane(input, start)
            .map(|value| i64::from(value.to_i32() - zero_point).pow(2))
            .sum();
        let inverse = Multiplier::inverse_square_root(squares);
        let factor = Multiplier {
            exponent: inverse.exponent + shift_within,
            ..inverse
        };
        for (result, value) in lanes.lane_mut(output, start).zip(lanes.lane(input, start)) {
            let value = (value.to_i32() - zero_point) << shift_before;
            *result = T::saturate(factor.apply(value) + output_zero);
        }
    }
    Ok(())
}

fn local_response(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => local_response_of(context) })
}

fn local_response_of<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs, 5)?;
    let inputs = &context.inputs;
    let radius = inputs.i32(1)?;
    // A window cannot reach further than the lane is long.
    let radius = usize::try_from(radius)
        .map_err(|_| OpError::input(1, format!("(radius) is {radius}, must not be negative")))?
        .min(lanes.extent);
    let (bias, alpha, beta) = (
        f64::from(inputs.f32(2)?),
        f64::from(inputs.f32(3)?),
        f64::from(inputs.f32(4)?),
    );
    let input = inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let padded = lanes.extent + 2 * radius;
    let [from_block_start, to_block_end] = context.scratch.carve::<f64, 2>([padded, padded])?;
    for start in lanes.starts() {
        // Both begin as the squares, with zeros on either side.
        from_block_start.fill(0.0);
        for (square, value) in from_block_start[radius..]
            .iter_mut()
            .zip(lanes.lane(input, start))
        {
            *square = f64::from(value.to_f32()).powi(2);
        }
        to_block_end.copy_from_slice(from_block_start);
        sum_blocks(from_block_start, to_block_end, 2 * radius + 1);
        let elements = lanes.lane(input, start).zip(lanes.lane_mut(output, start));
        for (at, (value, result)) in elements.enumerate() {
            let squares = to_block_end[at]
                + if at % (2 * radius + 1) == 0 {
                    0.0
                } else {
                    from_block_start[at + 2 * radius]
                };
            let factor = (bias + alpha * squares).powf(-beta);
            *result = T::from_f32((f64::from(value.to_f32()) * factor) as f32);
        }
    }
    Ok(())
}

/// Turns the elements of each block of `width` into the sums from the block's start to the element, and from
/// the element to the block's end. Any window of `width` elements is then one of each, with no subtraction
/// that would let a large element leave its rounding error behind.
fn sum_blocks(from_start: &mut [f64], to_end: &mut [f64], width: usize) {
    for block in from_start.chunks_mut(width) {
        let mut sum = 0.0;
        for element in block {
            sum += *element;
            *element = sum;
        }
    }
    for block in to_end.chunks_mut(width) {
        let mut sum = 0.0;
        for element in block.iter_mut().rev() {
            sum += *element;
            *element = sum;
        }
    }
}

fn instance(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => instance_of(context) })
}

fn instance_of<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = &context.inputs;
    let (gamma, beta, epsilon) = (
        f64::from(inputs.f32(1)?),
        f64::from(inputs.f32(2)?),
        f64::from(inputs.f32(3)?),
    );
    let nchw = inputs.rules().bool(4)?;
    let extents = Extents::of(&inputs.tensor(0)?.shape, nchw);
    let input = inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    if input.is_empty() {
        return Ok(());
    }
    let plane = extents.height as usize * extents.width as usize;
    // How many channels lie side by side.
    let row = if nchw { 1 } else { extents.channels as usize };
    let [means, factors] = context.scratch.carve::<f64, 2>([row, row])?;
    let images = input
        .chunks_exact(plane * row)
        .zip(output.chunks_exact_mut(plane * row));
    for (image, results) in images {
        means.fill(0.0);
        for values in image.chunks_exact(row) {
            for (mean, value) in means.iter_mut().zip(values) {
                *mean += f64::from(value.to_f32()) / plane as f64;
            }
        }
        factors.fill(0.0);
        for values in image.chunks_exact(row) {
            for ((variance, mean), value) in factors.iter_mut().zip(&*means).zip(values) {
                *variance += (f64::from(value.to_f32()) - mean).powi(2) / plane as f64;
            }
        }
        for factor in factors.iter_mut() {
            *factor = gamma / (*factor + epsilon).sqrt();
        }
        for (values, results) in image.chunks_exact(row).zip(results.chunks_exact_mut(row)) {
            let channels = means.iter().zip(&*factors);
            for ((result, value), (mean, factor)) in results.iter_mut().zip(values).zip(channels) {
                *result = T::from_f32(((f64::from(value.to_f32()) - mean) * factor + beta) as f32);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;

    fn local_response(data: &[f32], radius: i32, bias: f32) -> Result<Vec<f32>, String> {
        let (_, result) = OneOperation::new(OperationType::LOCAL_RESPONSE_NORMALIZATION)
            .tensor(OperandType::TENSOR_FLOAT32, &[data.len() as u32], data)
            .i32(radius)
            .f32(bias)
            .f32(1.0)
            .f32(1.0)
            .i32(-1)
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run_one::<f32>()?;
        Ok(result)
    }

    #[test]
    fn windows_are_cut_at_the_ends() {
        let data = [1.0, 2.0, 3.0, 4.0];
        for radius in 0..7 {
            let found = local_response(&data, radius, 1.0).unwrap();
            for (at, found) in found.iter().enumerate() {
                let low = at.saturating_sub(radius as usize);
                let high = (at + radius as usize + 1).min(data.len());
                let squares: f32 = data[low..high].iter().map(|value| value * value).sum();
                assert!((found - data[at] / (1.0 + squares)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn elements_outside_the_window_leave_no_trace() {
        let found = local_response(&[f32::INFINITY, 1e19, f32::NAN, 1.0, 1.0, 1.0], 1, 1.0).unwrap();
        assert_eq!(found[4], 0.25);
        let found = local_response(&[1e19, 0.0, 1.0], 1, 1.0).unwrap();
        assert_eq!(found[2], 0.5);
    }

    #[test]
    fn illegal_radius_and_bias_give_an_error() {
        assert!(local_response(&[1.0], -1, 1.0).unwrap_err().contains("radius"));
        assert!(local_response(&[1.0], 1, 0.0).unwrap_err().contains("bias"));
        assert_eq!(local_response(&[1.0], i32::MAX, 1.0).unwrap(), [0.5]);
    }

    #[test]
    fn vectors_of_zeros_stay_zero() {
        let (_, data) = OneOperation::new(OperationType::L2_NORMALIZATION)
            .operand(
                Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[2, 2]).with_quantization(2.0, 3),
                &[3_u8, 3, 3, 200],
            )
            .i32(1)
            .output_operand(
                Operand::new(OperandType::TENSOR_QUANT8_ASYMM, &[]).with_quantization(1.0 / 128.0, 128),
            )
            .run_one::<u8>()
            .unwrap();
        assert_eq!(data, [128, 128, 128, 255]);
    }

    #[test]
    fn quantised_vectors_are_scaled_in_fixed_point() {
        let steps = [12, -7, 20, 3, -15, 9, 1, -4, 0, 17, -2, 5];
        let normalise = |ty, zero_point: i32, output_zero, dims: &[u32], axis| -> Vec<i32> {
            let values: Vec<u8> = steps.iter().map(|step| (step + zero_point) as u8).collect();
            let (_, results) = OneOperation::new(OperationType::L2_NORMALIZATION)
                .operand(Operand::new(ty, dims).with_quantization(0.1, zero_point), &values)
                .i32(axis)
                .output_operand(Operand::new(ty, &[]).with_quantization(1.0 / 128.0, output_zero))
                .run_one::<u8>()
                .unwrap();
            let is_signed = ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
            let widen = |result: u8| {
                if is_signed {
                    i32::from(result as i8)
                } else {
                    i32::from(result)
                }
            };
            results
                .into_iter()
                .map(|result| widen(result) - output_zero)
                .collect()
        };
        let (unsigned, signed) = (
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        );
        // What TFLite's kernels give. The nearest steps would be -25 and -54.
        let shifted_before = [44, -26, 73, 11, -55, 33, 4, -15, 0, 62, -7, 18];
        let shifted_within = [44, -25, 73, 11, -54, 33, 4, -15, 0, 62, -7, 18];
        for (dims, axis) in [(&[1, 12], -1), (&[12, 1], 0)] {
            assert_eq!(normalise(unsigned, 131, 128, dims, axis), shifted_before);
        }
        assert_eq!(normalise(signed, 3, 0, &[1, 12], 1), shifted_within);
        assert_eq!(normalise(signed, 3, 0, &[12, 1], 0), shifted_before);
    }

    #[test]
    fn instances_are_normalised_alike_in_both_layouts() {
        let normalise = |dims: &[u32], data: &[f32], nchw: u8| {
            OneOperation::new(OperationType::INSTANCE_NORMALIZATION)
                .tensor(OperandType::TENSOR_FLOAT32, dims, data)
                .f32(1.0)
                .f32(0.0)
                .f32(0.0)
                .tensor(OperandType::BOOL, &[], &[nchw])
                .output(OperandType::TENSOR_FLOAT32, &[])
                .run_one::<f32>()
                .unwrap()
                .1
        };
        assert_eq!(
            normalise(&[1, 1, 2, 2], &[1.0, 10.0, 3.0, 30.0], 0),
            [-1.0, -1.0, 1.0, 1.0]
        );
        assert_eq!(
            normalise(&[1, 2, 1, 2], &[1.0, 3.0, 10.0, 30.0], 1),
            [-1.0, 1.0, -1.0, 1.0]
        );
    }
}
