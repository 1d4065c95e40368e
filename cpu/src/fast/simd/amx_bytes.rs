//! Products of AMX's tiles of bytes, unsigned ones with signed ones, whose sums are exact 32-bit integers.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, __mmask64, _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8, _mm512_set1_epi8, _mm512_xor_si512,
};

use super::amx::{Amx, Shaped};
use super::amx_tiles::{ByteSums, DEEP_BYTES, TILE_BYTES};
use super::strided::Rows;

impl Amx {
    /// Copies rows one behind the other, each filled up with zeros to a multiple of [`DEEP_BYTES`], as tiles
    /// on the left of a product take them. Bits of `flip` are exchanged in every value, but not in what fills
    /// up.
    ///
    /// # Panics
    /// If `to` does not have just room for them.
    #[inline]
    pub(in crate::fast) fn copy_rows(self, rows: Rows<'_, u8>, flip: u8, to: &mut [u8]) {
        let length = rows.length().next_multiple_of(DEEP_BYTES);
        assert!(
            rows.count().checked_mul(length) == Some(to.len()),
            "{} rows of {length} bytes in {}",
            rows.count(),
            to.len()
        );
        // SAFETY: `self` exists, so the processor has AVX-512 with BW.
        unsafe { copy_each_row(rows, flip, to) }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn copy_each_row(rows: Rows<'_, u8>, flip: u8, to: &mut [u8]) {
    let lanes: __mmask64 = (1 << (rows.length() % DEEP_BYTES)) - 1;
    let flip = _mm512_set1_epi8(flip as i8);
    let flip_of_rest = _mm512_maskz_mov_epi8(lanes, flip);
    let (blocks, _) = to.as_chunks_mut::<DEEP_BYTES>();
    let each = rows.length().div_ceil(DEEP_BYTES);
    for (row, blocks) in (0..rows.count()).zip(blocks.chunks_exact_mut(each.max(1))) {
        let (whole, rest) = rows.row(row).as_chunks::<DEEP_BYTES>();
        for (block, values) in blocks.iter_mut().zip(whole) {
            let values: __m512i = bytemuck::cast(*values);
            *block = bytemuck::cast(_mm512_xor_si512(values, flip));
        }
        if let Some(block) = blocks.get_mut(whole.len()) {
            // SAFETY: no more values are loaded than the rest of a row has.
            let values = unsafe { _mm512_maskz_loadu_epi8(lanes, rest.as_ptr().cast()) };
            *block = bytemuck::cast(_mm512_xor_si512(values, flip_of_rest));
        }
    }
}

/// What is multiplied: tiles of rows and panels of columns, as many blocks of each.
struct Blocks {
    rows: [*const u8; 2],
    /// Bytes from a row to the next.
    apart: usize,
    panels: [*const u8; 2],
    /// At least 1.
    count: usize,
}

impl Blocks {
    /// # Panics
    /// If there are none, or not as many of each, or not as many rows as `shaped` knows.
    fn new<const M: usize, const P: usize>(
        shaped: &Shaped,
        rows: [Rows<'_, u8>; M],
        panels: [&[u8]; P],
    ) -> Blocks {
        const { assert!(M - 1 < 2 && P - 1 < 2) };
        let (length, apart) = (rows[0].length(), rows[0].apart());
        let count = length / DEEP_BYTES;
        let fit = |rows: &Rows<'_, u8>| {
            (rows.count(), rows.length(), rows.apart()) == (shaped.rows(), count * DEEP_BYTES, apart)
        };
        assert!(
            count > 0 && rows.iter().all(fit) && panels.iter().all(|panel| panel.len() >= count * TILE_BYTES),
            "tiles of {} rows of {length} bytes and of panels of {:?} bytes",
            shaped.rows(),
            panels.map(<[_]>::len)
        );
        Blocks {
            rows: [rows[0].start(), rows[M - 1].start()],
            apart,
            panels: [panels[0].as_ptr(), panels[P - 1].as_ptr()],
            count,
        }
    }
}

/// Sums blocks of a tile of each, of up to two tiles of rows and up to two panels; `$start` has sums start
/// from 0, `$body` multiplies one of each, and `$end` stores the sums.
macro_rules! sum_blocks {
    ([$($start:literal)*] [$($body:literal)*] [$($end:literal)*], $blocks:expr, $sums:expr) => {{
        let Blocks {
            rows,
            apart,
            panels,
            count,
        } = $blocks;
        let sums: &mut ByteSums = $sums;
        // SAFETY: tiles have as many rows as the `Shaped`, at most sixteen, which exists, so the shapes are
        // set. The loop reads as many blocks as there are: 64 bytes of each row of a tile, and 1 KiB of each
        // panel. `Blocks::new` has seen that they are there. Each of the stores writes rows of 64 bytes of a
        // quarter of the sums. All live for the call.
        unsafe {
            asm!(
                $($start,)*
                "2:",
                $($body,)*
                "add {rows}, 64",
                "add {more_rows}, 64",
                "add {left}, 1024",
                "add {right}, 1024",
                "dec {count}",
                "jnz 2b",
                $($end,)*
                apart = in(reg) apart,
                stride = in(reg) DEEP_BYTES,
                count = inout(reg) count => _,
                rows = inout(reg) rows[0] => _,
                more_rows = inout(reg) rows[1] => _,
                left = inout(reg) panels[0] => _,
                right = inout(reg) panels[1] => _,
                sums = in(reg) sums.0.as_mut_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }};
}

impl Shaped {
    /// Sums the products of one or two tiles of rows of unsigned bytes with one or two panels of columns of
    /// signed ones. Rows have a multiple of [`DEEP_BYTES`]; as many of each panel's bytes count, in tiles of
    /// [`TILE_BYTES`].
    ///
    /// # Panics
    /// If there are no values, or not as many of each.
    pub(in crate::fast) fn sum_bytes<const M: usize, const P: usize>(
        &self,
        rows: [Rows<'_, u8>; M],
        panels: [&[u8]; P],
        sums: &mut ByteSums,
    ) {
        let blocks = Blocks::new(self, rows, panels);
        match (M, P) {
            (2, 2) => sum_blocks!(
                ["tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3"]
                [
                    "tileloadd tmm4, [{rows} + {apart}*1]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbusd tmm0, tmm4, tmm6"
                    "tileloadd tmm5, [{more_rows} + {apart}*1]"
                    "tdpbusd tmm2, tmm5, tmm6"
                    "tileloadd tmm7, [{right} + {stride}*1]"
                    "tdpbusd tmm1, tmm4, tmm7"
                    "tdpbusd tmm3, tmm5, tmm7"
                ]
                [
                    "tilestored [{sums} + {stride}*2], tmm0"
                    "tilestored [{sums} + {stride}*2 + 64], tmm1"
                    "tilestored [{sums} + {stride}*2 + 2048], tmm2"
                    "tilestored [{sums} + {stride}*2 + 2112], tmm3"
                ],
                blocks,
                sums
            ),
            (2, _) => sum_blocks!(
                ["tilezero tmm0" "tilezero tmm2"]
                [
                    "tileloadd tmm4, [{rows} + {apart}*1]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbusd tmm0, tmm4, tmm6"
                    "tileloadd tmm5, [{more_rows} + {apart}*1]"
                    "tdpbusd tmm2, tmm5, tmm6"
                ]
                [
                    "tilestored [{sums} + {stride}*2], tmm0"
                    "tilestored [{sums} + {stride}*2 + 2048], tmm2"
                ],
                blocks,
                sums
            ),
            (_, 2) => sum_blocks!(
                ["tilezero tmm0" "tilezero tmm1"]
                [
                    "tileloadd tmm4, [{rows} + {apart}*1]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbusd tmm0, tmm4, tmm6"
                    "tileloadd tmm7, [{right} + {stride}*1]"
                    "tdpbusd tmm1, tmm4, tmm7"
                ]
                [
                    "tilestored [{sums} + {stride}*2], tmm0"
                    "tilestored [{sums} + {stride}*2 + 64], tmm1"
                ],
                blocks,
                sums
            ),
            _ => sum_blocks!(
                ["tilezero tmm0"]
                [
                    "tileloadd tmm4, [{rows} + {apart}*1]"
                    "tileloadd tmm6, [{left} + {stride}*1]"
                    "tdpbusd tmm0, tmm4, tmm6"
                ]
                ["tilestored [{sums} + {stride}*2], tmm0"],
                blocks,
                sums
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::amx_tiles::SIDE;
    use super::super::tiles;
    use super::{ByteSums, DEEP_BYTES, Rows, TILE_BYTES};

    #[test]
    fn rows_are_filled_up_with_zeros() {
        let Some(amx) = tiles() else { return };
        for length in [1_usize, 63, 64, 65, 128, 150] {
            let values: Vec<u8> = (0..3 * (length + 5)).map(|at| (at * 7) as u8).collect();
            let filled = length.next_multiple_of(DEEP_BYTES);
            let mut copied = vec![9; 3 * filled];
            amx.copy_rows(Rows::new(&values, (3, length + 5), length), 0x80, &mut copied);
            for (at, found) in copied.iter().enumerate() {
                let (row, at) = (at / filled, at % filled);
                let expected = if at < length {
                    values[row * (length + 5) + at] ^ 0x80
                } else {
                    0
                };
                assert_eq!(*found, expected, "{length}: {row} {at}");
            }
        }
    }

    fn byte(at: usize) -> u8 {
        (at * 7919 % 251) as u8
    }

    /// Whether sums of `M` tiles of rows and `P` panels are exact; `None` where there are no tiles.
    fn are_exact<const M: usize, const P: usize>(rows: usize, blocks: usize) -> Option<bool> {
        let amx = tiles()?;
        let (length, apart) = (blocks * DEEP_BYTES, blocks * DEEP_BYTES + 3);
        let values: Vec<u8> = (0..M * rows * apart).map(byte).collect();
        let panels: Vec<u8> = (0..P * blocks * TILE_BYTES).map(|at| byte(at * 3 + 1)).collect();
        let mut sums = ByteSums([[[7; SIDE]; 2]; 2 * SIDE]);
        let panel = |panel: usize| &panels[panel * blocks * TILE_BYTES..][..blocks * TILE_BYTES];
        amx.shape(rows).sum_bytes::<M, P>(
            std::array::from_fn(|tile| Rows::new(&values[tile * rows * apart..], (rows, apart), length)),
            std::array::from_fn(panel),
            &mut sums,
        );
        let exact = |row: usize, number: usize, column: usize| {
            let product = |at: usize| {
                let weight = panel(number)[at / 4 * DEEP_BYTES + column * 4 + at % 4] as i8;
                i32::from(values[row * apart + at]) * i32::from(weight)
            };
            (0..length).map(product).sum::<i32>()
        };
        Some((0..M * rows).all(|row| {
            let place = row / rows * SIDE + row % rows;
            (0..P * SIDE).all(|at| sums.0[place][at / SIDE][at % SIDE] == exact(row, at / SIDE, at % SIDE))
        }))
    }

    #[test]
    fn sums_are_exact() {
        for rows in [1, 9, 16] {
            for blocks in [1, 2, 5] {
                let all = [
                    are_exact::<1, 1>(rows, blocks),
                    are_exact::<1, 2>(rows, blocks),
                    are_exact::<2, 1>(rows, blocks),
                    are_exact::<2, 2>(rows, blocks),
                ];
                assert!(!all.contains(&Some(false)), "{rows} {blocks}: {all:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "tiles of 3 rows of 64 bytes and of panels of [1000] bytes")]
    fn panels_that_end_early_are_refused() {
        let Some(amx) = tiles() else {
            panic!("no tiles: tiles of 3 rows of 64 bytes and of panels of [1000] bytes")
        };
        let mut sums = ByteSums([[[0; SIDE]; 2]; 2 * SIDE]);
        let rows = Rows::new(&[0; 3 * DEEP_BYTES], (3, DEEP_BYTES), DEEP_BYTES);
        amx.shape(3).sum_bytes::<1, 1>([rows], [&[0; 1000]], &mut sums);
    }
}
