//! Rescaling of 32-bit sums to 8-bit output steps, sixteen columns at once, to the same bits as
//! [`Multiplier::apply`].
//!
//! A doubling high multiply rounded to nearest is `floor((a * b + 2^30) / 2^31)` for a positive `b`, which
//! unlike the usual two-sided form needs no branch. A shift by `s` bits, at least one, rounded to nearest,
//! ties away from zero, is `floor((h + 2^(s-1) - n) / 2^s)`, where `n` is 1 for a negative `h`, else 0. Since
//! floors of floors are floors, both together are `floor((a * b + 2^30 + (2^(s-1) - n) * 2^31) / 2^(31+s))`:
//! one sum of 64 bits and one shift. A negative `a` can have an `h` of 0, for which either `n` gives 0.

use super::matmul::tile::COLUMNS;
use super::rescale::SumRange;
use super::simd::{
    ByteForm, COLUMN_ORDER, Columns, FloatScale, LANES, Rescale, RescaleOnce, Simd, rescales_by_floats,
};
use crate::kernels::activation_range::Activation;
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

impl QuantizedOutput {
    /// Results of a scale and a zero point behind an activation, of a type with these ends.
    pub(super) fn new(
        (scale, zero_point): (f32, i32),
        activation: Activation,
        [least, most]: [i32; 2],
    ) -> QuantizedOutput {
        let (low, high) = activation.quantized_range(scale, zero_point, least, most);
        QuantizedOutput {
            zero_point,
            low,
            high,
        }
    }
}

/// The multipliers of sixteen neighbouring columns, in [`COLUMN_ORDER`] if not said otherwise.
#[derive(Clone, Debug)]
pub(super) enum Requantization {
    /// As in one step, of results that are clamped to 8 bits, where there are instructions for it and it is
    /// proven; and in integers, for panels that are stored together with one of which it is not.
    Floats(FloatScale, RescaleOnce),
    /// In one step, where all multipliers are below 1/2 but none is 0, as in most layers, and sums are not
    /// shifted before.
    Once(RescaleOnce),
    Steps(Rescale),
}

/// What scales sums in one step.
pub(super) trait ToSteps {
    /// Sums in output steps; with `CLAMPED`, results below 0 may be others that are not above 0.
    fn scale<V: Columns, const CLAMPED: bool>(&self, simd: V, sums: V::I32) -> V::I32;
}

/// Something for each of some panels of sixteen columns, or one for all where their multipliers are the same.
#[derive(Debug)]
pub(super) struct OfPanels<T> {
    each: Vec<T>,
    /// From one panel's to the next one's: 1, or 0 if there is one for all.
    step: usize,
}

impl<T> OfPanels<T> {
    /// What `make` makes of each of so many panels and its multipliers; of none in particular if there is one
    /// for all.
    pub(super) fn new(
        panels: usize,
        multipliers: impl Fn(usize) -> [Multiplier; COLUMNS],
        make: impl Fn(Option<usize>, [Multiplier; COLUMNS]) -> T,
    ) -> OfPanels<T> {
        let first = (panels > 0).then(|| multipliers(0)[0]);
        let is_first = |panel: usize| multipliers(panel).iter().all(|by| Some(*by) == first);
        let are_same = (0..panels).all(is_first);
        let made = if are_same { panels.min(1) } else { panels };
        OfPanels {
            each: (0..made)
                .map(|panel| make((!are_same).then_some(panel), multipliers(panel)))
                .collect(),
            step: usize::from(!are_same),
        }
    }

    /// That of a panel.
    #[inline(always)]
    pub(super) fn of(&self, panel: usize) -> &T {
        &self.each[panel * self.step]
    }

    /// Those of some neighbouring panels.
    #[inline(always)]
    pub(super) fn of_some<const P: usize>(&self, first: usize) -> [&T; P] {
        std::array::from_fn(|panel| self.of(first + panel))
    }
}

/// Values of sixteen columns in [`COLUMN_ORDER`].
pub(super) fn in_order<T: Copy>(columns: [T; COLUMNS]) -> [T; COLUMNS] {
    std::array::from_fn(|lane| columns[COLUMN_ORDER[lane]])
}

