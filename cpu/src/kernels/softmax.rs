//! SOFTMAX and LOG_SOFTMAX.
//!
//! Quantised SOFTMAX follows the HAL reference: differences to the largest input in fixed point with five
//! integer bits, their exponentials summed with twelve, one reciprocal for each lane. That of 16-bit steps is
//! the extension's, and so is that of signed bytes to unsigned 16-bit steps.

use half::f16;
use nnhal_hal::ops::shapes;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::broadcast::Lanes;
use super::element::{Float, Quant8, by_element};
use super::fixed_point::{Multiplier, saturating_rounding_doubling_high_multiply};
use super::fixed_point_functions::{exp_of_negative, reciprocal_of_one_plus};
use super::interpolated;
use crate::kernel::{Inputs, Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::SOFTMAX, softmax),
    (OperationType::LOG_SOFTMAX, log_softmax),
    (tflite::SOFTMAX, wider_softmax),
];

/// The lanes along the axis that input 2 names, the last if it is left out.
fn lanes(inputs: &Inputs<'_>) -> Result<Lanes, KernelError> {
    let shape = inputs.tensor(0)?.shape;
    let axis = shapes::resolve_axis(2, inputs.i32_or(2, -1)?, shape.rank())?;
    Ok(Lanes::along(&shape, axis))
}

fn softmax(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => softmax_float(context),
        [u8, i8] => softmax_of_its_type(context),
    })
}

/// The extension's: 16-bit steps, or signed bytes to 16-bit steps without a sign.
fn wider_softmax(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
            softmax_quantized::<i8, u16>(context, 16, |steps| steps.clamp(0, i32::from(u16::MAX)) as u16)
        }
        _ => {
            let lanes = lanes(&context.inputs)?;
            interpolated::softmax(context, &lanes)
        }
    }
}

/// Bytes to bytes.
fn softmax_of_its_type<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    softmax_quantized::<T, T>(context, 8, |steps| T::saturate(steps.saturating_add(T::LEAST)))
}

fn log_softmax(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => log_softmax_float(context) })
}

fn largest<'a, T: Float>(lane: impl Iterator<Item = &'a T>) -> f32 {
    lane.fold(f32::NEG_INFINITY, |largest, value| largest.max(value.to_f32()))
}

fn softmax_float<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs)?;
    let beta = context.inputs.f32(1)?;
    let input = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let [exponentials] = context.scratch.carve::<f32, 1>([lanes.extent])?;
    for start in lanes.starts() {
        let largest = largest(lanes.lane(input, start));
        let mut sum = 0.0;
        for (exponential, value) in exponentials.iter_mut().zip(lanes.lane(input, start)) {
            *exponential = ((value.to_f32() - largest) * beta).exp();
            sum += *exponential;
        }
        for (result, exponential) in lanes.lane_mut(output, start).zip(&*exponentials) {
            *result = T::from_f32(exponential / sum);
        }
    }
    Ok(())
}

fn log_softmax_float<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs)?;
    let beta = context.inputs.f32(1)?;
    let input = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    for start in lanes.starts() {
        let largest = largest(lanes.lane(input, start));
        let scaled = |value: &T| (value.to_f32() - largest) * beta;
        let sum: f32 = lanes.lane(input, start).map(|value| scaled(value).exp()).sum();
        let log_of_sum = sum.ln();
        for (result, value) in lanes.lane_mut(output, start).zip(lanes.lane(input, start)) {
            *result = T::from_f32(scaled(value) - log_of_sum);
        }
    }
    Ok(())
}

/// Bits before the point of scaled differences.
const DIFFERENCE_BITS: u32 = 5;

/// Bits before the point of sums of exponentials.
const SUM_BITS: u32 = 12;

/// The exponentials of a lane's differences to its largest value.
pub(crate) struct Exponentials {
    multiplier: Multiplier,
    /// Differences below this count as minus infinity.
    least: i32,
}

