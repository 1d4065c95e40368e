//! Products of AMX's tiles: registers of up to sixteen rows of 64 bytes, of which one instruction multiplies
//! two and adds the result to a third.
//!
//! Tiles have no type of their own in Rust, so everything that uses them is assembly, and a value of
//! [`Shaped`] stands for their shapes being set. Loading a tile takes as long as half a product if its memory
//! is aligned to cache lines, and twice as long as a product if not.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid_count, __m512, __m512i, __mmask16, _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_maskz_loadu_ps, _mm512_permutex2var_epi16, _mm512_set1_epi32,
    _mm512_storeu_si512, _mm512_sub_ps,
};
use std::cell::Cell;
use std::marker::PhantomData;

use super::amx_tiles::{Bf16x3, DEEP, SIDE, TileSums};
use super::avx512::Avx512;
use super::instructions::Work;
use super::strided::Rows;

/// Bytes from a row of [`TileSums`] to the next.
const SUMS_STRIDE: usize = 2 * SIDE * size_of::<f32>();

/// Bytes from a row of a tile in memory to the next.
const STRIDE: usize = DEEP * size_of::<u16>();

/// Tiles with products of bfloat16 values and of bytes, beside AVX-512. There is a value only where the
/// processor has them and the kernel lets this process use them.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Amx(Avx512);

/// What `ldtilecfg` loads: the shape of each tile.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Amx {
    /// Where this processor and this process have them.
    pub(super) fn find() -> Option<Amx> {
        const FEATURES: u32 = 7;
        const BF16: u32 = 1 << 22;
        const TILES: u32 = 1 << 24;
        const INT8: u32 = 1 << 25;
        let needed = BF16 | TILES | INT8;
        let avx512 = Avx512::find()?;
        let has_all = __cpuid_count(FEATURES, 0).edx & needed == needed;
        (has_all && nnhal_os::cpu::may_use_tiles()).then_some(Amx(avx512))
    }

    /// Runs a kernel compiled for the vectors beside them.
    #[inline(always)]
    pub(in crate::fast) fn run<W: Work>(self, work: W) -> W::Output {
        self.0.run(work)
    }

    /// Has tiles on the left of products, and sums, be of this many rows, at most [`SIDE`].
    ///
    /// # Panics
    /// If there are none or more of them, or this thread's tiles have a shape.
    pub(in crate::fast) fn shape(self, rows: usize) -> Shaped {
        assert!((1..=SIDE).contains(&rows), "tiles of {rows} rows");
        let was = ARE_SHAPED.replace(true);
        assert!(!was, "tiles are given one shape at a time");
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for tile in 0..8 {
            shapes.row_bytes[tile] = STRIDE as u16;
            // Those on the right are whole: tiles 6 and 7.
            shapes.rows[tile] = if tile < 6 { rows as u8 } else { SIDE as u8 };
        }
        // SAFETY: `self` exists, so the processor has the instruction and the process may use it; the shapes
        // are within what the first palette allows.
        unsafe {
            asm!(
                "ldtilecfg [{}]",
                in(reg) &raw const shapes,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, readonly)
            );
        }
        Shaped {
            rows,
            of_this_thread: PhantomData,
        }
    }

    /// Parts the values of some rows, which become those of tiles on the left from row `first` on, [`DEEP`]
    /// of each row for each of `tiles`; zeros fill up the last one.
    ///
    /// A value is the sum of its parts: each is what is left rounded to bfloat16, and 24 bits are three times
    /// eight. Not so for infinities, NaNs and what is rounded to an infinity, of which the last part is NaN,
    /// and for what is below 2^-103, of which the last part may be denormal, which products take for 0.
    ///
    /// # Panics
    /// If tiles do not have such rows, or there are too few of them or too many.
    #[inline]
    pub(in crate::fast) fn part_rows(self, rows: Rows<'_, f32>, first: usize, tiles: &mut [Bf16x3]) {
        let (count, length) = (rows.count(), rows.length());
        assert!(
            first <= SIDE && count <= SIDE - first && length.div_ceil(DEEP) == tiles.len(),
            "{count} rows of {length} values from row {first} of {} tiles on",
            tiles.len()
        );
        // SAFETY: `self` exists, so the processor has AVX-512 with BW.
        unsafe { part_each_row(rows, first, tiles) }
    }
}

