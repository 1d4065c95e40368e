//! The operations on vectors that every instruction set has.

use std::fmt::Debug;

use super::lanes::{COLUMN_ORDER, LANES, WIDE};
use super::scales::{ByteForm, FloatScale, Rescale, RescaleOnce};

/// A float that is stored in half precision, if it is finite: the same without calls and branches.
#[inline(always)]
fn of_half(bits: u16) -> f32 {
    /// What the exponent of one is away from the other's, as a factor.
    const TWO_TO_112: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * TWO_TO_112;
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}
/// The operations of an instruction set on vectors of `N` lanes.
pub(in crate::fast) trait Simd<const N: usize>: Copy {
    /// 32-bit floats.
    type F32: Copy + Debug;
    /// 32-bit integers, or pairs of 16-bit ones.
    type I32: Copy + Debug;
    /// 16-bit integers in memory, two for each lane.
    type Pairs: bytemuck::Pod;
    /// Whether tiles take one value or pair of each row at a time, not two. Of two values, LLVM loads those
    /// of all rows first where loads are cheap, and has no registers for them; of two pairs, where one
    /// instruction multiplies and adds, it makes a product and a sum of the second, which waits less but
    /// takes twice as long where there is no waiting.
    const ONE_BY_ONE: bool = false;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &[f32; N]) -> Self::F32;
    /// Floats that are stored in half precision; of what is infinite or none, anything.
    #[inline(always)]
    fn load_half(self, from: &[u16; N]) -> Self::F32 {
        self.load(&from.map(of_half))
    }
    fn store(self, vector: Self::F32, to: &mut [f32; N]);
    fn add(self, left: Self::F32, right: Self::F32) -> Self::F32;
    fn mul(self, left: Self::F32, right: Self::F32) -> Self::F32;
    /// `left * right + sum`, rounded once or twice.
    fn mul_add(self, left: Self::F32, right: Self::F32, sum: Self::F32) -> Self::F32;
    /// The larger of the two; a NaN in `value` stays one.
    fn at_least(self, value: Self::F32, low: Self::F32) -> Self::F32;
    /// The smaller of the two; a NaN in `value` stays one.
    fn at_most(self, value: Self::F32, high: Self::F32) -> Self::F32;
    /// `value` where it is at least 0, else `value * factor`.
    fn scale_negative(self, value: Self::F32, factor: Self::F32) -> Self::F32;

    fn splat_i32(self, value: i32) -> Self::I32;
    fn load_i32(self, from: &[i32; N]) -> Self::I32;
    fn store_i32(self, vector: Self::I32, to: &mut [i32; N]);
    fn add_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    fn sub_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    /// The floats nearest to integers.
    fn floats(self, integers: Self::I32) -> Self::F32;
    /// The integers nearest to floats, of two the even one; anything of magnitudes from `2^22` on.
    fn nearest(self, floats: Self::F32) -> Self::I32;
    /// `value` times `2^bits`, which fits 32 bits.
    fn shift_left(self, value: Self::I32, bits: i32) -> Self::I32;
    /// `value` clamped to `low..=high`.
    fn clamp_i32(self, value: Self::I32, low: Self::I32, high: Self::I32) -> Self::I32;
    /// Pairs of 16-bit integers.
    fn load_pairs(self, from: &Self::Pairs) -> Self::I32;
    /// `sums` plus the sums of the products of pairs.
    fn add_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    /// Rescales sums as [`crate::kernels::fixed_point::Multiplier::apply`] does, those of the lanes from the
    /// `first` on.
    fn rescale(self, sums: Self::I32, by: &Rescale, first: usize) -> Self::I32;
    /// Rescales sums likewise, in one step.
    fn rescale_once(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32;
    /// The same where results below 0 may be others that are not above 0.
    fn rescale_positive(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32;
}

/// What is done with sixteen columns of 8-bit values or of pairs of 16-bit ones.
pub(in crate::fast) trait Columns: Simd<WIDE> {
    /// Vectors of half as many lanes.
    type Narrow: Simd<LANES>;

    /// A wide vector of two narrow ones.
    fn join(
        self,
        low: <Self::Narrow as Simd<LANES>>::I32,
        high: <Self::Narrow as Simd<LANES>>::I32,
    ) -> Self::I32;
    /// Pairs of what two rows hold for each of sixteen columns, in [`COLUMN_ORDER`].
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> Self::I32;
    /// Whether there are instructions that round floats towards zero, whatever others do: those that
    /// [`FloatScale`] needs.
    const TRUNCATES: bool = false;
    /// Rescales sums by floats, of which there are some only where [`Columns::TRUNCATES`] says so; with
    /// `CLAMPED`, results below 0 may be others that are not above 0.
    #[inline(always)]
    fn rescale_by_floats<const CLAMPED: bool>(self, _: Self::I32, _: &FloatScale) -> Self::I32 {
        unreachable!("nothing is rescaled by floats with these instructions")
    }
    /// `sums` plus the sums of the products of four bytes, unsigned ones on the left with signed ones on the
    /// right.
    fn add_byte_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    /// Sixteen 8-bit columns in [`COLUMN_ORDER`].
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> Self::I32;
    /// Sixteen columns in natural order, clamped to 8 bits and to a range.
    fn store_bytes<const SIGNED: bool>(self, columns: Self::I32, range: [u8; 2], to: &mut [u8; WIDE]);
    /// What four rows hold at each of 64 places, side by side, with the bits `flip` turned over.
    #[inline(always)]
    fn by_fours(self, rows: [&[u8; 4 * WIDE]; 4], flip: u8, to: &mut [[u8; 4]; 4 * WIDE]) {
        for (at, to) in to.iter_mut().enumerate() {
            for (row, to) in rows.iter().zip(to) {
                *to = row[at] ^ flip;
            }
        }
    }
    /// What a table has for each of 64 bytes.
    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        for (byte, to) in bytes.iter().zip(to) {
            *to = table[usize::from(*byte)];
        }
    }
    /// Four times sixteen columns of output steps from real 0, in natural order or in [`COLUMN_ORDER`], in a
    /// form of 8 bits.
    #[inline(always)]
    fn bytes_of_four<const NATURAL: bool>(self, columns: [Self::I32; 4], form: &ByteForm) -> [[u8; WIDE]; 4] {
        let mut all = [[0; WIDE]; 4];
        let zero_point = self.splat_i32(form.zero_point[0].into());
        let (range, flip) = ([form.least[0], form.most[0]], form.flip[0]);
        for (columns, to) in columns.into_iter().zip(&mut all) {
            self.store_bytes::<false>(self.add_i32(columns, zero_point), range, to);
            if NATURAL {
                let bytes = *to;
                for (to, column) in to.iter_mut().zip(COLUMN_ORDER) {
                    *to = bytes[column];
                }
            }
            for byte in to {
                *byte ^= flip;
            }
        }
        all
    }
    /// The same of two times twice sixteen columns in [`COLUMN_ORDER`], neighbours in natural order side by
    /// side.
    #[inline(always)]
    fn bytes_of_pairs(self, columns: [Self::I32; 4], form: &ByteForm) -> [[u8; 2 * WIDE]; 2] {
        bytemuck::cast(self.bytes_of_four::<false>(columns, form))
    }
}
