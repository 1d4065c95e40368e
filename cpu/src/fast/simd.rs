//! Vectors of eight lanes, and the choice of the instructions that compute with them.
//!
//! A kernel is written once, generic over [`Simd`], and run by [`dispatch`], which compiles it for each instruction
//! set and picks one by what the processor has. Using instructions beyond the build's base set is the one unsafe act
//! of this crate, and this module is its only place: a value of [`avx2::Avx2`] exists only where the processor has
//! them, so whoever holds one may use them.
//!
//! Sixteen 8-bit results come out of two vectors of 32-bit sums, `[0, 1, 2, 3, 8, 9, 10, 11]` in the first and the
//! others in the second: the order in which interleaving two rows of 16-bit values leaves their products.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
mod portable;

/// Lanes of a vector.
pub(super) const LANES: usize = 8;

/// Which of sixteen columns each lane of a pair of vectors holds.
pub(super) const COLUMN_ORDER: [usize; 16] = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15];

/// What turns 32-bit sums into output steps, eight lanes of it; see [`super::requantize`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Rescale<V> {
    pub(super) mantissa: V,
    pub(super) left: V,
    pub(super) right: V,
    /// `2^right - 1`.
    pub(super) mask: V,
}

/// What turns eight 32-bit sums into output steps with one shift of at least one bit; see [`super::requantize`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide {
    mantissa: [i32; LANES],
    /// Those of odd lanes, each a lane lower.
    odd_mantissa: [i32; LANES],
    /// What is added to products of even lanes, then of odd lanes, if they are not negative, and if they are.
    nudges: [[[i64; LANES / 2]; 2]; 2],
    /// The shift, less one.
    right: [i32; LANES],
}

impl Wide {
    /// Of lanes with this mantissa and right shift, from 1 to 31.
    pub(super) fn new(lanes: [(i32, i32); LANES]) -> Wide {
        let mantissa = lanes.map(|(mantissa, _)| mantissa);
        let nudge = |(_, right): (i32, i32), negative: i64| (1 << 30) + (((1 << right) / 2 - negative) << 31);
        Wide {
            mantissa,
            odd_mantissa: std::array::from_fn(|lane| mantissa[lane | 1]),
            nudges: std::array::from_fn(|odd| {
                std::array::from_fn(|negative| {
                    std::array::from_fn(|pair| nudge(lanes[2 * pair + odd], negative as i64))
                })
            }),
            right: lanes.map(|(_, right)| right - 1),
        }
    }
}

/// The operations of an instruction set on vectors of [`LANES`] lanes.
pub(super) trait Simd: Copy {
    /// 32-bit floats.
    type F32: Copy;
    /// 32-bit integers, or pairs of 16-bit ones.
    type I32: Copy;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &[f32; LANES]) -> Self::F32;
    fn store(self, vector: Self::F32, to: &mut [f32; LANES]);
    fn add(self, left: Self::F32, right: Self::F32) -> Self::F32;
    fn mul(self, left: Self::F32, right: Self::F32) -> Self::F32;
    /// `left * right + sum`, rounded once or twice.
    fn mul_add(self, left: Self::F32, right: Self::F32, sum: Self::F32) -> Self::F32;
    /// The larger of the two; a NaN in `value` stays one.
    fn at_least(self, value: Self::F32, low: Self::F32) -> Self::F32;
    /// The smaller of the two; a NaN in `value` stays one.
    fn at_most(self, value: Self::F32, high: Self::F32) -> Self::F32;

    fn splat_i32(self, value: i32) -> Self::I32;
    fn load_i32(self, from: &[i32; LANES]) -> Self::I32;
    #[cfg(test)]
    fn store_i32(self, vector: Self::I32, to: &mut [i32; LANES]);
    fn add_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    fn sub_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    /// `value` cut to `low..=high`.
    fn clamp_i32(self, value: Self::I32, low: Self::I32, high: Self::I32) -> Self::I32;
    /// Pairs of 16-bit integers.
    fn load_pairs(self, from: &[i16; 2 * LANES]) -> Self::I32;
    /// `sums` plus the sums of the products of pairs.
    fn add_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    /// Pairs of what two rows hold for each of sixteen columns, in [`COLUMN_ORDER`].
    fn interleave(self, first: &[i16; 2 * LANES], second: &[i16; 2 * LANES]) -> [Self::I32; 2];
    /// Rescales sums as [`crate::kernels::fixed_point::Multiplier::apply`] does.
    fn rescale(self, sums: Self::I32, by: &Rescale<Self::I32>) -> Self::I32;
    /// Rescales sums likewise, in one step.
    fn rescale_wide(self, sums: Self::I32, by: &Wide) -> Self::I32;
    /// Sixteen 8-bit columns in [`COLUMN_ORDER`].
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; 2 * LANES]) -> [Self::I32; 2];
    /// Sixteen columns in natural order, cut to 8 bits and to a range, whose ends stand in each byte of a vector.
    fn store_bytes<const SIGNED: bool>(
        self,
        columns: [Self::I32; 2],
        range: [Self::I32; 2],
        to: &mut [u8; 2 * LANES],
    );
}