/// The upper halves of the lanes of two vectors, one behind the other.
const UPPER_HALVES: [i16; DEEP] = {
    let mut order = [0; DEEP];
    let mut at = 0;
    while at < DEEP {
        order[at] = 2 * at as i16 + 1;
        at += 1;
    }
    order
};

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn part_each_row(rows: Rows<'_, f32>, first: usize, tiles: &mut [Bf16x3]) {
    for row in 0..rows.count() {
        part_row(rows.row(row), first + row, tiles);
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn part_row(values: &[f32], row: usize, tiles: &mut [Bf16x3]) {
    let (whole, rest) = values.as_chunks::<DEEP>();
    for (values, tiles) in whole.iter().zip(&mut *tiles) {
        let (low, high) = values.split_at(SIDE);
        part([first_lanes(low), first_lanes(high)], row, tiles);
    }
    if let Some(tiles) = tiles.get_mut(whole.len()) {
        let (low, high) = rest.split_at(rest.len().min(SIDE));
        part([first_lanes(low), first_lanes(high)], row, tiles);
    }
}

/// A vector of at most sixteen values, with zeros behind them.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn first_lanes(values: &[f32]) -> __m512 {
    if let Some(whole) = values.first_chunk::<SIDE>() {
        return bytemuck::cast(*whole);
    }
    let lanes = ((1_u32 << values.len()) - 1) as __mmask16;
    // SAFETY: no more values are loaded than there are.
    unsafe { _mm512_maskz_loadu_ps(lanes, values.as_ptr()) }
}

/// Parts the values of one row of some tiles.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn part(mut left: [__m512; 2], row: usize, tiles: &mut Bf16x3) {
    for tile in &mut tiles[..2] {
        let parts = [rounded(left[0]), rounded(left[1])];
        store_upper(parts, &mut tile[row]);
        left = [_mm512_sub_ps(left[0], parts[0]), _mm512_sub_ps(left[1], parts[1])];
    }
    store_upper(left, &mut tiles[2][row]);
}

/// Rounds to eight bits, and what lies in the middle up.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn rounded(values: __m512) -> __m512 {
    let half = _mm512_set1_epi32(0x8000);
    let kept = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let bits = _mm512_add_epi32(_mm512_castps_si512(values), half);
    _mm512_castsi512_ps(_mm512_and_si512(bits, kept))
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store_upper(values: [__m512; 2], to: &mut [u16; DEEP]) {
    let order: __m512i = bytemuck::cast(UPPER_HALVES);
    let [low, high] = values.map(|half| _mm512_castps_si512(half));
    let halves = _mm512_permutex2var_epi16(low, order, high);
    // SAFETY: there are 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), halves) };
}

thread_local! {
    /// Whether there is a [`Shaped`] of this thread.
    static ARE_SHAPED: Cell<bool> = const { Cell::new(false) };
}

/// Tiles whose shapes are set, on the thread that has done so. They are given back in the end: what is in
/// them would be saved with each switch to another thread.
pub(in crate::fast) struct Shaped {
    /// Rows of tiles on the left, and of sums.
    rows: usize,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Shaped {
    fn drop(&mut self) {
        // SAFETY: `self` exists, so the processor has the instruction; it is the only one of its thread, so
        // nobody else's tiles end.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, nomem)
            );
        }
        ARE_SHAPED.set(false);
    }
}

