//! Rescaling of 32-bit sums to 8-bit output steps, sixteen columns at once, to the same bits as
//! [`Multiplier::apply`].
//!
//! A doubling high multiply rounded to nearest is `floor((a * b + 2^30) / 2^31)` for a positive `b`, which unlike the
//! usual two-sided form needs no branch. A shift by `s` bits, at least one, rounded to nearest, ties away from zero, is
//! `floor((h + 2^(s-1) - n) / 2^s)`, where `n` is 1 for a negative `h`, else 0. Since floors of floors are floors, both
//! together are `floor((a * b + 2^30 + (2^(s-1) - n) * 2^31) / 2^(31+s))`: one sum of 64 bits and one shift. A negative
//! `a` can have an `h` of 0, for which either `n` gives 0.

use super::simd::{ByteForm, COLUMN_ORDER, Columns, LANES, Rescale, RescaleOnce, Simd};
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
    by: Rescale,
    /// The same in one step, where all multipliers are below 1/2, as they are in most layers.
    once: Option<RescaleOnce>,
}

/// Values of sixteen columns in [`COLUMN_ORDER`].
pub(super) fn in_order<T: Copy>(columns: [T; COLUMNS]) -> [T; COLUMNS] {
    std::array::from_fn(|lane| columns[COLUMN_ORDER[lane]])
}

/// What scales sixteen neighbouring columns in natural order, if one step is enough.
pub(super) fn once_in_natural_order(multipliers: [Multiplier; COLUMNS]) -> Option<RescaleOnce> {
    let is_once = multipliers.iter().all(is_small);
    is_once.then(|| RescaleOnce::new(multipliers.map(|by| (by.mantissa, right(by)))))
}

/// By how many bits a multiplier shifts to the right.
fn right(multiplier: Multiplier) -> i32 {
    (-multiplier.exponent).clamp(0, 31)
}

/// Whether a multiplier is below 1/2, so that one step is enough.
fn is_small(multiplier: &Multiplier) -> bool {
    (-31..0).contains(&multiplier.exponent)
}

impl Requantization {
    pub(super) fn new(multipliers: [Multiplier; COLUMNS]) -> Requantization {
        Requantization::with_shift(multipliers, 0)
    }

    /// The same of sums that are shifted left by so many bits before.
    pub(super) fn with_shift(multipliers: [Multiplier; COLUMNS], shift: i32) -> Requantization {
        let mask = |multiplier: Multiplier| ((1_u32 << right(multiplier)) - 1) as i32;
        let is_once = shift == 0 && multipliers.iter().all(is_small);
        let pairs = multipliers.map(|multiplier| (multiplier.mantissa, right(multiplier)));
        Requantization {
            once: is_once.then(|| RescaleOnce::new(in_order(pairs))),
            by: Rescale {
                mantissa: in_order(multipliers.map(|multiplier| multiplier.mantissa)),
                left: in_order(multipliers.map(|multiplier| multiplier.exponent.max(0) + shift)),
                right: in_order(multipliers.map(right)),
                mask: in_order(multipliers.map(mask)),
            },
        }
    }

    /// Sums in output steps: of all columns, or of the lanes of the first half.
    #[inline(always)]
    pub(super) fn rescale<V: Simd<N>, const N: usize>(&self, simd: V, sums: V::I32) -> V::I32 {
        simd.rescale(sums, &self.by, 0)
    }

    /// Turns sums into output values and stores as many as `to` takes.
    #[inline(always)]
    pub(super) fn store<V: Columns, const SIGNED: bool>(
        &self,
        simd: V,
        sums: V::I32,
        output: &QuantizedOutput,
        to: &mut [u8],
    ) {
        let columns = self.columns::<V, COLUMNS>(simd, sums, output);
        let range = output.range();
        if let Some(to) = to.first_chunk_mut::<COLUMNS>() {
            return simd.store_bytes::<SIGNED>(columns, range, to);
        }
        let mut whole = [0; COLUMNS];
        simd.store_bytes::<SIGNED>(columns, range, &mut whole);
        store_some(&whole, to);
    }

    /// What [`rescale_once`] takes, if one step is enough.
    #[inline(always)]
    pub(super) fn once(&self) -> Option<&RescaleOnce> {
        self.once.as_ref()
    }

