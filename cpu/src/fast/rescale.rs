//! Rescaling of 32-bit sums to 8-bit output steps by single-precision floats that are rounded towards zero,
//! to the same bits as
//! [`Multiplier::apply`]: four or five instructions, where 64-bit integers need seven or eleven.
//!
//! With a mantissa `m` of 31 bits and a shift by `s` bits, a sum `x >= 0` becomes `floor((x * m + C) / M)`,
//! where `M = 2^(31+s)` and `C = 2^30 + 2^(30+s)`; see [`super::requantize`]. A negative one becomes minus
//! that of `-x`, but where `x * m + C` is a multiple of `M`: only such ties are rounded towards positive
//! infinity. `m / M` is the sum of two floats, one of its upper 24 bits and one of its lower seven, and `C /
//! M = 1/2 + 2^-(s+1)` is a float too. Then `truncate(x * upper + (x * lower + C / M))` has two errors at
//! most: that of the conversion of `x`, which is none up to `2^24`, and that of the sum in parentheses, less
//! than `2^-24`, which is below 1. The outer sum has none: truncated to a float and then to an integer, a
//! number loses no more than its fraction.
//!
//! Both functions never fall as `x` grows. They are the same for all sums, but for what is clamped to 8 bits,
//! if they are for the least `x` of each result from 1 to 255, and for the `x` before it. That is proven for
//! each multiplier when a model is prepared; multipliers so small that the sums of large results are no
//! floats without an error are proven likewise if their weights and bias have no such sums, whatever the
//! values are. Where the error is too much, `2^-24` more before it is truncated may make up for it. The
//! smaller a multiplier is, the less often: nearly all are proven with shifts up to 14, about 92 of 100 with
//! one of 15, 72 with 16, 38 with 17, 13 with 18, five with 19, and one to three beyond. Where none is, the
//! integers remain; but for columns whose weights are all 0, of which training leaves many in some models,
//! with the least of multipliers: they have a single sum each.

use super::simd::{FloatScale, Loop, WIDE, vectorised};
use crate::kernels::fixed_point::Multiplier;

/// The largest result that is not clamped: 8-bit values are no further from the zero point, which is one of
/// them.
const MOST: u64 = 255;

/// Sums up to here are floats without an error.
const EXACT: u64 = 1 << f32::MANTISSA_DIGITS;

/// Lower bits of a mantissa that a float has no room for.
const LOWER: i32 = 0x7f;

/// Shifts up to here leave `C / M` a float.
const MOST_SHIFT: i32 = 23;

impl FloatScale {
    /// Of lanes with this mantissa and right shift, from 1 to 31; `None` if it is not proven for one of them.
    /// `range` gives the least sum of a lane and the most, if they are known; if they are the same there is
    /// nothing to prove.
    pub(super) fn new(
        lanes: [(i32, i32); WIDE],
        range: impl Fn(usize) -> Option<SumRange>,
    ) -> Option<FloatScale> {
        let mut boundaries = Boundaries::default();
        let mut scale = FloatScale {
            upper: [0.0; WIDE],
            lower: [0.0; WIDE],
            half: [0.0; WIDE],
        };
        let mut is_proven = [false; WIDE];
        for (lane, (mantissa, right)) in lanes.into_iter().enumerate() {
            is_proven[lane] = boundaries.set(lane, (mantissa, right), || range(lane));
        }
        let is_single = |lane| range(lane).is_some_and(|[least, most]| least == most);
        if (0..WIDE).any(|lane| !is_proven[lane] && !is_single(lane)) {
            return None;
        }
        vectorised(Walk(&mut boundaries));
        for (lane, (mantissa, right)) in lanes.into_iter().enumerate() {
            let part = |bits: i32| bits as f32 / (1_u64 << (31 + right)) as f32;
            match boundaries.needed(lane).filter(|_| is_proven[lane]) {
                Some(more) => {
                    scale.upper[lane] = part(mantissa & !LOWER);
                    scale.lower[lane] = part(mantissa & LOWER);
                    scale.half[lane] = ((1 << 23) + (1 << (23 - right)) + more) as f32 / EXACT as f32;
                }
                None => {
                    let [only, most] = range(lane)?;
                    if only != most {
                        return None;
                    }
                    scale.upper[lane] = upper_of_only((mantissa, right), only);
                }
            }
        }
        Some(scale)
    }
}

/// The least and the most that a sum can be.
pub(super) type SumRange = [i32; 2];

/// That of a bias and the products of signed weights with unsigned bytes, if it fits.
pub(super) fn range_of_sums(bias: i32, weights: impl Iterator<Item = i32>) -> Option<SumRange> {
    let most = i64::from(u8::MAX);
    let mut range = [i64::from(bias); 2];
    for weight in weights {
        let weight = i64::from(weight);
        range[0] += most * weight.min(0);
        range[1] += most * weight.max(0);
    }
    let [Ok(least), Ok(most)] = range.map(i32::try_from) else {
        return None;
    };
    Some([least, most])
}