/// Whether one step is enough for each of some multipliers.
pub(super) fn is_one_step(multipliers: &[Multiplier]) -> bool {
    multipliers.iter().all(is_small)
}

/// What scales sixteen lanes by these multipliers in integers, if one step is enough.
pub(super) fn rescale_once(multipliers: [Multiplier; COLUMNS]) -> Option<RescaleOnce> {
    is_one_step(&multipliers).then(|| RescaleOnce::new(multipliers.map(|by| (by.mantissa, right(by)))))
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
        Requantization::of_lanes(in_order(multipliers), 0, |_| None)
    }

    /// The same of sums that are shifted left by so many bits before.
    pub(super) fn with_shift(multipliers: [Multiplier; COLUMNS], shift: i32) -> Requantization {
        Requantization::of_lanes(in_order(multipliers), shift, |_| None)
    }

    /// Of lanes in any order; `range` gives the least sum of a lane and the most, if they are known.
    pub(super) fn of_lanes(
        multipliers: [Multiplier; COLUMNS],
        shift: i32,
        range: impl Fn(usize) -> Option<SumRange>,
    ) -> Requantization {
        if shift == 0 && is_one_step(&multipliers) {
            let lanes = multipliers.map(|by| (by.mantissa, right(by)));
            let floats = rescales_by_floats().then(|| FloatScale::new(lanes, range));
            return match floats.flatten() {
                Some(by) => Requantization::Floats(by, RescaleOnce::new(lanes)),
                None => Requantization::Once(RescaleOnce::new(lanes)),
            };
        }
        let mask = |multiplier: Multiplier| ((1_u32 << right(multiplier)) - 1) as i32;
        Requantization::Steps(Rescale {
            mantissa: multipliers.map(|multiplier| multiplier.mantissa),
            left: multipliers.map(|multiplier| multiplier.exponent.max(0) + shift),
            right: multipliers.map(right),
            mask: multipliers.map(mask),
        })
    }

    /// Sums in output steps.
    #[inline(always)]
    pub(super) fn rescale<V: Columns>(&self, simd: V, sums: V::I32) -> V::I32 {
        match self {
            Requantization::Floats(by, _) if V::TRUNCATES => simd.rescale_by_floats::<false>(sums, by),
            _ => self.rescale_integers::<V, COLUMNS>(simd, sums),
        }
    }

    /// The same without floats: of all columns, or of the lanes of the first half.
    #[inline(always)]
    fn rescale_integers<V: Simd<N>, const N: usize>(&self, simd: V, sums: V::I32) -> V::I32 {
        match self {
            Requantization::Floats(_, by) | Requantization::Once(by) => simd.rescale_once(sums, by, 0),
            Requantization::Steps(by) => simd.rescale(sums, by, 0),
        }
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
        let scaled = self.rescale(simd, sums);
        let columns = self.columns::<V, COLUMNS>(simd, scaled, output);
        let range = output.range();
        if let Some(to) = to.first_chunk_mut::<COLUMNS>() {
            return simd.store_bytes::<SIGNED>(columns, range, to);
        }
        let mut whole = [0; COLUMNS];
        simd.store_bytes::<SIGNED>(columns, range, &mut whole);
        store_some(&whole, to);
    }

    /// The floats that scale, if there are any.
    #[inline(always)]
    pub(super) fn floats(&self) -> Option<&FloatScale> {
        match self {
            Requantization::Floats(by, _) => Some(by),
            _ => None,
        }
    }

    /// What scales in one step in integers, if that is enough.
    #[inline(always)]
    pub(super) fn once(&self) -> Option<&RescaleOnce> {
        match self {
            Requantization::Floats(_, by) | Requantization::Once(by) => Some(by),
            _ => None,
        }
    }

    /// As [`Requantization::store`] of the lanes of the first half, which are taken for eight neighbouring
    /// columns in natural order.
    #[inline(always)]
    pub(super) fn store_half<V: Columns, const SIGNED: bool>(
        &self,
        (simd, narrow): (V, V::Narrow),
        sums: <V::Narrow as Simd<LANES>>::I32,
        output: &QuantizedOutput,
        to: &mut [u8],
    ) {
        let columns = if V::TRUNCATES {
            let scaled = self.rescale(simd, simd.join(sums, sums));
            self.columns::<V, COLUMNS>(simd, scaled, output)
        } else {
            let scaled = self.rescale_integers::<V::Narrow, LANES>(narrow, sums);
            let columns = self.columns::<V::Narrow, LANES>(narrow, scaled, output);
            simd.join(columns, columns)
        };
        let mut whole = [0; COLUMNS];
        simd.store_bytes::<SIGNED>(columns, output.range(), &mut whole);
        // Where natural order puts the first half.
        for lane in 0..LANES {
            whole[lane] = whole[COLUMN_ORDER[lane]];
        }
        store_some(&whole, to);
    }

    /// Output steps as output values that are not yet clamped to 8 bits.
    #[inline(always)]
    fn columns<V: Simd<N>, const N: usize>(
        &self,
        simd: V,
        scaled: V::I32,
        output: &QuantizedOutput,
    ) -> V::I32 {
        let zero_point = simd.splat_i32(output.zero_point);
        if let Requantization::Floats(..) | Requantization::Once(_) = self {
            return simd.add_i32(scaled, zero_point);
        }
        // Cut before the zero point is added, so that the sum cannot overflow.
        let low = simd.splat_i32(output.low - output.zero_point);
        let high = simd.splat_i32(output.high - output.zero_point);
        simd.add_i32(simd.clamp_i32(scaled, low, high), zero_point)
    }
}

