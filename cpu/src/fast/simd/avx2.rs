//! Vectors in AVX2's registers.

use std::arch::x86_64::*;

use super::instructions::{Instructions, Work};
use super::lanes::{LANES, WIDE, lanes_from};
use super::pair::{Halves, Pair};
use super::scales::{Rescale, RescaleOnce};
use super::vectors::Simd;

/// AVX2, FMA and F16C, as every processor with AVX2 has. There is a value only where the processor has all
/// three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Where this processor has all three.
    pub(super) fn find() -> Option<Avx2> {
        let has_all = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        has_all.then_some(Avx2(()))
    }

    /// Runs a kernel compiled for all three features.
    #[inline]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<W: Work>(work: W, simd: Avx2) -> W::Output {
            work.run(simd)
        }
        // SAFETY: `self` exists, so the processor has all three features.
        unsafe { compiled(work, self) }
    }
}

/// An instruction that the processor has, since a value of [`Avx2`] exists.
macro_rules! instruction {
    ($call:expr) => {{
        // SAFETY: the instruction needs AVX2, FMA or F16C and touches no memory; `self` exists, so the
        // processor has all three.
        unsafe { $call }
    }};
}

impl Avx2 {
    /// What is added to a product: the second where it is negative, by the sign of all its 64 bits.
    #[inline(always)]
    fn nudge(self, product: __m256i, nudges: &[[i64; LANES]; 2], first: usize) -> __m256i {
        let positive: [i64; LANES / 2] = *lanes_from(&nudges[0], first);
        let negative: [i64; LANES / 2] = *lanes_from(&nudges[1], first);
        let (positive, negative): (__m256d, __m256d) = (bytemuck::cast(positive), bytemuck::cast(negative));
        let product = instruction!(_mm256_castsi256_pd(product));
        let nudge = instruction!(_mm256_blendv_pd(positive, negative, product));
        instruction!(_mm256_castpd_si256(nudge))
    }

    /// The products of even lanes and of odd ones with their mantissas, in 64 bits.
    #[inline(always)]
    fn products(self, sums: __m256i, by: &RescaleOnce, first: usize) -> [__m256i; 2] {
        let mantissa = self.load_i32(lanes_from(&by.mantissa, first));
        let odd_mantissa = self.load_i32(lanes_from(&by.odd_mantissa, first));
        let odd_lanes = instruction!(_mm256_srli_epi64::<32>(sums));
        [
            instruction!(_mm256_mul_epi32(sums, mantissa)),
            instruction!(_mm256_mul_epi32(odd_lanes, odd_mantissa)),
        ]
    }

    /// Products with what rounds them, shifted into their lanes.
    #[inline(always)]
    fn rounded(
        self,
        [even, odd]: [__m256i; 2],
        nudges: [__m256i; 2],
        by: &RescaleOnce,
        first: usize,
    ) -> __m256i {
        let right = self.load_i32(lanes_from(&by.right, first));
        let even = instruction!(_mm256_add_epi64(even, nudges[0]));
        let odd = instruction!(_mm256_add_epi64(odd, nudges[1]));
        let even = instruction!(_mm256_srli_epi64::<32>(even));
        let high = instruction!(_mm256_blend_epi32::<0b1010_1010>(even, odd));
        instruction!(_mm256_srav_epi32(high, right))
    }
}

impl Instructions for Avx2 {
    type Narrow = Avx2;
    type Wide = Pair<Avx2>;
    const HAS_WIDE: bool = false;
    const FUSES: bool = true;

    #[inline(always)]
    fn narrow(self) -> Avx2 {
        self
    }

    #[inline(always)]
    fn wide(self) -> Pair<Avx2> {
        Pair(self)
    }

    #[inline(always)]
    fn apart<W: Work>(self, work: W) -> W::Output {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<W: Work>(work: W, simd: Avx2) -> W::Output {
            work.run(simd)
        }
        // SAFETY: `self` exists, so the processor has all three features.
        unsafe { compiled(work, self) }
    }
}

impl Avx2 {
    /// Sums shifted left; where that loses bits, the end of the range that they are nearest to.
    #[inline(always)]
    fn shifted(self, sums: __m256i, left: __m256i) -> __m256i {
        let shifted = instruction!(_mm256_sllv_epi32(sums, left));
        let back = instruction!(_mm256_srav_epi32(shifted, left));
        let is_kept = instruction!(_mm256_cmpeq_epi32(back, sums));
        let sign = instruction!(_mm256_srai_epi32::<31>(sums));
        let end = instruction!(_mm256_xor_si256(sign, _mm256_set1_epi32(i32::MAX)));
        instruction!(_mm256_blendv_epi8(end, shifted, is_kept))
    }
}