/// Sums blocks of three tiles each, of up to two tiles of rows and up to two panels; `$body` multiplies one
/// of each.
///
/// Of the products of a value's parts with those of another one, the three smallest are left out: what they
/// would add is as much as rounding takes away. The others are added in the same order whatever is multiplied
/// with them, so that results do not depend on what is computed together. `$tail` has `ahead` go on, too.
macro_rules! sum_blocks {
    ([$($body:literal)*], $tail:literal, $blocks:expr, $sums:expr) => {{
        let Blocks {
            rows,
            panels,
            ahead,
            count,
        } = $blocks;
        let sums: &mut TileSums = $sums;
        let (sums, more_sums) = sums.0.split_at_mut(SIDE);
        // SAFETY: the loop reads as many blocks of 3 KiB at each pointer as there are, and each of the stores
        // behind it writes at most sixteen rows of 64 bytes to a quarter of the sums; all live for the call.
        // Prefetching raises no fault, wherever it points. The caller's `Shaped` exists, so the shapes are
        // set.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                $($body,)*
                "add {rows}, 3072",
                "add {more_rows}, 3072",
                "add {left}, 3072",
                "add {right}, 3072",
                $tail,
                "dec {count}",
                "jnz 2b",
                "tilestored [{sums} + {across}*1], tmm0",
                "tilestored [{sums} + {across}*1 + 64], tmm1",
                "tilestored [{more_sums} + {across}*1], tmm2",
                "tilestored [{more_sums} + {across}*1 + 64], tmm3",
                stride = in(reg) STRIDE,
                across = in(reg) SUMS_STRIDE,
                count = inout(reg) count => _,
                rows = inout(reg) rows[0] => _,
                more_rows = inout(reg) rows[1] => _,
                left = inout(reg) panels[0] => _,
                right = inout(reg) panels[1] => _,
                ahead = inout(reg) ahead => _,
                sums = in(reg) sums.as_mut_ptr(),
                more_sums = in(reg) more_sums.as_mut_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }};
}

/// The same for two tiles of rows and two panels, with `$each` behind each of their 24 products.
macro_rules! sum_two_by_two {
    ($each:literal, $tail:literal, $blocks:expr, $sums:expr) => {
        sum_blocks!(
            [
                    "tileloadd tmm4, [{rows} + {stride}*1]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tileloadd tmm5, [{more_rows} + {stride}*1]"
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tileloadd tmm7, [{right} + {stride}*1]"
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                    "tileloadd tmm4, [{rows} + {stride}*1 + 1024]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tileloadd tmm5, [{more_rows} + {stride}*1 + 1024]"
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                    "tileloadd tmm6, [{left} + {stride}*1 + 1024]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tileloadd tmm7, [{right} + {stride}*1 + 1024]"
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                    "tileloadd tmm4, [{rows} + {stride}*1]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tileloadd tmm5, [{more_rows} + {stride}*1]"
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                    "tileloadd tmm6, [{left} + {stride}*1 + 2048]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tileloadd tmm7, [{right} + {stride}*1 + 2048]"
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                    "tileloadd tmm4, [{rows} + {stride}*1 + 2048]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbf16ps tmm0, tmm4, tmm6"
                    $each
                    "tileloadd tmm5, [{more_rows} + {stride}*1 + 2048]"
                    "tdpbf16ps tmm2, tmm5, tmm6"
                    $each
                    "tileloadd tmm7, [{right} + {stride}*1]"
                    "tdpbf16ps tmm1, tmm4, tmm7"
                    $each
                    "tdpbf16ps tmm3, tmm5, tmm7"
                    $each
                ],
            $tail,
            $blocks,
            $sums
        )
    };
}

/// Sums two tiles of rows with one panel.
macro_rules! sum_two_by_one {
    ($blocks:expr, $sums:expr) => {
        sum_blocks!(
            [
                "tileloadd tmm4, [{rows} + {stride}*1]"
                "tileloadd tmm6, [{left} + {stride}*1]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{more_rows} + {stride}*1]"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tileloadd tmm4, [{rows} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{more_rows} + {stride}*1 + 1024]"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tileloadd tmm7, [{left} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "tdpbf16ps tmm2, tmm5, tmm7"
                "tileloadd tmm4, [{rows} + {stride}*1]"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "tileloadd tmm5, [{more_rows} + {stride}*1]"
                "tdpbf16ps tmm2, tmm5, tmm7"
                "tileloadd tmm7, [{left} + {stride}*1 + 2048]"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "tdpbf16ps tmm2, tmm5, tmm7"
                "tileloadd tmm4, [{rows} + {stride}*1 + 2048]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{more_rows} + {stride}*1 + 2048]"
                "tdpbf16ps tmm2, tmm5, tmm6"
            ],
            "add {ahead}, 3072",
            $blocks,
            $sums
        )
    };
}

