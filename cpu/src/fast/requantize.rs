//! Rescaling of 32-bit sums to output steps, for several columns at once, to the same bits as
//! [`Multiplier::apply`].
//!
//! A doubling high multiply rounded to nearest is `floor((a * b + 2^30) / 2^31)` for a positive `b`, which unlike the
//! usual two-sided form needs no branch.

use super::tile::{Level, vectorized};
use crate::kernels::fixed_point::Multiplier;

/// The multipliers of `N` neighbouring columns.
#[derive(Clone, Debug)]
pub(super) struct Requantization<const N: usize> {
    mantissas: [i32; N],
    left: [u32; N],
    right: [u32; N],
}

impl<const N: usize> Requantization<N> {
    pub(super) fn new(multipliers: [Multiplier; N]) -> Requantization<N> {
        Requantization {
            mantissas: multipliers.map(|multiplier| multiplier.mantissa),
            left: multipliers.map(|multiplier| multiplier.exponent.max(0) as u32),
            right: multipliers.map(|multiplier| (-multiplier.exponent).clamp(0, 31) as u32),
        }
    }

    /// The sums in output steps, rounded.
    #[inline(always)]
    pub(super) fn apply(&self, level: Level, sums: &[i32; N]) -> [i32; N] {
        vectorized(level, || {
            let mut scaled = [0; N];
            for lane in 0..N {
                let shifted = sums[lane].wrapping_shl(self.left[lane]);
                let product = i64::from(shifted) * i64::from(self.mantissas[lane]) + (1 << 30);
                let high = (product as u64 >> 31) as i32;
                let mask = ((1_u32 << self.right[lane]) - 1) as i32;
                let threshold = (mask >> 1) + i32::from(high < 0);
                scaled[lane] = (high >> self.right[lane]) + i32::from(high & mask > threshold);
            }
            scaled
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Requantization;
    use crate::fast::tile::{LEVEL, Level};
    use crate::kernels::fixed_point::Multiplier;

    #[test]
    fn lanes_are_rounded_as_single_values_are() {
        let reals = [1e-9, 0.000_37, 0.25, 0.499_999_9, 0.5, 0.999_999, 1.0, 3.7];
        let multipliers = reals.map(Multiplier::new);
        let requantization = Requantization::new(multipliers);
        let mut value = 1_i32;
        for step in 0..20_000_i32 {
            value = value.wrapping_mul(1_103_515_245).wrapping_add(12_345 + step);
            let sum = value >> (step % 24 + 4);
            for level in [*LEVEL, Level::Portable] {
                let found = requantization.apply(level, &[sum; 8]);
                assert_eq!(
                    found,
                    multipliers.map(|multiplier| multiplier.apply(sum)),
                    "{sum}"
                );
            }
        }
    }
}