impl Simd<LANES> for Avx2 {
    type F32 = __m256;
    type I32 = __m256i;
    type Pairs = [i16; WIDE];

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        instruction!(_mm256_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m256 {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn load_half(self, from: &[u16; LANES]) -> __m256 {
        instruction!(_mm256_cvtph_ps(bytemuck::cast(*from)))
    }

    #[inline(always)]
    fn store(self, vector: __m256, to: &mut [f32; LANES]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add(self, left: __m256, right: __m256) -> __m256 {
        instruction!(_mm256_add_ps(left, right))
    }

    #[inline(always)]
    fn mul(self, left: __m256, right: __m256) -> __m256 {
        instruction!(_mm256_mul_ps(left, right))
    }

    #[inline(always)]
    fn mul_add(self, left: __m256, right: __m256, sum: __m256) -> __m256 {
        instruction!(_mm256_fmadd_ps(left, right, sum))
    }

    // The instructions return their second operand if either is a NaN.
    #[inline(always)]
    fn at_least(self, value: __m256, low: __m256) -> __m256 {
        instruction!(_mm256_max_ps(low, value))
    }

    #[inline(always)]
    fn at_most(self, value: __m256, high: __m256) -> __m256 {
        instruction!(_mm256_min_ps(high, value))
    }

    #[inline(always)]
    fn scale_negative(self, value: __m256, factor: __m256) -> __m256 {
        let scaled = self.mul(value, factor);
        let is_negative = instruction!(_mm256_cmp_ps::<_CMP_NGE_UQ>(value, _mm256_setzero_ps()));
        instruction!(_mm256_blendv_ps(value, scaled, is_negative))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> __m256i {
        instruction!(_mm256_set1_epi32(value))
    }

    #[inline(always)]
    fn load_i32(self, from: &[i32; LANES]) -> __m256i {
        bytemuck::cast(*from)
    }

    fn store_i32(self, vector: __m256i, to: &mut [i32; LANES]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add_i32(self, left: __m256i, right: __m256i) -> __m256i {
        instruction!(_mm256_add_epi32(left, right))
    }

    #[inline(always)]
    fn sub_i32(self, left: __m256i, right: __m256i) -> __m256i {
        instruction!(_mm256_sub_epi32(left, right))
    }

    #[inline(always)]
    fn floats(self, integers: __m256i) -> __m256 {
        instruction!(_mm256_cvtepi32_ps(integers))
    }

    #[inline(always)]
    fn nearest(self, floats: __m256) -> __m256i {
        instruction!(_mm256_cvtps_epi32(floats))
    }

    #[inline(always)]
    fn shift_left(self, value: __m256i, bits: i32) -> __m256i {
        instruction!(_mm256_sllv_epi32(value, _mm256_set1_epi32(bits)))
    }

    #[inline(always)]
    fn clamp_i32(self, value: __m256i, low: __m256i, high: __m256i) -> __m256i {
        let raised = instruction!(_mm256_max_epi32(value, low));
        instruction!(_mm256_min_epi32(raised, high))
    }

    #[inline(always)]
    fn load_pairs(self, from: &[i16; WIDE]) -> __m256i {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn add_products(self, sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
        let products = instruction!(_mm256_madd_epi16(left, right));
        instruction!(_mm256_add_epi32(sums, products))
    }

    #[inline(always)]
    fn rescale(self, sums: __m256i, by: &Rescale, first: usize) -> __m256i {
        let mantissa = self.load_i32(lanes_from(&by.mantissa, first));
        let mask = self.load_i32(lanes_from(&by.mask, first));
        let shifted = self.shifted(sums, self.load_i32(lanes_from(&by.left, first)));
        // Products of even lanes, then of odd lanes, in 64 bits; both rounded, and their bits from 31 on
        // taken.
        let nudge = instruction!(_mm256_set1_epi64x(1 << 30));
        let even = instruction!(_mm256_mul_epi32(shifted, mantissa));
        let odd_lanes = instruction!(_mm256_srli_epi64::<32>(shifted));
        let odd_mantissa = instruction!(_mm256_srli_epi64::<32>(mantissa));
        let odd = instruction!(_mm256_mul_epi32(odd_lanes, odd_mantissa));
        let even = instruction!(_mm256_add_epi64(even, nudge));
        let odd = instruction!(_mm256_add_epi64(odd, nudge));
        let even = instruction!(_mm256_srli_epi64::<31>(even));
        let odd = instruction!(_mm256_slli_epi64::<1>(odd));
        let high = instruction!(_mm256_blend_epi32::<0b1010_1010>(even, odd));
        // A shift that rounds to nearest, ties away from zero.
        let remainder = instruction!(_mm256_and_si256(high, mask));
        let half = instruction!(_mm256_srai_epi32::<1>(mask));
        let negative = instruction!(_mm256_srai_epi32::<31>(high));
        let threshold = instruction!(_mm256_sub_epi32(half, negative));
        let up = instruction!(_mm256_cmpgt_epi32(remainder, threshold));
        let quotient = instruction!(_mm256_srav_epi32(
            high,
            self.load_i32(lanes_from(&by.right, first))
        ));
        instruction!(_mm256_sub_epi32(quotient, up))
    }

    #[inline(always)]
    fn rescale_once(self, sums: __m256i, by: &RescaleOnce, first: usize) -> __m256i {
        let [even, odd] = self.products(sums, by, first);
        let nudges = [
            self.nudge(even, &by.nudges[0], first / 2),
            self.nudge(odd, &by.nudges[1], first / 2),
        ];
        self.rounded([even, odd], nudges, by, first)
    }

    #[inline(always)]
    fn rescale_positive(self, sums: __m256i, by: &RescaleOnce, first: usize) -> __m256i {
        let products = self.products(sums, by, first);
        let even: [i64; LANES / 2] = *lanes_from(&by.nudges[0][0], first / 2);
        let odd: [i64; LANES / 2] = *lanes_from(&by.nudges[1][0], first / 2);
        self.rounded(products, [bytemuck::cast(even), bytemuck::cast(odd)], by, first)
    }
}

impl Halves for Avx2 {
    #[inline(always)]
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> [__m256i; 2] {
        let (first, second) = (self.load_pairs(first), self.load_pairs(second));
        [
            instruction!(_mm256_unpacklo_epi16(first, second)),
            instruction!(_mm256_unpackhi_epi16(first, second)),
        ]
    }

    #[inline(always)]
    fn add_byte_products(self, sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
        // The instruction for bytes clamps its sums to 16 bits, so even and odd ones are widened.
        let low = instruction!(_mm256_set1_epi16(0xff));
        let even_left = instruction!(_mm256_and_si256(left, low));
        let odd_left = instruction!(_mm256_srli_epi16::<8>(left));
        let even_right = instruction!(_mm256_slli_epi16::<8>(right));
        let even_right = instruction!(_mm256_srai_epi16::<8>(even_right));
        let odd_right = instruction!(_mm256_srai_epi16::<8>(right));
        let sums = self.add_products(sums, even_left, even_right);
        self.add_products(sums, odd_left, odd_right)
    }

    #[inline(always)]
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> [__m256i; 2] {
        let bytes: __m128i = bytemuck::cast(*from);
        let (words, tops) = if SIGNED {
            let words = instruction!(_mm256_cvtepi8_epi16(bytes));
            (words, instruction!(_mm256_srai_epi16::<15>(words)))
        } else {
            let words = instruction!(_mm256_cvtepu8_epi16(bytes));
            (words, instruction!(_mm256_setzero_si256()))
        };
        [
            instruction!(_mm256_unpacklo_epi16(words, tops)),
            instruction!(_mm256_unpackhi_epi16(words, tops)),
        ]
    }

    #[inline(always)]
    fn store_bytes<const SIGNED: bool>(self, columns: [__m256i; 2], range: [u8; 2], to: &mut [u8; WIDE]) {
        let words = instruction!(_mm256_packs_epi32(columns[0], columns[1]));
        let low = instruction!(_mm256_castsi256_si128(words));
        let high = instruction!(_mm256_extracti128_si256::<1>(words));
        let least = instruction!(_mm_set1_epi8(range[0] as i8));
        let most = instruction!(_mm_set1_epi8(range[1] as i8));
        let bytes = if SIGNED {
            let bytes = instruction!(_mm_packs_epi16(low, high));
            let raised = instruction!(_mm_max_epi8(bytes, least));
            instruction!(_mm_min_epi8(raised, most))
        } else {
            let bytes = instruction!(_mm_packus_epi16(low, high));
            let raised = instruction!(_mm_max_epu8(bytes, least));
            instruction!(_mm_min_epu8(raised, most))
        };
        *to = bytemuck::cast(bytes);
    }
}
