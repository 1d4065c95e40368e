//! Vectors in NEON's registers: two of four lanes for a narrow vector, four for a wide one.

use std::arch::aarch64::*;
use std::arch::asm;

use super::instructions::{Instructions, Work};
use super::lanes::{LANES, WIDE, lanes_from};
use super::pair::{Halves, Pair};
use super::scales::{Rescale, RescaleOnce};
use super::vectors::Simd;

/// NEON, and with `DOT` instructions that sum the products of four bytes: then there is a value only where
/// the processor has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon<const DOT: bool = false>(());

/// For what is the same with and without them.
const NEON: Neon = Neon(());

impl Neon {
    /// Where it is not known whether the processor has more.
    pub(super) fn new() -> Neon {
        NEON
    }
}

impl Neon<true> {
    /// Where this processor has both.
    pub(super) fn find() -> Option<Neon<true>> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Neon(()))
    }

    /// Sums of products of four signed bytes.
    #[inline(always)]
    fn dot(self, sums: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
        let mut sums = sums;
        // SAFETY: the instruction touches no memory and no flags; `self` exists, so the processor has it.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {sums:v}.4s, {left:v}.16b, {right:v}.16b",
                sums = inout(vreg) sums,
                left = in(vreg) left,
                right = in(vreg) right,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    }
}

impl<const DOT: bool> Neon<DOT> {
    /// The same, if it is the one with instructions for bytes.
    #[inline(always)]
    fn with_dot(self) -> Option<Neon<true>> {
        DOT.then_some(Neon(()))
    }

    /// Runs a kernel as a function of its own: kernels for several instruction sets in one function take long
    /// to compile.
    #[inline(never)]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        work.run(self)
    }
}

/// The registers of a narrow vector of floats, written out as those of [`Pair`] are.
type Floats = [float32x4_t; 2];

/// The registers of a narrow vector of integers.
type Integers = [int32x4_t; 2];

/// The same, if they hold pairs.
type Words = [int16x8_t; 2];

// Every processor of this architecture has NEON, and only a build that leaves it out would not use it.
const _: () = assert!(cfg!(target_feature = "neon"));

/// An instruction that every processor has which this build runs on.
macro_rules! instruction {
    ($call:expr) => {{
        // SAFETY: the instruction needs NEON and touches no memory; the build's base set has it, as the
        // assertion above says, so the processor has it.
        unsafe { $call }
    }};
}

/// An instruction for both registers of narrow vectors.
macro_rules! of_both {
    ($name:ident $(::<$shift:literal>)? ($($vector:ident),*)) => {
        [
            instruction!($name$(::<$shift>)?($($vector[0]),*)),
            instruction!($name$(::<$shift>)?($($vector[1]),*)),
        ]
    };
}

/// The pairs in the lanes of integers as 16-bit integers.
#[inline(always)]
fn words(vector: Integers) -> Words {
    bytemuck::cast(vector)
}

/// The other way.
#[inline(always)]
fn pairs(words: Words) -> Integers {
    bytemuck::cast(words)
}

/// The first ones of pairs, and the second ones.
#[inline(always)]
fn apart(vector: Integers) -> Words {
    let [low, high] = words(vector);
    [
        instruction!(vuzp1q_s16(low, high)),
        instruction!(vuzp2q_s16(low, high)),
    ]
}

#[inline(always)]
fn add_products_of_words(sums: Integers, left: int16x8_t, right: int16x8_t) -> Integers {
    let low_left = instruction!(vget_low_s16(left));
    let low_right = instruction!(vget_low_s16(right));
    [
        instruction!(vmlal_s16(sums[0], low_left, low_right)),
        instruction!(vmlal_high_s16(sums[1], left, right)),
    ]
}

/// Products with a mantissa, doubled, and the upper halves of that, rounded to nearest.
///
/// Mantissas are from 0 up to 2^31 - 1, so no product is the one that the instruction saturates, and results
/// are above `i32::MIN`: they may be made one less.
#[inline(always)]
fn high_products(sums: Integers, mantissa: &[i32; WIDE], first: usize) -> Integers {
    let mantissa = NEON.load_i32(lanes_from(mantissa, first));
    of_both!(vqrdmulhq_s32(sums, mantissa))
}

/// By how many bits to the left [`RescaleOnce`] shifts, less than none. Its shift to the right is one less
/// there, and the complement of that is this.
#[inline(always)]
fn shift_once(by: &RescaleOnce, first: usize) -> Integers {
    let right = NEON.load_i32(lanes_from(&by.right, first));
    of_both!(vmvnq_s32(right))
}

impl<const DOT: bool> Instructions for Neon<DOT> {
    type Narrow = Self;
    type Wide = Pair<Self>;
    const HAS_WIDE: bool = false;
    const MULTIPLIES_BYTES: bool = DOT;
    const FUSES: bool = true;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn wide(self) -> Pair<Self> {
        Pair(self)
    }

