//! Windows of bytes that are read in the image or in strips of it, beside their definition: in one block and
//! in many, which begin anywhere, by whichever instructions there are.

use nnhal_hal::ops::padding::{Extents, Window};
use nnhal_os::cores::OwnCores;

use super::{Patches, QuantizedOutput, cost, framing, run_bytes, sign_bit};
use crate::fast::matmul::packed_bytes::{FOUR, PackedBytes, ZeroPoints};
use crate::fast::matmul::pairs;
use crate::fast::packing::Packing;
use crate::fast::testing::place;
use crate::interrupt::NeverInterrupted;
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;
use crate::scratch::Scratch;
use crate::threads::{Helpers, Team, Threads};

/// A window of so many taps, its stride and dilation, and padding before and behind.
fn window(filter: u32, stride: u32, dilation: u32, [head, tail]: [i32; 2]) -> Window {
    Window {
        filter,
        stride,
        dilation,
        head,
        tail,
    }
}

/// A layer, and the results that its definition gives.
struct Layer {
    patches: Patches,
    packed: PackedBytes,
    input: Vec<u8>,
    exact: Vec<u8>,
}

/// The zero point of values as unsigned bytes, and that of results.
const ZERO: i32 = 131;
const OUTPUT_ZERO: i32 = 119;

impl Layer {
    fn new(
        [batch, height, width, channels]: [u32; 4],
        [vertical, horizontal]: [Window; 2],
        columns: u32,
    ) -> Layer {
        let input = Extents {
            batch,
            height,
            width,
            channels,
        };
        let patches = Patches {
            input,
            output: Extents {
                batch,
                height: vertical.output_extent(height).unwrap(),
                width: horizontal.output_extent(width).unwrap(),
                channels: columns,
            },
            vertical,
            horizontal,
        };
        let depth = patches.depth();
        let byte = |at: usize, by: u32| ((at as u32 + 7).wrapping_mul(by) >> 24) as u8;
        let weight = |column: usize, at: usize| byte(column * depth + at, 2_246_822_519) as i8;
        let bias = |column: usize| column as i32 * 90 - 1500;
        let multiplier =
            |column: usize| Multiplier::new(0.006 / (depth as f64).sqrt() * (1 + column % 5) as f64);
        let parts = vertical.filter as usize;
        let extents = pairs::Extents {
            columns: columns as usize,
            parts,
            part: depth / parts,
        };
        let zeros = ZeroPoints {
            value: ZERO,
            weight: 0,
        };
        let packing = &mut Packing::Now;
        let packed = PackedBytes::new(
            Some(patches.count()),
            extents,
            zeros,
            packing,
            weight,
            bias,
            multiplier,
        )
        .unwrap();
        let size = patches.image_size(&patches.input) * batch as usize;
        let input: Vec<u8> = (0..size).map(|at| byte(at, 2_654_435_761)).collect();
        let exact = exact(&patches, &input, weight, |column, sum| {
            let result = multiplier(column).apply(sum + bias(column)) + OUTPUT_ZERO;
            result.clamp(0, 255) as u8
        });
        Layer {
            patches,
            packed,
            input,
            exact,
        }
    }

    /// The results by some threads, as unsigned bytes; how they are parted is added to what was seen.
    fn results<T: Quant8>(&self, threads: usize, seen: &mut Seen) -> Vec<u8> {
        let (helpers, cores) = (Helpers::new(7), OwnCores::new(8));
        let most = if threads == 1 {
            Threads::ALONE
        } else {
            Threads::new(&helpers, &cores, threads)
        };
        let team = Team::new(most, 1 << 20, &NeverInterrupted);
        let matrix = self.packed.packed().bytes().len();
        let times = self.packed.times_as_fast();
        let parts = team.parts_for(cost(&self.patches, matrix, times));
        assert_eq!(parts.threads, threads);
        assert!(self.packed.reads_windows());
        let (grid, frame) = framing::<u8>(&self.patches, matrix, parts, (4, self.patches.depth()));
        let is_in_image = frame.is_some_and(|frame| frame.is_image());
        let part = self.patches.horizontal.filter * self.patches.input.channels;
        let in_place = is_in_image && T::LEAST == 0 && part.is_multiple_of(FOUR as u32);
        let width = self.patches.output.width as usize;
        let of_route = &mut seen[usize::from(in_place)];
        let has_rows = grid.rows_per_block < grid.rows;
        of_route.alone |= threads == 1 && has_rows;
        of_route.within_lines |= has_rows && !grid.rows_per_block.is_multiple_of(width);
        of_route.columns |= grid.columns_per_block < grid.columns;
        let flip = sign_bit::<T>();
        let signed = |value: i32| value - i32::from(flip);
        let stored = QuantizedOutput {
            zero_point: signed(OUTPUT_ZERO),
            low: signed(0),
            high: signed(255),
        };
        let input: Vec<u8> = self.input.iter().map(|byte| byte ^ flip).collect();
        let mut output = vec![0_u8; self.exact.len()];
        let (from, to) = (
            bytemuck::cast_slice::<u8, T>(&input),
            bytemuck::cast_slice_mut(&mut output),
        );
        let with = (&mut Scratch::default(), &team);
        run_bytes::<T>(
            &self.packed,
            &self.patches,
            (from, signed(ZERO)),
            (to, stored),
            with,
        )
        .unwrap();
        output.iter().map(|byte| byte ^ flip).collect()
    }
}

