//! Wide vectors as two narrow ones, for instruction sets whose registers have eight lanes or four.

use super::lanes::{LANES, WIDE};
use super::scales::{Rescale, RescaleOnce};
use super::vectors::{Columns, Simd};

/// Two vectors in place of one that is twice as wide. They are written out as `[low, high]`: what is repeated
/// by `[half; 2]` becomes a loop, and large functions have so many then that they take minutes to compile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<S>(pub(super) S);

/// What a set of eight lanes does with sixteen columns; see [`Columns`].
pub(super) trait Halves: Simd<LANES> {
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> [Self::I32; 2];
    fn add_byte_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> [Self::I32; 2];
    fn store_bytes<const SIGNED: bool>(self, columns: [Self::I32; 2], range: [u8; 2], to: &mut [u8; WIDE]);
    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        for (byte, to) in bytes.iter().zip(to) {
            *to = table[usize::from(*byte)];
        }
    }
}

/// The halves of an array.
#[inline(always)]
fn halves<T>(whole: &[T; WIDE]) -> [&[T; LANES]; 2] {
    let (halves, _) = whole.as_chunks::<LANES>();
    [&halves[0], &halves[1]]
}

#[inline(always)]
fn halves_mut<T>(whole: &mut [T; WIDE]) -> [&mut [T; LANES]; 2] {
    match whole.as_chunks_mut::<LANES>().0 {
        [low, high] => [low, high],
        _ => unreachable!("sixteen are twice eight"),
    }
}