    /// As [`Requantization::store`] of the lanes of the first half, which are taken for eight neighbouring columns in natural order.
    #[inline(always)]
    pub(super) fn store_half<V: Columns, const SIGNED: bool>(
        &self,
        (simd, narrow): (V, V::Narrow),
        sums: <V::Narrow as Simd<LANES>>::I32,
        output: &QuantizedOutput,
        to: &mut [u8],
    ) {
        let columns = self.columns::<V::Narrow, LANES>(narrow, sums, output);
        let mut whole = [0; COLUMNS];
        simd.store_bytes::<SIGNED>(simd.join(columns, columns), output.range(), &mut whole);
        // Where natural order puts the first half.
        for lane in 0..LANES {
            whole[lane] = whole[COLUMN_ORDER[lane]];
        }
        store_some(&whole, to);
    }

    /// Sums as output values that are not yet cut to 8 bits.
    #[inline(always)]
    fn columns<V: Simd<N>, const N: usize>(&self, simd: V, sums: V::I32, output: &QuantizedOutput) -> V::I32 {
        let zero_point = simd.splat_i32(output.zero_point);
        if let Some(once) = &self.once {
            return simd.add_i32(simd.rescale_once(sums, once, 0), zero_point);
        }
        // Cut before the zero point is added, so that the sum cannot overflow.
        let low = simd.splat_i32(output.low - output.zero_point);
        let high = simd.splat_i32(output.high - output.zero_point);
        let scaled = simd.rescale(sums, &self.by, 0);
        simd.add_i32(simd.clamp_i32(scaled, low, high), zero_point)
    }
}

/// Sums in output steps, in one step; `CUT` where results below real 0 are cut.
#[inline(always)]
pub(super) fn rescale_once<V: Columns, const CUT: bool>(simd: V, sums: V::I32, by: &RescaleOnce) -> V::I32 {
    if CUT {
        simd.rescale_positive(sums, by, 0)
    } else {
        simd.rescale_once(sums, by, 0)
    }
}

impl QuantizedOutput {
    /// The ends of the range as bytes.
    #[inline(always)]
    pub(super) fn range(&self) -> [u8; 2] {
        [self.low as u8, self.high as u8]
    }

    /// Whether results below real 0 are cut, however far below they are.
    #[inline(always)]
    pub(super) fn cuts_negative(&self) -> bool {
        self.low >= self.zero_point
    }

    /// What output steps from real 0 become, of which the zero point is one of the values.
    pub(super) fn form(&self, is_signed: bool) -> ByteForm {
        let (up, flip) = if is_signed { (128, 0x80) } else { (0, 0) };
        let unsigned = |value: i32| (value + up).clamp(0, 255) as u8;
        let range = [self.low, self.high].map(unsigned);
        ByteForm::new(unsigned(self.zero_point), range, flip)
    }
}

/// Stores as many columns as `to` takes, of sixteen.
#[inline(always)]
pub(super) fn store_some(whole: &[u8; COLUMNS], to: &mut [u8]) {
    // The usual lengths without the call that copies any number of bytes.
    match to.len() {
        COLUMNS.. => to[..COLUMNS].copy_from_slice(whole),
        LANES => to.copy_from_slice(&whole[..LANES]),
        length => to.copy_from_slice(&whole[..length]),
    }
}

#[cfg(test)]
mod tests {
    use super::{QuantizedOutput, Requantization, in_order};
    use crate::fast::simd::{Instructions, Simd, Work, dispatch};
    use crate::kernels::fixed_point::Multiplier;

    struct Store<'a>(&'a Requantization, [i32; 16], QuantizedOutput);

    impl Work for Store<'_> {
        type Output = [u8; 16];

        #[inline(always)]
        fn run<S: Instructions>(self, simd: S) -> [u8; 16] {
            let mut bytes = [0; 16];
            let sums = simd.wide().load_i32(&self.1);
            self.0
                .store::<S::Wide, true>(simd.wide(), sums, &self.2, &mut bytes);
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
        // The last one shifts large sums beyond 32 bits.
        let reals = [1e-9, 0.000_37, 0.25, 0.499_999_9, 0.5, 0.999_999, 3.7, 1e4];
        let multipliers = std::array::from_fn(|at| Multiplier::new(reals[at % 8] / 3.0));
        assert!(Requantization::new(multipliers).once.is_none());
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
            assert!(Requantization::new(multipliers).once.is_some());
            expect_single_values(multipliers, sums().chain(ends));
        }
    }
}