/// What the definition gives; `result` scales the sum of a column.
fn exact(
    patches: &Patches,
    input: &[u8],
    weight: impl Fn(usize, usize) -> i8,
    result: impl Fn(usize, i32) -> u8,
) -> Vec<u8> {
    let (extents, output) = (&patches.input, &patches.output);
    let (width, channels) = (extents.width as usize, extents.channels as usize);
    let across = patches.horizontal.filter as usize;
    let mut results = Vec::new();
    for image in input.chunks(patches.image_size(extents)) {
        for at in 0..output.height as usize * output.width as usize {
            let (y, x) = (at / output.width as usize, at % output.width as usize);
            let mut seen = Vec::new();
            for tap in 0..patches.vertical.filter as usize * across {
                let row = place(&patches.vertical, y, tap / across, extents.height);
                let column = place(&patches.horizontal, x, tap % across, extents.width);
                let (Some(row), Some(column)) = (row, column) else {
                    seen.extend(std::iter::repeat_n(0, channels));
                    continue;
                };
                let pixel = &image[(row * width + column) * channels..][..channels];
                seen.extend(pixel.iter().map(|value| i32::from(*value) - ZERO));
            }
            results.extend((0..output.channels as usize).map(|column| {
                let products = seen.iter().enumerate();
                let sum = products
                    .map(|(at, value)| value * i32::from(weight(column, at)))
                    .sum();
                result(column, sum)
            }));
        }
    }
    results
}

/// How outputs were parted, of those that are read in strips, and those that are read in the image.
type Seen = [Parted; 2];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Parted {
    /// In several blocks for a single thread.
    alone: bool,
    /// In blocks that begin within a line.
    within_lines: bool,
    /// In blocks of some of the columns.
    columns: bool,
}

#[test]
fn windows_of_bytes_are_exact_in_every_block() {
    let none = [0; 2];
    let plain = |stride| window(3, stride, 1, [1, 1]);
    let valid = |stride| window(3, stride, 1, none);
    let layers = [
        Layer::new([2, 97, 95, 3], [plain(2); 2], 33),
        Layer::new([1, 75, 76, 3], [plain(1); 2], 17),
        Layer::new([1, 90, 91, 4], [valid(1); 2], 33),
        Layer::new([2, 61, 43, 4], [valid(2), valid(1)], 24),
        // Parts of the image that do not make fours.
        Layer::new([1, 41, 39, 3], [valid(2); 2], 33),
        // Few rows of many columns.
        Layer::new([1, 6, 7, 64], [valid(1); 2], 160),
        Layer::new([1, 4, 5, 64], [plain(1); 2], 160),
        // Gaps in one direction.
        Layer::new([1, 40, 41, 4], [window(3, 1, 2, none), valid(1)], 33),
        Layer::new([1, 40, 41, 3], [window(3, 1, 2, [2, 2]), plain(1)], 33),
        Layer::new([1, 40, 41, 4], [valid(1), window(3, 1, 3, none)], 33),
        Layer::new([1, 40, 41, 4], [plain(1), window(3, 1, 3, [3, 3])], 33),
        // Padding on one side, or more on one.
        Layer::new([1, 40, 42, 3], [window(3, 2, 1, [0, 1]); 2], 33),
        Layer::new(
            [1, 41, 40, 5],
            [window(5, 1, 1, [4, 0]), window(5, 1, 1, [1, 3])],
            33,
        ),
        Layer::new(
            [2, 30, 31, 8],
            [window(3, 1, 1, [2, 0]), window(3, 1, 1, [0, 2])],
            33,
        ),
    ];
    let mut seen = Seen::default();
    for layer in &layers {
        let patches = &layer.patches;
        let ends = layer.exact.iter().filter(|byte| [0, 255].contains(*byte));
        assert!(
            ends.count() * 3 < layer.exact.len(),
            "most results of {patches:?} are not clamped"
        );
        for threads in [1, 2, 3, 5, 8] {
            let unsigned = layer.results::<u8>(threads, &mut seen);
            assert!(
                unsigned == layer.exact,
                "unsigned, {threads} threads, {patches:?}"
            );
            let signed = layer.results::<i8>(threads, &mut seen);
            assert!(signed == layer.exact, "signed, {threads} threads, {patches:?}");
        }
    }
    let all = Parted {
        alone: true,
        within_lines: true,
        columns: true,
    };
    assert_eq!(seen, [all; 2], "in strips, in the image");
}
