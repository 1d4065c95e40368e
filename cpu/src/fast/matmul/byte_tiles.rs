//! Exact products of many rows of bytes with what [`super::packed_bytes`] packs, by tiles: its panels are
//! tiles already, one behind the other, for each 64 values along the common dimension one.
//!
//! The last tile of a panel may be fewer values: then it reaches into what is behind the panel, which is
//! multiplied with the zeros that rows are filled up with.

use super::packed_bytes::{PackedBytes, filled};
use super::quantized_tile::store_tile;
use crate::fast::requantize::QuantizedOutput;
use crate::fast::simd::amx_tiles::{ByteSums, SIDE};
use crate::fast::simd::strided::Rows;
use crate::fast::simd::{Amx, ByteForm, Columns, Instructions, Shaped, Work};
use crate::threads::Block;

/// How many blocks of two tiles by two are summed before they are stored: tiles wait for each other only with
/// the last of them, and 16 KiB of sums stay in a first-level cache.
const AT_ONCE: usize = 4;

/// Multiplies rows with the columns that `output` has.
pub(in crate::fast) struct Multiply<'a> {
    pub(in crate::fast) packed: &'a PackedBytes,
    pub(in crate::fast) amx: Amx,
    /// Rows of [`filled`] bytes, as many as `output` has, one behind the other.
    pub(in crate::fast) rows: &'a [u8],
    /// What is added to all columns of a row; empty if that is 0.
    pub(in crate::fast) terms: &'a [i32],
    pub(in crate::fast) output: Block<'a, u8>,
    pub(in crate::fast) stored: QuantizedOutput,
    /// That of `stored`.
    pub(in crate::fast) form: ByteForm,
}

/// Some neighbouring tiles of rows, and some neighbouring panels.
#[derive(Clone, Copy, Default)]
struct Place {
    tile: usize,
    tiles: usize,
    panel: usize,
    panels: usize,
}

impl Work for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let count = self.output.rows();
        let tiles = count.div_ceil(SIDE);
        // All of the same shape: the last one begins before the one before it ends if they do not come out
        // even.
        let rows = count.div_ceil(tiles);
        let shaped = self.amx.shape(rows);
        let columns = self.output.columns();
        let work = Parts {
            panels: columns.start / SIDE..columns.end.div_ceil(SIDE),
            count,
            tiles,
            rows,
            multiply: self,
        };
        let simd = simd.wide();
        work.run(simd, &shaped);
    }
}

struct Parts<'a> {
    multiply: Multiply<'a>,
    panels: std::ops::Range<usize>,
    /// All rows.
    count: usize,
    /// Tiles of rows, and how many rows each has.
    tiles: usize,
    rows: usize,
}

