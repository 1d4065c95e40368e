//! Rescaling of 32-bit sums to 8-bit output steps, sixteen columns at once, to the same bits as
//! [`Multiplier::apply`].
//!
//! A doubling high multiply rounded to nearest is `floor((a * b + 2^30) / 2^31)` for a positive `b`, which unlike the
//! usual two-sided form needs no branch. A shift by `s` bits, at least one, rounded to nearest, ties away from zero, is
//! `floor((h + 2^(s-1) - n) / 2^s)`, where `n` is 1 for a negative `h`, else 0. Since floors of floors are floors, both
//! together are `floor((a * b + 2^30 + (2^(s-1) - n) * 2^31) / 2^(31+s))`: one sum of 64 bits and one shift. A negative
//! `a` can have an `h` of 0, for which either `n` gives 0.

use super::simd::{COLUMN_ORDER, LANES, Rescale, Simd, Wide};
use super::tile::COLUMNS;
use crate::kernels::fixed_point::Multiplier;

/// How quantised results are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantizedOutput {
    /// What real 0 is.
    pub(super) zero_point: i32,
    /// The lowest value.
    pub(super) low: i32,
    /// The highest value.
    pub(super) high: i32,
}

/// The multipliers of sixteen neighbouring columns, in [`COLUMN_ORDER`].
#[derive(Clone, Debug)]
pub(super) struct Requantization {
    mantissa: [[i32; LANES]; 2],
    left: [[i32; LANES]; 2],
    right: [[i32; LANES]; 2],
    /// `2^right - 1`.
    mask: [[i32; LANES]; 2],
    /// The same in one step, where all multipliers are below 1/2, as they are in most layers.
    wide: Option<[Wide; 2]>,
}

/// Values of sixteen columns in [`COLUMN_ORDER`].
pub(super) fn in_order<T: Copy>(columns: [T; COLUMNS]) -> [[T; LANES]; 2] {
    std::array::from_fn(|half| std::array::from_fn(|lane| columns[COLUMN_ORDER[half * LANES + lane]]))
}

impl Requantization {
    pub(super) fn new(multipliers: [Multiplier; COLUMNS]) -> Requantization {
        Requantization::with_shift(multipliers, 0)
    }

    /// The same of sums that are shifted left by so many bits before.
    pub(super) fn with_shift(multipliers: [Multiplier; COLUMNS], shift: i32) -> Requantization {
        let right = |multiplier: Multiplier| (-multiplier.exponent).clamp(0, 31);
        let mask = |multiplier: Multiplier| ((1_u32 << right(multiplier)) - 1) as i32;
        let is_small = |multiplier: &Multiplier| (-31..0).contains(&multiplier.exponent);
        let is_wide = shift == 0 && multipliers.iter().all(is_small);
        let pairs = multipliers.map(|multiplier| (multiplier.mantissa, right(multiplier)));
        Requantization {
            wide: is_wide.then(|| in_order(pairs).map(Wide::new)),
            mantissa: in_order(multipliers.map(|multiplier| multiplier.mantissa)),
            left: in_order(multipliers.map(|multiplier| multiplier.exponent.max(0) + shift)),
            right: in_order(multipliers.map(right)),
            mask: in_order(multipliers.map(mask)),
        }
    }

    /// Sums in output steps, one half of the columns.
    #[inline(always)]
    pub(super) fn rescale<S: Simd>(&self, simd: S, sums: S::I32, half: usize) -> S::I32 {
        let by = Rescale {
            mantissa: simd.load_i32(&self.mantissa[half]),
            left: simd.load_i32(&self.left[half]),
            right: simd.load_i32(&self.right[half]),
            mask: simd.load_i32(&self.mask[half]),
        };
        simd.rescale(sums, &by)
    }

    /// Turns sums into output values and stores as many as `to` takes. Those of one half of the columns are taken for
    /// eight neighbouring ones in natural order.
    #[inline(always)]
    pub(super) fn store<S: Simd, const SIGNED: bool, const H: usize>(
        &self,
        simd: S,
        sums: [S::I32; H],
        output: &QuantizedOutput,
        to: &mut [u8],
    ) {
        if let Some(wide) = &self.wide {
            return store_wide::<S, SIGNED, H>(simd, wide, sums, output, to);
        }
        // Cut before the zero point is added, so that the sum cannot overflow.
        let zero_point = simd.splat_i32(output.zero_point);
        let low = simd.splat_i32(output.low - output.zero_point);
        let high = simd.splat_i32(output.high - output.zero_point);
        let mut columns = [zero_point; 2];
        for half in 0..H {
            let scaled = self.rescale(simd, sums[half], half);
            columns[half] = simd.add_i32(simd.clamp_i32(scaled, low, high), zero_point);
        }
        store_bytes::<S, SIGNED, H>(simd, columns, output, to);
    }