impl ToSteps for RescaleOnce {
    #[inline(always)]
    fn scale<V: Columns, const CLAMPED: bool>(&self, simd: V, sums: V::I32) -> V::I32 {
        if CLAMPED {
            simd.rescale_positive(sums, self, 0)
        } else {
            simd.rescale_once(sums, self, 0)
        }
    }
}

impl ToSteps for FloatScale {
    #[inline(always)]
    fn scale<V: Columns, const CLAMPED: bool>(&self, simd: V, sums: V::I32) -> V::I32 {
        simd.rescale_by_floats::<CLAMPED>(sums, self)
    }
}

impl QuantizedOutput {
    /// The ends of the range as bytes.
    #[inline(always)]
    pub(super) fn range(&self) -> [u8; 2] {
        [self.low as u8, self.high as u8]
    }

    /// Whether results below real 0 are clamped, however far below they are.
    #[inline(always)]
    pub(super) fn clamps_negative(&self) -> bool {
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
    use super::{OfPanels, QuantizedOutput, Requantization, in_order};
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
        assert!(matches!(
            Requantization::new(multipliers),
            Requantization::Steps(_)
        ));
        expect_single_values(multipliers, sums());
    }

    #[test]
    fn panels_of_the_same_multiplier_have_one_in_common() {
        let multiplier = |at: usize| Multiplier::new(0.001 * (at + 1) as f64);
        let made = |panels, of: &dyn Fn(usize, usize) -> usize| {
            let multipliers = |panel| std::array::from_fn(|lane| multiplier(of(panel, lane)));
            OfPanels::new(panels, multipliers, |_, multipliers| multipliers[15])
        };
        let same = made(5, &|_, _| 3);
        assert_eq!((same.each.len(), same.of_some::<2>(3)), (1, [&multiplier(3); 2]));
        let by_panel = made(5, &|panel, _| panel);
        assert_eq!(by_panel.of_some::<2>(3), [&multiplier(3), &multiplier(4)]);
        let by_lane = made(1, &|_, lane| lane);
        assert_eq!((by_lane.each.len(), by_lane.of(0)), (1, &multiplier(15)));
        // Only the last one is another one.
        let last = made(3, &|panel, lane| panel / 2 * (lane / 15));
        assert_eq!((last.each.len(), last.of(2)), (3, &multiplier(1)));
        assert!(made(0, &|_, _| 0).each.is_empty());
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
            assert!(!matches!(
                Requantization::new(multipliers),
                Requantization::Steps(_)
            ));
            expect_single_values(multipliers, sums().chain(ends));
        }
    }
}
