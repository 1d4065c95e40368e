//! Functions of 16-bit steps as TFLite's kernels approximate them: by lines between the values of a table.
//! Results of TANH and SOFTMAX are steps of 1/32768.

use once_cell::race::OnceBox;

use super::broadcast::{Lanes, unary};
use super::fixed_point::Multiplier;
use crate::kernel::{KernelContext, KernelError};

/// The logistic function of every 1/24 from 0 on, in steps of 1/65536. Tables are made without a lock, which
/// a child of `fork()` could find held for ever.
fn logistic() -> &'static [u16; 257] {
    static TABLE: OnceBox<[u16; 257]> = OnceBox::new();
    // The conversion saturates.
    let value = |line| (65_536.0 / (1.0 + (-(line as f64) / 24.0).exp())).round() as u16;
    TABLE.get_or_init(|| Box::new(std::array::from_fn(value)))
}

/// TANH: twice the logistic function of twice the input, less 1.
pub(super) fn tanh(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let places = Places::new(context.inputs.tensor(0)?.scale());
    let table = logistic();
    unary::<i16, i16>(context, |value| tanh_at(table, places.of(value)))
}

/// The result for a place of which 256 lie between two values of the table.
fn tanh_at(table: &[u16; 257], place: i64) -> i16 {
    let distance = place.unsigned_abs();
    let line = distance / 256;
    // In steps of 1/2^23, with 1 more than the result.
    let logistic = if line >= 255 {
        0xFFFF << 8
    } else {
        let (low, high) = (
            i32::from(table[line as usize]),
            i32::from(table[line as usize + 1]),
        );
        (low << 8) + (distance % 256) as i32 * (high - low)
    };
    let result = logistic - (1 << 23);
    let rounded = if place < 0 { 127 - result } else { 128 + result };
    (rounded >> 8) as i16
}

/// What brings an input to its place, 12288 of which are one unit: a multiplier of 15 bits and a shift.
struct Places {
    multiplier: i64,
    shift: u32,
}

impl Places {
    fn new(scale: f32) -> Places {
        let mut multiplier = f64::from(scale) * 12_288.0;
        let mut shift = 0;
        while multiplier <= f64::from(i16::MAX) / 2.0 && shift <= 30 {
            multiplier *= 2.0;
            shift += 1;
        }
        Places {
            // 32 bits at most, so that the product with an input has room.
            multiplier: i64::from(multiplier as i32),
            shift,
        }
    }

    fn of(&self, value: i16) -> i64 {
        (i64::from(value) * self.multiplier + (1 << self.shift >> 1)) >> self.shift
    }
}

/// A function as 512 lines.
struct Lines([i16; 513]);

impl Lines {
    /// `value` gives the function where a line begins, by the line's number, or between. Each value is moved
    /// by half of how far the line is off in its middle.
    fn new(value: impl Fn(f64) -> f64) -> Lines {
        // Far beyond 16 bits, but finite.
        let at = |line: f64| value(line).clamp(-1e12, 1e12);
        Lines(std::array::from_fn(|line| {
            let line = line as f64;
            let value = at(line).round();
            // The conversions saturate.
            if line == 512.0 {
                return value as i16;
            }
            let middle = ((value + at(line + 1.0)) / 2.0).round();
            (value - ((middle - at(line + 0.5).round()) / 2.0).round()) as i16
        }))
    }

    /// The value at a place from -32768 to 32767, which are the ends of the range.
    fn at(&self, place: i64) -> i32 {
        let place = place.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) + (1 << 15);
        let line = (place / 128) as usize;
        let (low, high) = (i32::from(self.0[line]), i32::from(self.0[line + 1]));
        low + (((high - low) * (place % 128) as i32 + 64) >> 7)
    }
}

/// A function of real numbers, of every element of input 0.
pub(super) fn unary_by_lines(
    context: &mut KernelContext<'_>,
    function: impl Fn(f64) -> f64,
) -> Result<(), KernelError> {
    let scale = f64::from(context.inputs.tensor(0)?.scale());
    let output_scale = f64::from(context.outputs.tensor(0)?.scale());
    let lines = Lines::new(|line| function((line * (65_535.0 / 512.0) - 32_768.0) * scale) / output_scale);
    unary::<i16, i16>(context, |value| lines.at(i64::from(value)) as i16)
}

/// From -10 to 0.
fn exponentials() -> &'static Lines {
    static TABLE: OnceBox<Lines> = OnceBox::new();
    TABLE.get_or_init(|| Box::new(Lines::new(|line| (line * (10.0 / 512.0) - 10.0).exp() * 32_768.0)))
}

/// Of numbers from 1 to 2.
fn reciprocals() -> &'static Lines {
    static TABLE: OnceBox<Lines> = OnceBox::new();
    TABLE.get_or_init(|| Box::new(Lines::new(|line| 32_768.0 / (1.0 + line / 512.0))))
}