    #[inline(always)]
    fn apart<W: Work>(self, work: W) -> W::Output {
        self.run(work)
    }
}

impl<const DOT: bool> Simd<LANES> for Neon<DOT> {
    type F32 = Floats;
    type I32 = Integers;
    type Pairs = [i16; WIDE];
    // The sums of a tile and its weights are 28 registers of 32.
    const ONE_BY_ONE: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        let register = instruction!(vdupq_n_f32(value));
        [register, register]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Floats {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn store(self, vector: Floats, to: &mut [f32; LANES]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add(self, left: Floats, right: Floats) -> Floats {
        of_both!(vaddq_f32(left, right))
    }

    #[inline(always)]
    fn mul(self, left: Floats, right: Floats) -> Floats {
        of_both!(vmulq_f32(left, right))
    }

    #[inline(always)]
    fn mul_add(self, left: Floats, right: Floats, sum: Floats) -> Floats {
        of_both!(vfmaq_f32(sum, left, right))
    }

    // By comparison: the instructions for extremes would take 0 for more than -0, which other instruction
    // sets do not.
    #[inline(always)]
    fn at_least(self, value: Floats, low: Floats) -> Floats {
        let is_less = of_both!(vcltq_f32(value, low));
        of_both!(vbslq_f32(is_less, low, value))
    }

    #[inline(always)]
    fn at_most(self, value: Floats, high: Floats) -> Floats {
        let is_more = of_both!(vcgtq_f32(value, high));
        of_both!(vbslq_f32(is_more, high, value))
    }

    #[inline(always)]
    fn scale_negative(self, value: Floats, factor: Floats) -> Floats {
        let (zero, scaled) = (self.splat(0.0), self.mul(value, factor));
        let is_kept = of_both!(vcgeq_f32(value, zero));
        of_both!(vbslq_f32(is_kept, value, scaled))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Integers {
        let register = instruction!(vdupq_n_s32(value));
        [register, register]
    }

    #[inline(always)]
    fn load_i32(self, from: &[i32; LANES]) -> Integers {
        bytemuck::cast(*from)
    }

    fn store_i32(self, vector: Integers, to: &mut [i32; LANES]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add_i32(self, left: Integers, right: Integers) -> Integers {
        of_both!(vaddq_s32(left, right))
    }

    #[inline(always)]
    fn sub_i32(self, left: Integers, right: Integers) -> Integers {
        of_both!(vsubq_s32(left, right))
    }

    #[inline(always)]
    fn floats(self, integers: Integers) -> Floats {
        of_both!(vcvtq_f32_s32(integers))
    }

    #[inline(always)]
    fn nearest(self, floats: Floats) -> Integers {
        of_both!(vcvtnq_s32_f32(floats))
    }

    #[inline(always)]
    fn shift_left(self, value: Integers, bits: i32) -> Integers {
        let bits = self.splat_i32(bits);
        of_both!(vshlq_s32(value, bits))
    }

    #[inline(always)]
    fn clamp_i32(self, value: Integers, low: Integers, high: Integers) -> Integers {
        let raised = of_both!(vmaxq_s32(value, low));
        of_both!(vminq_s32(raised, high))
    }

    #[inline(always)]
    fn load_pairs(self, from: &[i16; WIDE]) -> Integers {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn add_products(self, sums: Integers, left: Integers, right: Integers) -> Integers {
        // What pairs begin with and what they end with apart, so that products add up without a sum across
        // lanes. Tiles have that done once for each value and each weight.
        let (left, right) = (apart(left), apart(right));
        let sums = add_products_of_words(sums, left[0], right[0]);
        add_products_of_words(sums, left[1], right[1])
    }

    #[inline(always)]
    fn rescale(self, sums: Integers, by: &Rescale, first: usize) -> Integers {
        let left = self.load_i32(lanes_from(&by.left, first));
        let right = self.load_i32(lanes_from(&by.right, first));
        let shifted = of_both!(vqshlq_s32(sums, left));
        let high = high_products(shifted, &by.mantissa, first);
        // The instruction rounds halves up, so what is negative and shifted is one less before: away from
        // zero.
        let shift = of_both!(vnegq_s32(right));
        let is_negative = of_both!(vandq_s32(high, shift));
        let high = of_both!(vsraq_n_s32::<31>(high, is_negative));
        of_both!(vrshlq_s32(high, shift))
    }

    // What is said in [`crate::fast::requantize`] goes the other way here: two steps round as the one does.
    #[inline(always)]
    fn rescale_once(self, sums: Integers, by: &RescaleOnce, first: usize) -> Integers {
        let shift = shift_once(by, first);
        let high = high_products(sums, &by.mantissa, first);
        let high = of_both!(vsraq_n_s32::<31>(high, high));
        of_both!(vrshlq_s32(high, shift))
    }

    #[inline(always)]
    fn rescale_positive(self, sums: Integers, by: &RescaleOnce, first: usize) -> Integers {
        let shift = shift_once(by, first);
        let high = high_products(sums, &by.mantissa, first);
        of_both!(vrshlq_s32(high, shift))
    }
}

impl<const DOT: bool> Halves for Neon<DOT> {
    #[inline(always)]
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> [Integers; 2] {
        let (first, second): (Words, Words) = (bytemuck::cast(*first), bytemuck::cast(*second));
        [
            pairs(of_both!(vzip1q_s16(first, second))),
            pairs(of_both!(vzip2q_s16(first, second))),
        ]
    }

    #[inline(always)]
    fn add_byte_products(self, sums: Integers, left: Integers, right: Integers) -> Integers {
        if let Some(simd) = self.with_dot() {
            // Both are signed for the instruction, so values are 128 less, which is made good for all rows.
            let (left, right): ([uint8x16_t; 2], [int8x16_t; 2]) =
                (bytemuck::cast(left), bytemuck::cast(right));
            let top = instruction!(vdupq_n_u8(0x80));
            let left: [int8x16_t; 2] = bytemuck::cast([
                instruction!(veorq_u8(left[0], top)),
                instruction!(veorq_u8(left[1], top)),
            ]);
            let (least, none) = (instruction!(vdupq_n_s8(i8::MIN)), instruction!(vdupq_n_s32(0)));
            let less = [simd.dot(none, least, right[0]), simd.dot(none, least, right[1])];
            let products = [
                simd.dot(sums[0], left[0], right[0]),
                simd.dot(sums[1], left[1], right[1]),
            ];
            return of_both!(vsubq_s32(products, less));
        }
        let (left, right): ([uint16x8_t; 2], Words) = (bytemuck::cast(left), words(right));
        let low = instruction!(vdupq_n_u16(0xff));
        let low = [low, low];
        let even_left = of_both!(vandq_u16(left, low));
        let odd_left = of_both!(vshrq_n_u16::<8>(left));
        let even_right = of_both!(vshlq_n_s16::<8>(right));
        let even_right = of_both!(vshrq_n_s16::<8>(even_right));
        let odd_right = of_both!(vshrq_n_s16::<8>(right));
        let sums = self.add_products(sums, bytemuck::cast(even_left), pairs(even_right));
        self.add_products(sums, bytemuck::cast(odd_left), pairs(odd_right))
    }

    #[inline(always)]
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> [Integers; 2] {
        let words: Words = if SIGNED {
            let halves: [int8x8_t; 2] = bytemuck::cast(*from);
            of_both!(vmovl_s8(halves))
        } else {
            let halves: [uint8x8_t; 2] = bytemuck::cast(*from);
            bytemuck::cast(of_both!(vmovl_u8(halves)))
        };
        let low = of_both!(vget_low_s16(words));
        [of_both!(vmovl_s16(low)), of_both!(vmovl_high_s16(words))]
    }

    #[inline(always)]
    fn store_bytes<const SIGNED: bool>(
        self,
        [low, high]: [Integers; 2],
        range: [u8; 2],
        to: &mut [u8; WIDE],
    ) {
        let words = of_both!(vqmovn_s32(low));
        let words = of_both!(vqmovn_high_s32(words, high));
        *to = if SIGNED {
            let least = instruction!(vdupq_n_s8(range[0] as i8));
            let most = instruction!(vdupq_n_s8(range[1] as i8));
            let bytes = instruction!(vqmovn_s16(words[0]));
            let bytes = instruction!(vqmovn_high_s16(bytes, words[1]));
            let raised = instruction!(vmaxq_s8(bytes, least));
            bytemuck::cast(instruction!(vminq_s8(raised, most)))
        } else {
            let least = instruction!(vdupq_n_u8(range[0]));
            let most = instruction!(vdupq_n_u8(range[1]));
            let bytes = instruction!(vqmovun_s16(words[0]));
            let bytes = instruction!(vqmovun_high_s16(bytes, words[1]));
            let raised = instruction!(vmaxq_u8(bytes, least));
            bytemuck::cast(instruction!(vminq_u8(raised, most)))
        };
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        let (quarters, _) = table.as_chunks::<64>();
        let quarter = |number: usize| {
            let vectors: [uint8x16_t; 4] = bytemuck::cast(quarters[number]);
            uint8x16x4_t(vectors[0], vectors[1], vectors[2], vectors[3])
        };
        let step = instruction!(vdupq_n_u8(64));
        let (bytes, to) = (bytes.as_chunks::<WIDE>().0, to.as_chunks_mut::<WIDE>().0);
        for (bytes, to) in bytes.iter().zip(to) {
            let mut at: uint8x16_t = bytemuck::cast(*bytes);
            // What lies beyond a quarter is 0 or stays.
            let mut found = instruction!(vqtbl4q_u8(quarter(0), at));
            for number in 1..4 {
                at = instruction!(vsubq_u8(at, step));
                found = instruction!(vqtbx4q_u8(found, quarter(number), at));
            }
            *to = bytemuck::cast(found);
        }
    }
}