/// Sums one tile of rows with two panels.
macro_rules! sum_one_by_two {
    ($blocks:expr, $sums:expr) => {
        sum_blocks!(
            [
                "tileloadd tmm4, [{rows} + {stride}*1]"
                "tileloadd tmm6, [{left} + {stride}*1]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm7, [{right} + {stride}*1]"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm5, [{rows} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm5, tmm6"
                "tdpbf16ps tmm1, tmm5, tmm7"
                "tileloadd tmm6, [{left} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm5, tmm6"
                "tileloadd tmm7, [{right} + {stride}*1 + 1024]"
                "tdpbf16ps tmm1, tmm5, tmm7"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm6, [{left} + {stride}*1 + 2048]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm7, [{right} + {stride}*1 + 2048]"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm5, [{rows} + {stride}*1 + 2048]"
                "tileloadd tmm6, [{left} + {stride}*1]"
                "tdpbf16ps tmm0, tmm5, tmm6"
                "tileloadd tmm7, [{right} + {stride}*1]"
                "tdpbf16ps tmm1, tmm5, tmm7"
            ],
            "add {ahead}, 3072",
            $blocks,
            $sums
        )
    };
}

/// Sums one tile of rows with one panel.
macro_rules! sum_one_by_one {
    ($blocks:expr, $sums:expr) => {
        sum_blocks!(
            [
                "tileloadd tmm4, [{rows} + {stride}*1]"
                "tileloadd tmm6, [{left} + {stride}*1]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{rows} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm5, tmm6"
                "tileloadd tmm7, [{left} + {stride}*1 + 1024]"
                "tdpbf16ps tmm0, tmm5, tmm7"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "tileloadd tmm7, [{left} + {stride}*1 + 2048]"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "tileloadd tmm5, [{rows} + {stride}*1 + 2048]"
                "tdpbf16ps tmm0, tmm5, tmm6"
            ],
            "add {ahead}, 3072",
            $blocks,
            $sums
        )
    };
}

/// What is multiplied: tiles of rows and panels of columns, as many blocks at each pointer.
struct Blocks {
    rows: [*const Bf16x3; 2],
    panels: [*const Bf16x3; 2],
    /// What is to come to the second-level cache meanwhile.
    ahead: *const Bf16x3,
    /// At least 1.
    count: usize,
}

impl Blocks {
    /// # Panics
    /// If there are none, or not equally many of each.
    fn new<const M: usize, const P: usize>(
        rows: [&[Bf16x3]; M],
        panels: [&[Bf16x3]; P],
        ahead: &[Bf16x3],
    ) -> Blocks {
        const { assert!(M - 1 < 2 && P - 1 < 2) };
        let count = rows[0].len();
        let is_equal = |blocks: &&[Bf16x3]| blocks.len() == count;
        assert!(
            count > 0 && rows.iter().all(is_equal) && panels.iter().all(is_equal),
            "blocks of rows and columns: {:?} and {:?}",
            rows.map(<[_]>::len),
            panels.map(<[_]>::len)
        );
        Blocks {
            rows: [rows[0].as_ptr(), rows[M - 1].as_ptr()],
            panels: [panels[0].as_ptr(), panels[P - 1].as_ptr()],
            ahead: ahead.as_ptr(),
            count,
        }
    }
}

impl Shaped {
    /// Rows of tiles on the left of products, and of sums.
    #[inline]
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Sums the products of one or two tiles of rows with one or two panels of columns. If there are two of
    /// each and `AHEAD`, as many blocks from `ahead` on come to the second-level cache meanwhile, which takes
    /// time of its own.
    ///
    /// # Panics
    /// If there are no blocks, or not equally many of each.
    pub(in crate::fast) fn sum_bf16x3<const M: usize, const P: usize, const AHEAD: bool>(
        &self,
        rows: [&[Bf16x3]; M],
        panels: [&[Bf16x3]; P],
        ahead: &[Bf16x3],
        sums: &mut TileSums,
    ) {
        let blocks = Blocks::new(rows, panels, ahead);
        match (M, P) {
            (2, 2) if AHEAD => sum_two_by_two!(
                "prefetcht1 [{ahead}]\n prefetcht1 [{ahead} + 64]\n add {ahead}, 128",
                "",
                blocks,
                sums
            ),
            (2, 2) => sum_two_by_two!("", "add {ahead}, 3072", blocks, sums),
            (2, _) => sum_two_by_one!(blocks, sums),
            (_, 2) => sum_one_by_two!(blocks, sums),
            _ => sum_one_by_one!(blocks, sums),
        }
    }
}

#[cfg(test)]
#[path = "amx_tests.rs"]
mod tests;