impl<S: Halves<Pairs = [i16; WIDE]>> Simd<WIDE> for Pair<S> {
    type F32 = [S::F32; 2];
    type I32 = [S::I32; 2];
    type Pairs = [i16; 2 * WIDE];
    const ONE_BY_ONE: bool = S::ONE_BY_ONE;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        let half = self.0.splat(value);
        [half, half]
    }

    #[inline(always)]
    fn load(self, from: &[f32; WIDE]) -> Self::F32 {
        let [low, high] = halves(from);
        [self.0.load(low), self.0.load(high)]
    }

    #[inline(always)]
    fn load_half(self, from: &[u16; WIDE]) -> Self::F32 {
        let [low, high] = halves(from);
        [self.0.load_half(low), self.0.load_half(high)]
    }

    #[inline(always)]
    fn store(self, vector: Self::F32, to: &mut [f32; WIDE]) {
        let [low, high] = halves_mut(to);
        self.0.store(vector[0], low);
        self.0.store(vector[1], high);
    }

    #[inline(always)]
    fn add(self, left: Self::F32, right: Self::F32) -> Self::F32 {
        [self.0.add(left[0], right[0]), self.0.add(left[1], right[1])]
    }

    #[inline(always)]
    fn mul(self, left: Self::F32, right: Self::F32) -> Self::F32 {
        [self.0.mul(left[0], right[0]), self.0.mul(left[1], right[1])]
    }

    #[inline(always)]
    fn mul_add(self, left: Self::F32, right: Self::F32, sum: Self::F32) -> Self::F32 {
        [
            self.0.mul_add(left[0], right[0], sum[0]),
            self.0.mul_add(left[1], right[1], sum[1]),
        ]
    }

    #[inline(always)]
    fn at_least(self, value: Self::F32, low: Self::F32) -> Self::F32 {
        [
            self.0.at_least(value[0], low[0]),
            self.0.at_least(value[1], low[1]),
        ]
    }

    #[inline(always)]
    fn at_most(self, value: Self::F32, high: Self::F32) -> Self::F32 {
        [
            self.0.at_most(value[0], high[0]),
            self.0.at_most(value[1], high[1]),
        ]
    }

    #[inline(always)]
    fn scale_negative(self, value: Self::F32, factor: Self::F32) -> Self::F32 {
        [
            self.0.scale_negative(value[0], factor[0]),
            self.0.scale_negative(value[1], factor[1]),
        ]
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        let half = self.0.splat_i32(value);
        [half, half]
    }

    #[inline(always)]
    fn load_i32(self, from: &[i32; WIDE]) -> Self::I32 {
        let [low, high] = halves(from);
        [self.0.load_i32(low), self.0.load_i32(high)]
    }

    fn store_i32(self, vector: Self::I32, to: &mut [i32; WIDE]) {
        let [low, high] = halves_mut(to);
        self.0.store_i32(vector[0], low);
        self.0.store_i32(vector[1], high);
    }

    #[inline(always)]
    fn add_i32(self, left: Self::I32, right: Self::I32) -> Self::I32 {
        [
            self.0.add_i32(left[0], right[0]),
            self.0.add_i32(left[1], right[1]),
        ]
    }

    #[inline(always)]
    fn sub_i32(self, left: Self::I32, right: Self::I32) -> Self::I32 {
        [
            self.0.sub_i32(left[0], right[0]),
            self.0.sub_i32(left[1], right[1]),
        ]
    }

    #[inline(always)]
    fn floats(self, integers: Self::I32) -> Self::F32 {
        [self.0.floats(integers[0]), self.0.floats(integers[1])]
    }

    #[inline(always)]
    fn nearest(self, floats: Self::F32) -> Self::I32 {
        [self.0.nearest(floats[0]), self.0.nearest(floats[1])]
    }

    #[inline(always)]
    fn shift_left(self, value: Self::I32, bits: i32) -> Self::I32 {
        value.map(|half| self.0.shift_left(half, bits))
    }

    #[inline(always)]
    fn clamp_i32(self, value: Self::I32, low: Self::I32, high: Self::I32) -> Self::I32 {
        [
            self.0.clamp_i32(value[0], low[0], high[0]),
            self.0.clamp_i32(value[1], low[1], high[1]),
        ]
    }

    #[inline(always)]
    fn load_pairs(self, from: &Self::Pairs) -> Self::I32 {
        let (halves, _) = from.as_chunks::<WIDE>();
        [self.0.load_pairs(&halves[0]), self.0.load_pairs(&halves[1])]
    }

    #[inline(always)]
    fn add_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32 {
        [
            self.0.add_products(sums[0], left[0], right[0]),
            self.0.add_products(sums[1], left[1], right[1]),
        ]
    }

    #[inline(always)]
    fn rescale(self, sums: Self::I32, by: &Rescale, first: usize) -> Self::I32 {
        [
            self.0.rescale(sums[0], by, first),
            self.0.rescale(sums[1], by, first + LANES),
        ]
    }

    #[inline(always)]
    fn rescale_once(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32 {
        [
            self.0.rescale_once(sums[0], by, first),
            self.0.rescale_once(sums[1], by, first + LANES),
        ]
    }

    #[inline(always)]
    fn rescale_positive(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32 {
        [
            self.0.rescale_positive(sums[0], by, first),
            self.0.rescale_positive(sums[1], by, first + LANES),
        ]
    }
}

impl<S: Halves<Pairs = [i16; WIDE]>> Columns for Pair<S> {
    type Narrow = S;

    #[inline(always)]
    fn join(self, low: S::I32, high: S::I32) -> Self::I32 {
        [low, high]
    }

    #[inline(always)]
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> Self::I32 {
        self.0.interleave(first, second)
    }

    #[inline(always)]
    fn add_byte_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32 {
        [
            self.0.add_byte_products(sums[0], left[0], right[0]),
            self.0.add_byte_products(sums[1], left[1], right[1]),
        ]
    }

    #[inline(always)]
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> Self::I32 {
        self.0.load_bytes::<SIGNED>(from)
    }

    #[inline(always)]
    fn store_bytes<const SIGNED: bool>(self, columns: Self::I32, range: [u8; 2], to: &mut [u8; WIDE]) {
        self.0.store_bytes::<SIGNED>(columns, range, to);
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        self.0.look_up(table, bytes, to);
    }
}