/// SOFTMAX of these lanes, with the factor of input 1.
pub(super) fn softmax(context: &mut KernelContext<'_>, lanes: &Lanes) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    // Steps of the input as such of the table, whose range of 10 has 65535.
    let factor = f64::from(input.scale() * context.inputs.f32(1)?) / (10.0 / 65_535.0);
    let multiplier = Multiplier::new(factor);
    let values = input.data::<i16>()?;
    let output = context.outputs.data::<i16>(0)?;
    let (exponentials, reciprocals) = (exponentials(), reciprocals());
    for start in lanes.starts() {
        let most = lanes.lane(values, start).copied().max().unwrap_or_default();
        let mut sum = 0_u64;
        for (result, value) in lanes.lane_mut(output, start).zip(lanes.lane(values, start)) {
            let difference = multiplier.apply(i32::from(*value) - i32::from(most));
            let exponential = exponentials.at(i64::from(difference) + i64::from(i16::MAX));
            *result = exponential as i16;
            sum += exponential.max(0) as u64;
        }
        // Between 1 and 2 once its highest bit is the one before the point.
        let exponent = sum.max(2).ilog2();
        let fraction = if exponent <= 30 {
            ((sum << (30 - exponent)) + (1 << 13)) >> 14
        } else {
            sum >> (exponent - 16)
        };
        let reciprocal = i64::from(reciprocals.at(fraction as i64 - (1 << 16) - (1 << 15)));
        for result in lanes.lane_mut(output, start) {
            let share = (i64::from(*result) * reciprocal + (1 << (exponent - 1))) >> exponent;
            *result = share.clamp(0, i64::from(i16::MAX)) as i16;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    const STEP: f32 = 1.0 / 32_768.0;

    fn steps(dims: &[u32], scale: f32) -> Operand {
        Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(scale, 0)
    }

    fn is_near(found: &[i16], expected: &[i16]) {
        assert_eq!(found.len(), expected.len());
        for (one, other) in found.iter().zip(expected) {
            assert!((i32::from(*one) - i32::from(*other)).abs() <= 1, "{found:?}");
        }
    }

    fn tanh(scale: f32) -> Vec<i16> {
        OneOperation::new(tflite::TANH)
            .operand(
                steps(&[10], scale),
                &[-32_768_i16, -4857, -735, -1, 0, 1, 735, 4857, 21_399, 32_767],
            )
            .output_operand(steps(&[10], STEP))
            .run_one::<i16>()
            .unwrap()
            .1
    }

    #[test]
    fn hyperbolic_tangents_are_those_of_tflite() {
        let fine = [-32_679, -14_859, -2422, -3, 0, 3, 2422, 14_859, 31_899, 32_679];
        is_near(&tanh(3.3 / 32_768.0), &fine);
        let coarse = [
            -32_767, -32_594, -13_786, -19, 0, 21, 13_788, 32_594, 32_767, 32_767,
        ];
        is_near(&tanh(20.0 / 32_768.0), &coarse);
        let ends = tanh(1e30);
        assert_eq!((ends[3], ends[4], ends[5]), (-32_767, 0, 32_767));
        assert_eq!(tanh(1e-30), [0; 10]);
    }

    fn softmax(values: &[i16], scale: f32, beta: f32) -> Result<Vec<i16>, String> {
        let dims = [1, values.len() as u32];
        let (_, data) = OneOperation::new(tflite::SOFTMAX)
            .operand(steps(&dims, scale), values)
            .f32(beta)
            .output_operand(steps(&dims, STEP))
            .run_one::<i16>()?;
        Ok(data)
    }

    #[test]
    fn shares_are_those_of_tflite() {
        let of = |values: &[i16]| softmax(values, 20.0 / 32_768.0, 1.0).unwrap();
        is_near(&of(&[-32_768, -4857, -735, 1]), &[1, 1000, 12_374, 19_391]);
        is_near(&of(&[0, 735, 21_399, 32_767]), &[2, 2, 32, 32_731]);
        is_near(&of(&[100; 4]), &[8192; 4]);
        let of_twice = softmax(&[-32_768, -4857, -735, 1], 0.0001, 2.0).unwrap();
        is_near(&of_twice, &[21, 5530, 12_609, 14_609]);
    }

    #[test]
    fn long_lanes_and_large_scales_do_not_overflow() {
        is_near(&softmax(&vec![7; 70_000], 1.0, 1.0).unwrap(), &vec![0; 70_000]);
        assert_eq!(softmax(&[0, 1], 1e20, 1e10).unwrap(), [2, 32_766]);
        is_near(&softmax(&[5], 1.0, 1.0).unwrap(), &[32_767]);
    }

    #[test]
    fn results_in_other_steps_are_refused() {
        for operation in [tflite::TANH, tflite::LOGISTIC] {
            let error = OneOperation::new(operation)
                .operand(steps(&[1], 1.0), &[1_i16])
                .output_operand(steps(&[1], 0.5))
                .run()
                .unwrap_err();
            assert!(error.contains("has scale 0.5"), "{error}");
        }
        let error = OneOperation::new(tflite::SOFTMAX)
            .operand(steps(&[1, 1], 1.0), &[1_i16])
            .f32(1.0)
            .output_operand(steps(&[1, 1], 0.5))
            .run()
            .unwrap_err();
        assert!(error.contains("has scale 0.5"), "{error}");
        assert!(softmax(&[1], 1.0, 0.0).unwrap_err().contains("(beta) is 0"));
    }
}