    /// What [`store_wide`] takes, if it can.
    #[inline(always)]
    pub(super) fn wide(&self) -> Option<&[Wide; 2]> {
        self.wide.as_ref()
    }
}

/// What [`Requantization::store`] does where one step is enough.
#[inline(always)]
pub(super) fn store_wide<S: Simd, const SIGNED: bool, const H: usize>(
    simd: S,
    wide: &[Wide; 2],
    sums: [S::I32; H],
    output: &QuantizedOutput,
    to: &mut [u8],
) {
    let zero_point = simd.splat_i32(output.zero_point);
    let mut columns = [zero_point; 2];
    for half in 0..H {
        columns[half] = simd.add_i32(simd.rescale_wide(sums[half], &wide[half]), zero_point);
    }
    store_bytes::<S, SIGNED, H>(simd, columns, output, to);
}

/// Cuts columns to the output's range and stores as many as `to` takes.
#[inline(always)]
fn store_bytes<S: Simd, const SIGNED: bool, const H: usize>(
    simd: S,
    columns: [S::I32; 2],
    output: &QuantizedOutput,
    to: &mut [u8],
) {
    let range = [
        simd.splat_i32(i32::from_ne_bytes([output.low as u8; 4])),
        simd.splat_i32(i32::from_ne_bytes([output.high as u8; 4])),
    ];
    if H == 2
        && let Some(to) = to.first_chunk_mut::<COLUMNS>()
    {
        return simd.store_bytes::<SIGNED>(columns, range, to);
    }
    let mut whole = [0; COLUMNS];
    simd.store_bytes::<SIGNED>(columns, range, &mut whole);
    if H == 1 {
        // Where natural order puts the first half.
        for lane in 0..LANES {
            whole[lane] = whole[COLUMN_ORDER[lane]];
        }
    }
    // The usual length without the call that copies any number of bytes.
    match <&mut [u8; LANES]>::try_from(&mut *to) {
        Ok(to) => to.copy_from_slice(&whole[..LANES]),
        Err(_) => to.copy_from_slice(&whole[..to.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::{QuantizedOutput, Requantization, in_order};
    use crate::fast::simd::{LANES, Simd, Work, dispatch};
    use crate::kernels::fixed_point::Multiplier;

    struct Store<'a>(&'a Requantization, [[i32; LANES]; 2], QuantizedOutput);

    impl Work for Store<'_> {
        type Output = [u8; 16];

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> [u8; 16] {
            let mut bytes = [0; 16];
            let sums = [simd.load_i32(&self.1[0]), simd.load_i32(&self.1[1])];
            self.0.store::<S, true, 2>(simd, sums, &self.2, &mut bytes);
            bytes
        }
    }

    fn expect_single_values(multipliers: [Multiplier; 16], sums: impl Iterator<Item = i32>) {
        let requantization = Requantization::new(multipliers);
        let output = QuantizedOutput {
            zero_point: 3,
            low: -120,
            high: 127,
        };
        for sum in sums {
            let found = dispatch(Store(&requantization, in_order([sum; 16]), output));
            let exact = multipliers.map(|by| by.apply(sum).saturating_add(3).clamp(-120, 127) as u8);
            assert_eq!(found, exact, "{sum} by {multipliers:?}");
        }
    }

    fn sums() -> impl Iterator<Item = i32> {
        let mut value = 1_i32;
        let some = (0..20_000_i32).map(move |step| {
            value = value.wrapping_mul(1_103_515_245).wrapping_add(12_345 + step);
            value >> (step % 24 + 4)
        });
        some.chain(-2000..2000)
    }

    #[test]
    fn columns_are_rounded_as_single_values_are() {
        let reals = [1e-9, 0.000_37, 0.25, 0.499_999_9, 0.5, 0.999_999, 1.0, 3.7];
        let multipliers = std::array::from_fn(|at| Multiplier::new(reals[at % 8] / 3.0));
        assert!(Requantization::new(multipliers).wide.is_none());
        expect_single_values(multipliers, sums());
    }

    #[test]
    fn one_step_rounds_as_two_do() {
        let ends = [
            i32::MIN,
            i32::MIN + 1,
            i32::MAX - 1,
            i32::MAX,
            1 << 30,
            -(1 << 30),
        ];
        // Powers of two and their sums meet ties; with the smallest ones little is left.
        let reals: [f64; 16] = [
            0.25,
            0.125,
            0.375,
            0.007_812_5,
            0.003_906_25,
            1e-9,
            3e-10,
            0.000_37,
            0.249_999_999,
            0.499_999_9,
            0.031_25,
            0.046_875,
            0.001_3,
            0.011,
            0.093_75,
            4.7e-10,
        ];
        for turn in 0..16 {
            let multipliers = std::array::from_fn(|at| Multiplier::new(reals[(at + turn) % 16]));
            assert!(Requantization::new(multipliers).wide.is_some());
            expect_single_values(multipliers, sums().chain(ends));
        }
    }
}
