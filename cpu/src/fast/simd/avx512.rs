//! Vectors in AVX-512's registers: sixteen lanes in one, of which there are 32. Narrow vectors are AVX2's,
//! compiled for the larger set of registers.

use std::arch::asm;
use std::arch::x86_64::*;

use super::avx2::Avx2;
use super::instructions::{Instructions, Work};
use super::lanes::{COLUMN_ORDER, LANES, WIDE, lanes_from};
use super::scales::{ByteForm, FloatScale, Rescale, RescaleOnce};
use super::vectors::{Columns, Simd};

/// AVX-512 F, BW, DQ, VL and VNNI, as processors have from Ice Lake and Zen 4 on, with AVX2 and FMA. There is
/// a value only where the processor has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(Avx2);

impl Avx512 {
    /// Where this processor has all of them.
    pub(super) fn find() -> Option<Avx512> {
        let has_all = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        Avx2::find().filter(|_| has_all).map(Avx512)
    }

    /// Runs a kernel compiled for all of them.
    #[inline(always)]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        fn compiled<W: Work>(work: W, simd: Avx512) -> W::Output {
            work.run(simd)
        }
        // SAFETY: `self` exists, so the processor has all these features.
        unsafe { compiled(work, self) }
    }
}

/// An instruction that the processor has, since a value of [`Avx512`] exists.
macro_rules! instruction {
    ($call:expr) => {{
        // SAFETY: the instruction needs what `Avx512` stands for and touches no memory; `self` exists, so the
        // processor has it.
        unsafe { $call }
    }};
}

/// Which 16-bit values of two vectors make pairs in [`COLUMN_ORDER`]; those of the second count from 32 on.
const INTERLEAVED: [i16; 2 * WIDE] = {
    let mut order = [0; 2 * WIDE];
    let mut lane = 0;
    while lane < WIDE {
        order[2 * lane] = COLUMN_ORDER[lane] as i16;
        order[2 * lane + 1] = COLUMN_ORDER[lane] as i16 + 2 * WIDE as i16;
        lane += 1;
    }
    order
};

/// The order of four groups of four lanes in [`COLUMN_ORDER`], for the instruction that moves them, there and
/// back.
const GROUPS: i32 = 0b11_01_10_00;

/// The lanes of a square of four by four, columns first.
const ACROSS: [i32; WIDE] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// The same where the columns of the square are in [`COLUMN_ORDER`].
const ACROSS_IN_ORDER: [i32; WIDE] = [0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15];

/// How floats are rounded that are truncated.
const TO_ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

/// Which bits of three vectors, by their values in each, are set in `first | (second & third)`.
const OR_BOTH: i32 = 0b1111_1000;

/// Odd lanes.
const ODD: __mmask16 = 0b1010_1010_1010_1010;