/// A kernel with its arguments.
pub(super) trait Work {
    /// What it returns.
    type Output;

    /// Computes; to be marked `#[inline(always)]`, as everything that it calls and that is worth vectors.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs a kernel with the best instructions that the processor has.
#[inline]
pub(super) fn dispatch<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = *avx2::AVX2 {
        return simd.run(work);
    }
    work.run(portable::Portable)
}

/// A loop that becomes one over vectors if it is compiled for instructions that have them. To be marked
/// `#[inline(always)]`.
pub(crate) trait Loop {
    /// Runs it.
    fn run(self);
}

/// Runs a loop compiled for the best instructions that the processor has. Results are the same whatever they are.
pub(crate) fn vectorised(work: impl Loop) {
    struct Vectorised<L>(L);

    impl<L: Loop> Work for Vectorised<L> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            self.0.run();
        }
    }

    dispatch(Vectorised(work));
}

/// The name of the instructions that [`dispatch`] picks.
pub(crate) fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if avx2::AVX2.is_some() {
        return "avx2";
    }
    "portable"
}

#[cfg(test)]
mod tests {
    use super::portable::Portable;
    use super::{LANES, Rescale, Simd, Wide, Work, dispatch};

    /// Runs a function with every instruction set there is here and compares.
    struct Everything;

    impl Work for Everything {
        type Output = (Vec<f32>, Vec<i32>, Vec<u8>);

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Self::Output {
            let mut floats = Vec::new();
            let mut keep = |vector: S::F32| {
                let mut lanes = [0.0; LANES];
                simd.store(vector, &mut lanes);
                floats.extend(lanes);
            };
            let left = simd.load(&std::array::from_fn(|lane| lane as f32 * 3.0 - 7.5));
            let right = simd.load(&std::array::from_fn(|lane| (lane % 3) as f32 + 0.5));
            keep(simd.add(left, right));
            keep(simd.mul(left, right));
            keep(simd.mul_add(left, right, simd.splat(2.0)));
            keep(simd.at_least(left, right));
            keep(simd.at_most(left, right));
            let mut integers = Vec::new();
            let mut keep = |vector: S::I32| {
                let mut lanes = [0; LANES];
                simd.store_i32(vector, &mut lanes);
                integers.extend(lanes);
            };
            let rows: [[i16; 16]; 2] = [
                std::array::from_fn(|at| at as i16 * 7 - 50),
                std::array::from_fn(|at| 300 - at as i16 * 31),
            ];
            let [low, high] = simd.interleave(&rows[0], &rows[1]);
            let weights = simd.load_pairs(&rows[1]);
            keep(simd.add_products(simd.splat_i32(5), low, weights));
            keep(simd.add_products(simd.splat_i32(-5), high, weights));
            let sums = simd.load_i32(&std::array::from_fn(|lane| (lane as i32 - 3) * 1_234_567));
            let by = Rescale {
                mantissa: simd.splat_i32(0x5234_5678),
                left: simd.load_i32(&[0, 0, 0, 0, 1, 1, 0, 0]),
                right: simd.load_i32(&[0, 1, 5, 9, 0, 0, 13, 31]),
                mask: simd.load_i32(&[0, 1, 31, 511, 0, 0, 8191, i32::MAX]),
            };
            let scaled = simd.rescale(sums, &by);
            keep(scaled);
            let wide = Wide::new(std::array::from_fn(|lane| {
                (0x5234_5678 + lane as i32, [1, 2, 7, 31][lane % 4])
            }));
            keep(simd.rescale_wide(sums, &wide));
            let cut = simd.clamp_i32(scaled, simd.splat_i32(-100), simd.splat_i32(100));
            keep(simd.add_i32(cut, cut));
            keep(simd.sub_i32(cut, scaled));
            let raw = std::array::from_fn(|at| (at * 37) as u8);
            simd.load_bytes::<true>(&raw).into_iter().for_each(&mut keep);
            simd.load_bytes::<false>(&raw).into_iter().for_each(&mut keep);
            let mut bytes = [0; 16];
            let range = |ends: [i8; 2]| ends.map(|end| simd.splat_i32(i32::from_ne_bytes([end as u8; 4])));
            let mut all = Vec::new();
            for columns in [[cut, simd.splat_i32(-7)], [scaled, sums]] {
                for signed_range in [[-128, 127], [-20, 30]] {
                    simd.store_bytes::<true>(columns, range(signed_range), &mut bytes);
                    all.extend(bytes);
                }
                for unsigned_range in [[0, -1], [3, -100]] {
                    simd.store_bytes::<false>(columns, range(unsigned_range), &mut bytes);
                    all.extend(bytes);
                }
            }
            (floats, integers, all)
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same() {
        assert_eq!(dispatch(Everything), Everything.run(Portable));
    }

    #[test]
    fn nan_stays_when_cut() {
        let vector = Portable.splat(f32::NAN);
        let cut = Portable.at_most(
            Portable.at_least(vector, Portable.splat(0.0)),
            Portable.splat(6.0),
        );
        assert!(cut[0].is_nan());
    }
}