impl Exponentials {
    /// Those of values with this scale, times `beta`.
    pub(crate) fn new(beta: f32, scale: f32) -> Exponentials {
        let unit = f64::from(1 << (31 - DIFFERENCE_BITS));
        let real = (f64::from(beta) * f64::from(scale) * unit).min(f64::from(i32::MAX));
        let multiplier = Multiplier::new(real);
        Exponentials {
            multiplier,
            least: -multiplier.input_radius(DIFFERENCE_BITS),
        }
    }

    /// `e^(beta * scale * difference)` with no integer bits, or `None` where it is as good as 0.
    pub(crate) fn of(&self, difference: i32) -> Option<i32> {
        (difference >= self.least)
            .then(|| exp_of_negative(self.multiplier.apply(difference).min(0), DIFFERENCE_BITS))
    }
}

/// Shares in steps of which so many bits make one, as `narrow` stores them.
fn softmax_quantized<T: Quant8, O: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    bits: u32,
    narrow: fn(i32) -> O,
) -> Result<(), KernelError> {
    let lanes = lanes(&context.inputs)?;
    let beta = context.inputs.f32(1)?;
    let input = context.inputs.tensor(0)?;
    let exponentials = Exponentials::new(beta, input.scale());
    let input = input.data::<T>()?;
    let output = context.outputs.data::<O>(0)?;
    // At most 256 different differences occur. Of few values, each is computed when it occurs.
    let mut table = [None; 256];
    let is_tabulated = input.len() > 128;
    if is_tabulated {
        for (entry, difference) in table.iter_mut().zip(0..) {
            *entry = exponentials.of(-difference);
        }
    }
    for start in lanes.starts() {
        let largest = lanes
            .lane(input, start)
            .map(|value| value.to_i32())
            .max()
            .unwrap_or(0);
        let exponential = |value: &T| {
            let difference = largest - value.to_i32();
            if is_tabulated {
                table[difference as usize & 255]
            } else {
                exponentials.of(-difference)
            }
        };
        let sum: u64 = lanes
            .lane(input, start)
            .filter_map(exponential)
            .map(summand)
            .sum();
        let share = Share::of(sum);
        for (result, value) in lanes.lane_mut(output, start).zip(lanes.lane(input, start)) {
            let steps = exponential(value).map_or(0, |exponential| share.steps(exponential, bits));
            *result = narrow(steps);
        }
    }
    Ok(())
}

/// An exponential as it is summed.
pub(crate) fn summand(exponential: i32) -> u64 {
    rounding_shift_right(i64::from(exponential), SUM_BITS) as u64
}

/// One over the sum of a lane's exponentials.
pub(crate) struct Share {
    /// With no integer bits, from 1/2 to 1.
    pub(crate) reciprocal: i32,
    /// What it must be divided by, as a power of two.
    pub(crate) exponent: u32,
}

impl Share {
    /// `sum` has [`SUM_BITS`] bits before the point, and more if the lane is long; it is at least 1.
    pub(crate) fn of(sum: u64) -> Share {
        let sum = sum.max(1 << (31 - SUM_BITS));
        let leading = sum.leading_zeros();
        // The sum between 1 and 2, without the 1 and clamped to 31 bits after the point.
        let fraction = ((sum << leading << 1) >> 33) as i32;
        Share {
            reciprocal: reciprocal_of_one_plus(fraction),
            exponent: 63 - leading - (31 - SUM_BITS),
        }
    }

    /// The share of an exponential in steps of so many bits.
    fn steps(&self, exponential: i32, bits: u32) -> i32 {
        let product = saturating_rounding_doubling_high_multiply(self.reciprocal, exponential);
        rounding_shift_right(i64::from(product), self.exponent + 31 - bits) as i32
    }
}