/// What odd lanes of each hold: of `even` in the even lanes, of `odd` in the odd ones. In assembly, since
/// LLVM makes two instructions of this one.
#[target_feature(enable = "avx512f")]
#[inline]
fn odd_of_each(even: __m512i, odd: __m512i) -> __m512i {
    let mut both = odd;
    // SAFETY: the instruction touches nothing but these registers.
    unsafe {
        asm!(
            "vmovshdup {both}{{{lanes}}}, {even}",
            both = inout(zmm_reg) both,
            lanes = in(kreg) !ODD,
            even = in(zmm_reg) even,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    both
}

impl Avx512 {
    /// Sums shifted left; where that loses bits, the end of the range that they are nearest to.
    #[inline(always)]
    fn shifted(self, sums: __m512i, left: __m512i) -> __m512i {
        let shifted = instruction!(_mm512_sllv_epi32(sums, left));
        let back = instruction!(_mm512_srav_epi32(shifted, left));
        let is_lost = instruction!(_mm512_cmpneq_epi32_mask(back, sums));
        let sign = instruction!(_mm512_srai_epi32::<31>(sums));
        let end = instruction!(_mm512_xor_si512(sign, _mm512_set1_epi32(i32::MAX)));
        instruction!(_mm512_mask_mov_epi32(shifted, is_lost, end))
    }

    /// The product with what rounds it added: the second where it is negative.
    #[inline(always)]
    fn nudged(self, product: __m512i, nudges: &[[i64; LANES]; 2]) -> __m512i {
        let (positive, negative): (__m512i, __m512i) = (bytemuck::cast(nudges[0]), bytemuck::cast(nudges[1]));
        let is_negative = instruction!(_mm512_movepi64_mask(product));
        let nudge = instruction!(_mm512_mask_blend_epi64(is_negative, positive, negative));
        instruction!(_mm512_add_epi64(product, nudge))
    }

    /// The products of even lanes and of odd ones with their mantissas, in 64 bits.
    #[inline(always)]
    fn products(self, sums: __m512i, by: &RescaleOnce, first: usize) -> [__m512i; 2] {
        let mantissa = self.load_i32(lanes_from(&by.mantissa, first));
        let odd_mantissa = self.load_i32(lanes_from(&by.odd_mantissa, first));
        let odd_lanes = instruction!(_mm512_srli_epi64::<32>(sums));
        [
            instruction!(_mm512_mul_epi32(sums, mantissa)),
            instruction!(_mm512_mul_epi32(odd_lanes, odd_mantissa)),
        ]
    }

    /// Four times sixteen columns of output steps from real 0 in a form of 8 bits, one sixteen behind the
    /// other.
    #[inline(always)]
    fn bytes<const NATURAL: bool>(self, columns: [__m512i; 4], form: &ByteForm) -> __m512i {
        let mut first = instruction!(_mm512_packs_epi32(columns[0], columns[1]));
        let mut second = instruction!(_mm512_packs_epi32(columns[2], columns[3]));
        if form.is_moved {
            // Packing clamps to 16 bits, and so does the sum, from which the nearest byte is the same.
            let zero_point = bytemuck::cast(form.zero_point);
            first = instruction!(_mm512_adds_epi16(first, zero_point));
            second = instruction!(_mm512_adds_epi16(second, zero_point));
        }
        let mut bytes = instruction!(_mm512_packus_epi16(first, second));
        if form.is_narrow {
            bytes = instruction!(_mm512_max_epu8(bytes, bytemuck::cast(form.least)));
            bytes = instruction!(_mm512_min_epu8(bytes, bytemuck::cast(form.most)));
        }
        // Packing works within groups of sixteen bytes likewise.
        let order: __m512i = bytemuck::cast(if NATURAL { ACROSS } else { ACROSS_IN_ORDER });
        let ordered = instruction!(_mm512_permutexvar_epi32(order, bytes));
        instruction!(_mm512_xor_si512(ordered, bytemuck::cast(form.flip)))
    }

    /// The upper halves of sums of 64 bits in their lanes, shifted.
    #[inline(always)]
    fn high(self, even: __m512i, odd: __m512i, by: &RescaleOnce, first: usize) -> __m512i {
        let right = self.load_i32(lanes_from(&by.right, first));
        let high = instruction!(odd_of_each(even, odd));
        instruction!(_mm512_srav_epi32(high, right))
    }
}

impl Instructions for Avx512 {
    type Narrow = Avx2;
    type Wide = Avx512;
    const HAS_WIDE: bool = true;
    const MULTIPLIES_BYTES: bool = true;
    const FUSES: bool = true;

    #[inline(always)]
    fn narrow(self) -> Avx2 {
        self.0
    }

    #[inline(always)]
    fn wide(self) -> Avx512 {
        self
    }

    #[inline(always)]
    fn apart<W: Work>(self, work: W) -> W::Output {
        work.run(self)
    }
}

impl Simd<WIDE> for Avx512 {
    type F32 = __m512;
    type I32 = __m512i;
    type Pairs = [i16; 2 * WIDE];
    const ONE_BY_ONE: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        instruction!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, from: &[f32; WIDE]) -> __m512 {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn load_half(self, from: &[u16; WIDE]) -> __m512 {
        instruction!(_mm512_cvtph_ps(bytemuck::cast(*from)))
    }

    #[inline(always)]
    fn store(self, vector: __m512, to: &mut [f32; WIDE]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add(self, left: __m512, right: __m512) -> __m512 {
        instruction!(_mm512_add_ps(left, right))
    }

    #[inline(always)]
    fn mul(self, left: __m512, right: __m512) -> __m512 {
        instruction!(_mm512_mul_ps(left, right))
    }

    #[inline(always)]
    fn mul_add(self, left: __m512, right: __m512, sum: __m512) -> __m512 {
        instruction!(_mm512_fmadd_ps(left, right, sum))
    }

    // The instructions return their second operand if either is a NaN.
    #[inline(always)]
    fn at_least(self, value: __m512, low: __m512) -> __m512 {
        instruction!(_mm512_max_ps(low, value))
    }

    #[inline(always)]
    fn at_most(self, value: __m512, high: __m512) -> __m512 {
        instruction!(_mm512_min_ps(high, value))
    }

    #[inline(always)]
    fn scale_negative(self, value: __m512, factor: __m512) -> __m512 {
        let zero = self.splat(0.0);
        let is_negative = instruction!(_mm512_cmp_ps_mask::<_CMP_NGE_UQ>(value, zero));
        instruction!(_mm512_mask_mul_ps(value, is_negative, value, factor))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> __m512i {
        instruction!(_mm512_set1_epi32(value))
    }

    #[inline(always)]
    fn load_i32(self, from: &[i32; WIDE]) -> __m512i {
        bytemuck::cast(*from)
    }

    fn store_i32(self, vector: __m512i, to: &mut [i32; WIDE]) {
        *to = bytemuck::cast(vector);
    }

    #[inline(always)]
    fn add_i32(self, left: __m512i, right: __m512i) -> __m512i {
        instruction!(_mm512_add_epi32(left, right))
    }

    #[inline(always)]
    fn sub_i32(self, left: __m512i, right: __m512i) -> __m512i {
        instruction!(_mm512_sub_epi32(left, right))
    }

    #[inline(always)]
    fn floats(self, integers: __m512i) -> __m512 {
        instruction!(_mm512_cvtepi32_ps(integers))
    }

    #[inline(always)]
    fn nearest(self, floats: __m512) -> __m512i {
        instruction!(_mm512_cvtps_epi32(floats))
    }

    #[inline(always)]
    fn shift_left(self, value: __m512i, bits: i32) -> __m512i {
        instruction!(_mm512_sllv_epi32(value, _mm512_set1_epi32(bits)))
    }

    #[inline(always)]
    fn clamp_i32(self, value: __m512i, low: __m512i, high: __m512i) -> __m512i {
        let raised = instruction!(_mm512_max_epi32(value, low));
        instruction!(_mm512_min_epi32(raised, high))
    }

    #[inline(always)]
    fn load_pairs(self, from: &[i16; 2 * WIDE]) -> __m512i {
        bytemuck::cast(*from)
    }

    #[inline(always)]
    fn add_products(self, sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
        instruction!(_mm512_dpwssd_epi32(sums, left, right))
    }

    #[inline(always)]
    fn rescale(self, sums: __m512i, by: &Rescale, first: usize) -> __m512i {
        let mantissa = self.load_i32(lanes_from(&by.mantissa, first));
        let left = self.load_i32(lanes_from(&by.left, first));
        let right = self.load_i32(lanes_from(&by.right, first));
        let mask = self.load_i32(lanes_from(&by.mask, first));
        let shifted = self.shifted(sums, left);
        // Products of even lanes, then of odd lanes, in 64 bits; both rounded, and their bits from 31 on
        // taken.
        let nudge = instruction!(_mm512_set1_epi64(1 << 30));
        let even = instruction!(_mm512_mul_epi32(shifted, mantissa));
        let odd_lanes = instruction!(_mm512_srli_epi64::<32>(shifted));
        let odd_mantissa = instruction!(_mm512_srli_epi64::<32>(mantissa));
        let odd = instruction!(_mm512_mul_epi32(odd_lanes, odd_mantissa));
        let even = instruction!(_mm512_add_epi64(even, nudge));
        let odd = instruction!(_mm512_add_epi64(odd, nudge));
        let even = instruction!(_mm512_srli_epi64::<31>(even));
        let odd = instruction!(_mm512_slli_epi64::<1>(odd));
        let high = instruction!(_mm512_mask_blend_epi32(ODD, even, odd));
        // A shift that rounds to nearest, ties away from zero.
        let remainder = instruction!(_mm512_and_si512(high, mask));
        let half = instruction!(_mm512_srai_epi32::<1>(mask));
        let negative = instruction!(_mm512_srai_epi32::<31>(high));
        let threshold = instruction!(_mm512_sub_epi32(half, negative));
        let up = instruction!(_mm512_cmpgt_epi32_mask(remainder, threshold));
        let quotient = instruction!(_mm512_srav_epi32(high, right));
        instruction!(_mm512_mask_add_epi32(
            quotient,
            up,
            quotient,
            _mm512_set1_epi32(1)
        ))
    }

    #[inline(always)]
    fn rescale_once(self, sums: __m512i, by: &RescaleOnce, first: usize) -> __m512i {
        let [even, odd] = self.products(sums, by, first);
        let (even, odd) = (self.nudged(even, &by.nudges[0]), self.nudged(odd, &by.nudges[1]));
        self.high(even, odd, by, first)
    }

    #[inline(always)]
    fn rescale_positive(self, sums: __m512i, by: &RescaleOnce, first: usize) -> __m512i {
        let [even, odd] = self.products(sums, by, first);
        let even = instruction!(_mm512_add_epi64(even, bytemuck::cast(by.nudges[0][0])));
        let odd = instruction!(_mm512_add_epi64(odd, bytemuck::cast(by.nudges[1][0])));
        self.high(even, odd, by, first)
    }
}

impl Avx512 {
    /// What a table of bytes, two in each word, has for half as many bytes as a vector has: instructions find
    /// words.
    #[inline(always)]
    fn words_of(self, table: &[__m512i; 4], bytes: __m256i) -> __m256i {
        let bytes = instruction!(_mm512_cvtepu8_epi16(bytes));
        let word = instruction!(_mm512_srli_epi16::<1>(bytes));
        let low = instruction!(_mm512_permutex2var_epi16(table[0], word, table[1]));
        let high = instruction!(_mm512_permutex2var_epi16(table[2], word, table[3]));
        let is_high = instruction!(_mm512_movepi16_mask(_mm512_slli_epi16::<8>(bytes)));
        let found = instruction!(_mm512_mask_blend_epi16(is_high, low, high));
        // The second byte of a word is that of an odd number.
        let odd = instruction!(_mm512_and_si512(bytes, _mm512_set1_epi16(1)));
        let found = instruction!(_mm512_srlv_epi16(found, _mm512_slli_epi16::<3>(odd)));
        instruction!(_mm512_cvtepi16_epi8(found))
    }
}

impl Columns for Avx512 {
    type Narrow = Avx2;
    const TRUNCATES: bool = true;

    #[inline(always)]
    fn rescale_by_floats<const CLAMPED: bool>(self, sums: __m512i, by: &FloatScale) -> __m512i {
        let half = self.load(&by.half);
        let (upper, lower) = (self.load(&by.upper), self.load(&by.lower));
        let floats = instruction!(_mm512_cvt_roundepi32_ps::<TO_ZERO>(sums));
        let half = if CLAMPED {
            half
        } else {
            // With the sign of the sum.
            let sign = instruction!(_mm512_set1_epi32(i32::MIN));
            let half = instruction!(_mm512_castps_si512(half));
            let half = instruction!(_mm512_ternarylogic_epi32::<OR_BOTH>(half, sums, sign));
            instruction!(_mm512_castsi512_ps(half))
        };
        let fraction = instruction!(_mm512_fmadd_round_ps::<TO_ZERO>(floats, lower, half));
        let scaled = instruction!(_mm512_fmadd_round_ps::<TO_ZERO>(floats, upper, fraction));
        instruction!(_mm512_cvttps_epi32(scaled))
    }

    #[inline(always)]
    fn join(self, low: __m256i, high: __m256i) -> __m512i {
        let low = instruction!(_mm512_castsi256_si512(low));
        instruction!(_mm512_inserti64x4::<1>(low, high))
    }

    #[inline(always)]
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> __m512i {
        let (first, second): (__m256i, __m256i) = (bytemuck::cast(*first), bytemuck::cast(*second));
        let first = instruction!(_mm512_castsi256_si512(first));
        let second = instruction!(_mm512_castsi256_si512(second));
        let order: __m512i = bytemuck::cast(INTERLEAVED);
        instruction!(_mm512_permutex2var_epi16(first, order, second))
    }

    #[inline(always)]
    fn add_byte_products(self, sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
        instruction!(_mm512_dpbusd_epi32(sums, left, right))
    }

    #[inline(always)]
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> __m512i {
        let bytes: __m128i = bytemuck::cast(*from);
        let bytes = instruction!(_mm_shuffle_epi32::<GROUPS>(bytes));
        if SIGNED {
            instruction!(_mm512_cvtepi8_epi32(bytes))
        } else {
            instruction!(_mm512_cvtepu8_epi32(bytes))
        }
    }

    #[inline(always)]
    fn store_bytes<const SIGNED: bool>(self, columns: __m512i, range: [u8; 2], to: &mut [u8; WIDE]) {
        let least = instruction!(_mm_set1_epi8(range[0] as i8));
        let most = instruction!(_mm_set1_epi8(range[1] as i8));
        let bytes = if SIGNED {
            let bytes = instruction!(_mm512_cvtsepi32_epi8(columns));
            let raised = instruction!(_mm_max_epi8(bytes, least));
            instruction!(_mm_min_epi8(raised, most))
        } else {
            // The instruction takes them for unsigned.
            let positive = instruction!(_mm512_max_epi32(columns, _mm512_setzero_si512()));
            let bytes = instruction!(_mm512_cvtusepi32_epi8(positive));
            let raised = instruction!(_mm_max_epu8(bytes, least));
            instruction!(_mm_min_epu8(raised, most))
        };
        *to = bytemuck::cast(instruction!(_mm_shuffle_epi32::<GROUPS>(bytes)));
    }

    #[inline(always)]
    fn by_fours(self, rows: [&[u8; 4 * WIDE]; 4], flip: u8, to: &mut [[u8; 4]; 4 * WIDE]) {
        let flip = instruction!(_mm512_set1_epi8(flip as i8));
        let order: __m512i = bytemuck::cast(ACROSS);
        // Interleaving works within groups of sixteen bytes, so each gets four from every sixteen columns.
        let (first, second) = (bytemuck::cast(*rows[0]), bytemuck::cast(*rows[1]));
        let (third, fourth) = (bytemuck::cast(*rows[2]), bytemuck::cast(*rows[3]));
        let first = instruction!(_mm512_permutexvar_epi32(order, _mm512_xor_si512(first, flip)));
        let second = instruction!(_mm512_permutexvar_epi32(order, _mm512_xor_si512(second, flip)));
        let third = instruction!(_mm512_permutexvar_epi32(order, _mm512_xor_si512(third, flip)));
        let fourth = instruction!(_mm512_permutexvar_epi32(order, _mm512_xor_si512(fourth, flip)));
        let low = [
            instruction!(_mm512_unpacklo_epi8(first, second)),
            instruction!(_mm512_unpacklo_epi8(third, fourth)),
        ];
        let high = [
            instruction!(_mm512_unpackhi_epi8(first, second)),
            instruction!(_mm512_unpackhi_epi8(third, fourth)),
        ];
        let (to, _) = to.as_chunks_mut::<WIDE>();
        to[0] = bytemuck::cast(instruction!(_mm512_unpacklo_epi16(low[0], low[1])));
        to[1] = bytemuck::cast(instruction!(_mm512_unpackhi_epi16(low[0], low[1])));
        to[2] = bytemuck::cast(instruction!(_mm512_unpacklo_epi16(high[0], high[1])));
        to[3] = bytemuck::cast(instruction!(_mm512_unpackhi_epi16(high[0], high[1])));
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        let table: [__m512i; 4] = bytemuck::cast(*table);
        let bytes: [__m256i; 2] = bytemuck::cast(*bytes);
        let found = [self.words_of(&table, bytes[0]), self.words_of(&table, bytes[1])];
        *to = bytemuck::cast(found);
    }

    #[inline(always)]
    fn bytes_of_four<const NATURAL: bool>(self, columns: [__m512i; 4], form: &ByteForm) -> [[u8; WIDE]; 4] {
        let bytes = self.bytes::<NATURAL>(columns, form);
        [
            bytemuck::cast(instruction!(_mm512_extracti32x4_epi32::<0>(bytes))),
            bytemuck::cast(instruction!(_mm512_extracti32x4_epi32::<1>(bytes))),
            bytemuck::cast(instruction!(_mm512_extracti32x4_epi32::<2>(bytes))),
            bytemuck::cast(instruction!(_mm512_extracti32x4_epi32::<3>(bytes))),
        ]
    }

    #[inline(always)]
    fn bytes_of_pairs(self, columns: [__m512i; 4], form: &ByteForm) -> [[u8; 2 * WIDE]; 2] {
        let bytes = self.bytes::<false>(columns, form);
        [
            bytemuck::cast(instruction!(_mm512_extracti64x4_epi64::<0>(bytes))),
            bytemuck::cast(instruction!(_mm512_extracti64x4_epi64::<1>(bytes))),
        ]
    }
}
