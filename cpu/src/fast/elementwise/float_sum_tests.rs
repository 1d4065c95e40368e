use super::{BYTES, FloatSum, neighbours};
use crate::fast::requantize::QuantizedOutput;
use crate::fast::simd::rescales_by_floats;
use crate::kernels::fixed_point::Multiplier;

/// How two inputs and an output are quantised: scales and zero points, and whether the right input is
/// subtracted.
#[derive(Clone, Copy, Debug)]
struct Case {
    scales: [f32; 3],
    zero_points: [i32; 3],
    range: [i32; 2],
    is_signed: bool,
    subtracts: bool,
}

impl Case {
    fn value(&self, byte: u8) -> i32 {
        if self.is_signed {
            i32::from(byte as i8)
        } else {
            i32::from(byte)
        }
    }

    /// The reference's results.
    fn expected(&self) -> Vec<[u8; BYTES]> {
        let [left, right, output] = self.scales.map(f64::from);
        let twice = 2.0 * left.max(right);
        let inputs = [left, right].map(|scale| Multiplier::new(scale / twice));
        let by = Multiplier::new(twice / (f64::from(1 << 20) * output));
        let scaled = |which: usize, byte: usize| {
            inputs[which].apply((self.value(byte as u8) - self.zero_points[which]) << 20)
        };
        let sum = |at: usize, right: usize| {
            let (left, right) = (scaled(0, at), scaled(1, right));
            let total = if self.subtracts {
                left - right
            } else {
                left + right
            };
            let value = by.apply(total).saturating_add(self.zero_points[2]);
            value.clamp(self.range[0], self.range[1]) as u8
        };
        (0..BYTES)
            .map(|left| std::array::from_fn(|right| sum(left, right)))
            .collect()
    }

    fn stored(&self) -> QuantizedOutput {
        QuantizedOutput {
            zero_point: self.zero_points[2],
            low: self.range[0],
            high: self.range[1],
        }
    }

    fn proven(&self, expected: &[[u8; BYTES]]) -> Option<FloatSum> {
        let [left, right, output] = self.scales.map(f64::from);
        let sign = if self.subtracts { -1.0 } else { 1.0 };
        let scales = [left / output, sign * right / output];
        let zero_points = [self.zero_points[0], self.zero_points[1]];
        let stored = (self.stored(), self.is_signed);
        FloatSum::new(scales, zero_points, stored, |(left, _), output| {
            output.copy_from_slice(&expected[usize::from(left[0])]);
        })
    }
}

/// Numbers without an order, below 1.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Such as models have.
fn cases(seed: u64) -> impl Iterator<Item = Case> {
    let mut number = numbers(seed);
    (0..).map(move |at| {
        let left = 0.01 * 8_f64.powf(number());
        let right = left * 4_f64.powf(number() - 0.5);
        let output = left.max(right) * 2_f64.powf(number() * 1.5 - 0.25);
        let is_signed = at % 2 == 0;
        let least = if is_signed { -128 } else { 0 };
        let zero_points = [number(), number(), number()].map(|number| (number * 256.0) as i32 + least);
        let low = if at % 3 == 0 { zero_points[2] } else { least };
        Case {
            scales: [left, right, output].map(|scale| scale as f32),
            zero_points,
            range: [
                low,
                if at % 5 == 0 {
                    low.max(least + 200)
                } else {
                    least + 255
                },
            ],
            is_signed,
            subtracts: at / 2 % 2 == 0,
        }
    })
}

const EQUAL: Case = Case {
    scales: [0.5, 0.5, 0.5],
    zero_points: [128, 100, 120],
    range: [0, 255],
    is_signed: false,
    subtracts: false,
};

#[test]
fn nearly_all_scales_are_proven() {
    let proven = cases(1)
        .take(60)
        .filter(|case| case.proven(&case.expected()).is_some())
        .count();
    // Fewer where products are rounded before they are added.
    assert!(proven >= 40, "{proven} of 60");
    assert!(EQUAL.proven(&EQUAL.expected()).is_some());
}

#[test]
fn ties_below_zero_are_refused() {
    let halves = Case {
        scales: [0.5, 0.5, 1.0],
        ..EQUAL
    };
    assert!(halves.proven(&halves.expected()).is_none());
    // But not if they are clamped, at least with AVX-512; where products are rounded before they are added
    // nothing is sure.
    let clamp = Case {
        range: [halves.zero_points[2], 255],
        ..halves
    };
    assert!(clamp.proven(&clamp.expected()).is_some() || !rescales_by_floats());
}

#[test]
fn a_single_wrong_pair_is_refused() {
    let case = Case {
        zero_points: [128, 128, 128],
        ..EQUAL
    };
    let expected = case.expected();
    for (left, right) in [
        (0, 0),
        (0, 255),
        (255, 0),
        (255, 255),
        (128, 128),
        (63, 64),
        (200, 15),
    ] {
        let mut wrong = expected.clone();
        wrong[left][right] ^= 1;
        assert!(case.proven(&wrong).is_none(), "{left} and {right}");
    }
    let Some(sum) = case.proven(&expected) else {
        panic!("equal scales are proven");
    };
    // Floats next to those that are right are right as well, others are not; where the search begins makes no
    // difference.
    for from in [0, 1, 100, 255] {
        assert_eq!(sum.first_wrong(&expected, from), None);
        for (by, more) in [(1.01, 0.0), (1.0, 0.5), (1.0, -0.6), (-1.0, 0.0)] {
            let other = FloatSum {
                by: [sum.by[0] * by, sum.by[1]],
                more: sum.more + more,
                is_signed: false,
                form: sum.form.clone(),
            };
            assert!(other.first_wrong(&expected, from).is_some(), "{by} {more}");
        }
    }
}

#[test]
fn numbers_have_neighbours_on_both_sides() {
    let (up, down) = (f32::EPSILON, f32::EPSILON / 2.0);
    let expected = [1.0, 1.0 + up, 1.0 - down, 1.0 + 2.0 * up, 1.0 - 2.0 * down];
    assert_eq!(neighbours(1.0), expected);
}