impl Parts<'_> {
    #[inline(always)]
    fn run<V: Columns>(mut self, simd: V, shaped: &Shaped) {
        let mut sums = [ByteSums([[[0; SIDE]; 2]; 2 * SIDE]); AT_ONCE];
        let mut places = [Place::default(); AT_ONCE];
        let mut count = 0;
        for tile in (0..self.tiles).step_by(2) {
            for panel in self.panels.clone().step_by(2) {
                if count == AT_ONCE {
                    self.store(simd, &places, &sums);
                    count = 0;
                }
                places[count] = Place {
                    tile,
                    tiles: (self.tiles - tile).min(2),
                    panel,
                    panels: (self.panels.end - panel).min(2),
                };
                self.sum(shaped, places[count], &mut sums[count]);
                count += 1;
            }
        }
        self.store(simd, &places[..count], &sums);
    }

    fn first_row(&self, tile: usize) -> usize {
        (tile * self.rows).min(self.count - self.rows)
    }

    fn tile(&self, tile: usize) -> Rows<'_, u8> {
        let filled = filled(self.multiply.packed.depth());
        let rows = &self.multiply.rows[self.first_row(tile) * filled..];
        Rows::new(rows, (self.rows, filled), filled)
    }

    fn sum(&self, shaped: &Shaped, place: Place, sums: &mut ByteSums) {
        let Place {
            tile,
            tiles,
            panel,
            panels,
        } = place;
        match (tiles, panels) {
            (1, 1) => self.sum_of::<1, 1>(shaped, tile, panel, sums),
            (1, _) => self.sum_of::<1, 2>(shaped, tile, panel, sums),
            (_, 1) => self.sum_of::<2, 1>(shaped, tile, panel, sums),
            _ => self.sum_of::<2, 2>(shaped, tile, panel, sums),
        }
    }

    fn sum_of<const M: usize, const P: usize>(
        &self,
        shaped: &Shaped,
        tile: usize,
        panel: usize,
        sums: &mut ByteSums,
    ) {
        let rows = std::array::from_fn(|number| self.tile(tile + number));
        let packed = self.multiply.packed;
        let panels = std::array::from_fn(|number| packed.tiles_from(panel + number));
        shaped.sum_bytes::<M, P>(rows, panels, sums);
    }

    #[inline(always)]
    fn store<V: Columns>(&mut self, simd: V, places: &[Place], sums: &[ByteSums]) {
        for (place, sums) in places.iter().zip(sums) {
            for number in 0..place.tiles {
                let first = self.first_row(place.tile + number);
                let sums = &sums.0[number * SIDE..][..self.rows];
                if place.panels == 2 {
                    self.store_rows::<V, 4, 2>(simd, first, place.panel, sums);
                } else {
                    self.store_rows::<V, 4, 1>(simd, first, place.panel, sums);
                }
            }
        }
    }

    /// Stores sums `R` rows at a time, of which there are no fewer: the last ones begin before those before
    /// them end if they do not come out even.
    #[inline(always)]
    fn store_rows<V: Columns, const R: usize, const P: usize>(
        &mut self,
        simd: V,
        first: usize,
        panel: usize,
        all: &[[[i32; SIDE]; 2]],
    ) {
        let Multiply {
            packed,
            terms,
            output,
            stored,
            form,
            ..
        } = &mut self.multiply;
        let column = panel * SIDE - output.columns().start;
        let requantization = packed.requantization_of::<P>(panel);
        let mut bias = [simd.splat_i32(0); P];
        for (bias, of_panel) in bias.iter_mut().zip(packed.bias_of::<P>(panel)) {
            *bias = simd.load_i32(of_panel);
        }
        for start in (0..all.len()).step_by(R) {
            let start = start.min(all.len() - R);
            let lines: &[_; R] = match all[start..].first_chunk() {
                Some(lines) => lines,
                None => unreachable!("there are {R} rows from {start} on of {}", all.len()),
            };
            let mut sums = [[simd.splat_i32(0); P]; R];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.add_i32(simd.load_i32(&lines[row][panel]), bias[panel]);
                }
            }
            if let Some(terms) = terms.get(first + start..first + start + R) {
                for (sums, term) in sums.iter_mut().zip(terms) {
                    let term = simd.splat_i32(*term);
                    for sum in sums {
                        *sum = simd.add_i32(*sum, term);
                    }
                }
            }
            let place = (&mut *output, first + start, column);
            store_tile::<V, R, P>(simd, &sums, (&requantization, stored, form), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use crate::fast::matmul::packed_bytes::{PackedBytes, ZeroPoints};
    use crate::fast::matmul::pairs::Extents;
    use crate::fast::packing::Packing;
    use crate::fast::simd::tiles;
    use crate::kernels::fixed_point::Multiplier;
    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// A convolution of single pixels: the image, how far apart they are, and the output's extents.
    struct Pixels {
        image: [u32; 4],
        stride: i32,
        output: [u32; 4],
    }

    impl Pixels {
        fn operation(&self, ty: OperandType) -> OneOperation {
            let operand = |dims: &[u32], scale: f32, zero_point: i32| {
                let mut operand = Operand::new(ty, dims);
                (operand.scale, operand.zero_point) = (scale, zero_point);
                operand
            };
            let bytes = |dims: &[u32], by: u32| -> Vec<u8> {
                (0..dims.iter().product())
                    .map(|at: u32| (at.wrapping_mul(by) >> 24) as u8)
                    .collect()
            };
            let (depth, channels) = (self.image[3], self.output[3]);
            let filter = [channels, 1, 1, depth];
            let mut bias = Operand::new(OperandType::TENSOR_INT32, &[channels]);
            bias.scale = 0.25;
            let biases: Vec<i32> = (0..channels as i32).map(|at| at * 31 - 500).collect();
            // Near what stands in the middle of each type, so that results do not all saturate.
            let middle = if ty == OperandType::TENSOR_QUANT8_ASYMM {
                128
            } else {
                0
            };
            let one = OneOperation::new(OperationType::CONV_2D)
                .operand(
                    operand(&self.image, 0.5, middle + 3),
                    &bytes(&self.image, 2_654_435_761),
                )
                .operand(operand(&filter, 0.5, middle + 9), &bytes(&filter, 2_246_822_519))
                .operand(bias, &biases);
            let (valid, zero_point) = (
                2,
                if ty == OperandType::TENSOR_QUANT8_ASYMM {
                    100
                } else {
                    -1
                },
            );
            [valid, self.stride, self.stride, 0]
                .into_iter()
                .fold(one, OneOperation::i32)
                .with_constants()
                .output_operand(operand(&self.output, 400.0, zero_point))
        }
    }

    #[test]
    fn convolutions_of_single_pixels_are_those_of_the_reference() {
        let cases = [
            // Gathered, and filled up with zeros.
            Pixels {
                image: [2, 17, 13, 136],
                stride: 2,
                output: [2, 9, 7, 96],
            },
            // Copied, or where they are.
            Pixels {
                image: [2, 13, 9, 128],
                stride: 1,
                output: [2, 13, 9, 90],
            },
            Pixels {
                image: [1, 5, 7, 260],
                stride: 1,
                output: [1, 5, 7, 72],
            },
        ];
        for case in cases {
            for ty in [
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                let by = |kernels| {
                    let output = case.operation(ty).run_by(kernels, &RunOptions::default());
                    output.unwrap().remove(0).bytes
                };
                let exact = by(KernelSet::Reference);
                let ends = exact.iter().filter(|byte| [0, 127, 128, 255].contains(*byte));
                assert!(ends.count() * 4 < exact.len(), "most results are not clamped");
                assert!(by(KernelSet::Fast) == exact, "{ty} {:?}", case.image);
            }
        }
    }

    /// If this fails, weights are packed otherwise than before: count [`crate::fast::LAYOUT`] up and write
    /// the new sum here.
    #[test]
    fn bytes_are_laid_out_as_their_version_says() {
        if tiles().is_none() {
            return;
        }
        let zeros = ZeroPoints { value: 3, weight: 0 };
        let weight = |column: usize, at: usize| (column * 13 + at * 29) as u8 as i8;
        let sizes = [(49, 132), (48, 124), (20, 200)].map(|(columns, depth)| {
            let multiplier = |_| Multiplier::new(0.01);
            let extents = Extents {
                columns,
                parts: 1,
                part: depth,
            };
            let packed = PackedBytes::new(
                Some(16),
                extents,
                zeros,
                &mut Packing::Now,
                weight,
                |_| 0,
                multiplier,
            )
            .unwrap();
            // FNV-1a.
            let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            let bytes = packed.packed().bytes();
            (bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
        });
        // Filled up behind the last panel only where tiles multiply them.
        let expected = [
            (9408, 7_559_158_905_290_807_717),
            (5952, 12_619_086_404_486_025_989),
            (6400, 18_289_722_253_235_564_453),
        ];
        assert_eq!((crate::fast::LAYOUT, sizes), (15, expected));
    }
}