/// `value / 2^exponent` to nearest, ties away from zero, for values that are not negative.
fn rounding_shift_right(value: i64, exponent: u32) -> i64 {
    (value + (1 << (exponent - 1))) >> exponent
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn quantized(dims: &[u32], scale: f32) -> Operand {
        Operand::new(OperandType::TENSOR_QUANT8_ASYMM, dims).with_quantization(scale, 0)
    }

    fn softmax_of(data: &[u8], scale: f32, beta: f32) -> Result<Vec<u8>, String> {
        let (_, result) = OneOperation::new(OperationType::SOFTMAX)
            .operand(quantized(&[1, data.len() as u32], scale), data)
            .f32(beta)
            .output_operand(quantized(&[], 1.0 / 256.0))
            .run_one::<u8>()?;
        Ok(result)
    }

    #[test]
    fn quantised_shares_are_close_to_the_real_ones() {
        let data = [0, 10, 20, 30, 40, 50, 60, 70];
        let real: Vec<f64> = data
            .iter()
            .map(|value| (f64::from(*value) * 0.05).exp())
            .collect();
        let sum: f64 = real.iter().sum();
        for (found, real) in softmax_of(&data, 0.1, 0.5).unwrap().iter().zip(real) {
            assert!((f64::from(*found) - real / sum * 256.0).abs() <= 1.0);
        }
    }

    #[test]
    fn signed_bytes_have_unsigned_shares_of_16_bits() {
        let shares = |data: &[i8], scale: f32| {
            let bytes = Operand::new(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, &[1, data.len() as u32]);
            OneOperation::new(tflite::SOFTMAX)
                .operand(bytes.with_quantization(0.1, 3), data)
                .f32(1.0)
                .output_operand(
                    Operand::new(OperandType::TENSOR_QUANT16_ASYMM, &[]).with_quantization(scale, 0),
                )
                .run_one::<u16>()
        };
        let (_, halves) = shares(&[-128, -128], 1.0 / 65_536.0).unwrap();
        assert_eq!(halves, [32_768; 2]);
        let (_, all) = shares(&[-128, 127], 1.0 / 65_536.0).unwrap();
        assert_eq!(all, [0, 65_535]);
        let (_, of_tenths) = shares(&[0, 10, 20], 1.0 / 65_536.0).unwrap();
        for (found, real) in of_tenths.iter().zip([0.090_03, 0.244_73, 0.665_24]) {
            assert!(
                (f64::from(*found) / 65_536.0 - real).abs() < 1e-4,
                "{of_tenths:?}"
            );
        }
        assert!(shares(&[0, 1], 1.0 / 256.0).is_err());
    }

    #[test]
    fn one_large_value_takes_everything() {
        assert_eq!(softmax_of(&[0, 255], 1e10, 1e10).unwrap(), [0, 255]);
    }

    #[test]
    fn lanes_longer_than_the_sum_has_bits_for_do_not_overflow() {
        let data = vec![7; 100_000];
        assert!(
            softmax_of(&data, 1.0, 1.0)
                .unwrap()
                .iter()
                .all(|share| *share == 0)
        );
        assert_eq!(softmax_of(&data[..256], 1.0, 1.0).unwrap(), vec![1; 256]);
    }

    #[test]
    fn beta_that_is_not_above_0_gives_an_error() {
        for beta in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(softmax_of(&[1, 2], 1.0, beta).unwrap_err().contains("beta"));
        }
    }

    #[test]
    fn axis_outside_the_rank_gives_an_error() {
        for axis in [2, -3, i32::MIN, i32::MAX] {
            let error = OneOperation::new(OperationType::SOFTMAX)
                .tensor(OperandType::TENSOR_FLOAT32, &[1, 2], &[1.0_f32, 2.0])
                .f32(1.0)
                .i32(axis)
                .output(OperandType::TENSOR_FLOAT32, &[])
                .run()
                .unwrap_err();
            assert!(error.contains("axis"), "{error}");
        }
    }

    #[test]
    fn log_softmax_is_stable_for_large_inputs() {
        let (_, data) = OneOperation::new(OperationType::LOG_SOFTMAX)
            .tensor(OperandType::TENSOR_FLOAT32, &[2, 1], &[1000.0_f32, 1000.0])
            .f32(1.0)
            .i32(0)
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        assert_eq!(data, [-std::f32::consts::LN_2; 2]);
    }
}