/// What scales a single sum: to the middle between its result and the next one further from 0, so that
/// truncation leaves the former.
fn upper_of_only((mantissa, right): (i32, i32), sum: i32) -> f32 {
    let by = Multiplier {
        mantissa,
        exponent: -right,
    };
    let result = by.apply(sum).unsigned_abs().min(MOST as u32);
    (result as f32 + 0.5) / sum.unsigned_abs().max(1) as f32
}

/// What the remainders at the boundaries of results are, sixteen multipliers at once: with `X` the least sum
/// whose result is some `k`, the remainder is `X * m + C - k * M`, from 0 to `m - 1`. Of `X * lower` what is
/// truncated is the lower bits: those of `X * (m mod 2^7)` below `2^(7+s)`, which is `2^-24` of a result.
#[derive(Debug, Default)]
struct Boundaries {
    mantissa: [i32; WIDE],
    /// From one result to the next: by how much `X` grows at least, times `m mod 2^7`, and what is left of
    /// `M`.
    lower_step: [i32; WIDE],
    step: [i32; WIDE],
    /// `2^(7+s) - 1`.
    mask: [i32; WIDE],
    /// That of the first result, then of all up to the last.
    remainder: [i32; WIDE],
    truncated: [i32; WIDE],
    /// The least remainder.
    least: [i32; WIDE],
    /// The least that is left of a remainder after truncation, and the most for the sum before it, were it
    /// not less by `m`.
    slack: [i32; WIDE],
    excess: [i32; WIDE],
}

impl Boundaries {
    /// Begins with the first result of a multiplier; whether its sums and what is added to them are floats
    /// without an error.
    fn set(
        &mut self,
        lane: usize,
        (mantissa, right): (i32, i32),
        range: impl FnOnce() -> Option<SumRange>,
    ) -> bool {
        if right > MOST_SHIFT {
            return false;
        }
        let (m, whole) = (mantissa as u64, 1_u64 << (31 + right));
        let nudge = (1 << 30) + whole / 2;
        let least_of = |result: u64| (result * whole - nudge).div_ceil(m);
        let is_exact = |range: SumRange| range.iter().all(|end| u64::from(end.unsigned_abs()) <= EXACT);
        if least_of(MOST) > EXACT && !range().is_some_and(is_exact) {
            return false;
        }
        let (first, lower) = (least_of(1), (mantissa & LOWER) as u64);
        let mask = (1 << (7 + right)) - 1;
        self.mantissa[lane] = mantissa;
        self.lower_step[lane] = (whole / m * lower) as i32 & mask;
        self.step[lane] = (whole % m) as i32;
        self.mask[lane] = mask;
        self.remainder[lane] = (first * m + nudge - whole) as i32;
        self.truncated[lane] = (first * lower) as i32 & mask;
        true
    }

    /// How many times `2^-24` must be added for the results to be the same, if that is enough: 0 or 1.
    fn needed(&self, lane: usize) -> Option<i32> {
        let more = i32::from(self.slack[lane] < 0);
        let added = i64::from(more) * (i64::from(self.mask[lane]) + 1);
        let reaches = i64::from(self.slack[lane]) + added >= 0;
        let stays_below = i64::from(self.excess[lane]) + added < i64::from(self.mantissa[lane]);
        let has_no_tie = self.least[lane] > 0;
        (reaches && stays_below && has_no_tie).then_some(more)
    }
}

/// Goes from one result to the next.
struct Walk<'a>(&'a mut Boundaries);

impl Loop for Walk<'_> {
    #[inline(always)]
    fn run(self) {
        let all = self.0;
        (all.least, all.slack, all.excess) = ([i32::MAX; WIDE], [i32::MAX; WIDE], [i32::MIN; WIDE]);
        for _ in 0..MOST {
            for lane in 0..WIDE {
                let (mask, lower) = (all.mask[lane], all.mantissa[lane] & LOWER);
                let (remainder, truncated) = (all.remainder[lane], all.truncated[lane]);
                let before = truncated.wrapping_sub(lower) & mask;
                all.least[lane] = all.least[lane].min(remainder);
                all.slack[lane] = all.slack[lane].min(remainder - truncated);
                all.excess[lane] = all.excess[lane].max(remainder - before);
                // One more where what it grows by at least is not enough.
                let next = remainder - all.step[lane];
                let is_one_more = next >> 31;
                all.remainder[lane] = next + (all.mantissa[lane] & is_one_more);
                all.truncated[lane] = truncated
                    .wrapping_add(all.lower_step[lane])
                    .wrapping_add(lower & is_one_more)
                    & mask;
            }
        }
    }
}

#[cfg(test)]
#[path = "rescale_tests.rs"]
mod tests;
