//! Neighbouring outputs of a depthwise convolution of floats, for the usual filters: each value of the
//! input is loaded once for all of them.

use std::ops::Range;

use super::driver::{first_channel, for_each_product, tiles, whole_windows};
use super::floats::{Image, Lines, first_lanes};
use crate::fast::matmul::tile::for_each_constant;
use crate::fast::simd::Simd;
use crate::fast::simd::strided::Strided;

impl<'a> Image<'a> {
    // Loops by index, as in [`super::floats`].

    /// For filters of `K` rows of `K` taps, not dilated. `LINES` rows of outputs are computed at a time where
    /// all rows of their windows are inside: most rows of the input are loaded once for all of them.
    #[inline(always)]
    pub(super) fn filtered<
        V: Simd<N>,
        const N: usize,
        const O: usize,
        const K: usize,
        const STRIDE: usize,
        const LINES: usize,
    >(
        mut self,
        simd: V,
    ) {
        let width = self.patches.output.width as usize;
        let inside = whole_windows(&self.patches.horizontal, width, self.patches.input.width);
        let mut rest = std::mem::take(&mut self.output);
        let mut y = self.rows.start;
        while y < self.rows.end {
            let rows = self.rows_inside(y);
            let is_whole = |y: usize| y < self.rows.end && self.rows_inside(y) == (0..K);
            let lines = if LINES == 2 && is_whole(y) && is_whole(y + 1) {
                2
            } else {
                1
            };
            let (output, behind) = rest.split_at_mut(lines * width * self.packed.channels);
            let line = Lines { y, rows, output };
            let image = &self;
            if lines == LINES {
                Tiles::<V, N, O, K, STRIDE, LINES> { image, simd }.lines(&inside, line);
            } else {
                Tiles::<V, N, O, K, STRIDE, 1> { image, simd }.lines(&inside, line);
            }
            (y, rest) = (y + lines, behind);
        }
    }

    /// What neighbouring windows see from a column of the padded input on.
    #[inline(always)]
    fn columns(&self, left: usize) -> SeenColumns {
        let head = self.patches.horizontal.head as usize;
        let width = self.patches.input.width as usize;
        SeenColumns {
            inside: head.saturating_sub(left)..(head + width).saturating_sub(left),
            corner: left.wrapping_sub(head).wrapping_mul(self.packed.channels),
        }
    }

    /// What they see of the row of the input in which this channel of the first pixel is at `start`.
    #[inline(always)]
    fn seen(&self, start: usize, channel: usize, columns: &SeenColumns) -> Seen<'a> {
        let channels = self.packed.channels;
        let row = self.patches.input.width as usize * channels;
        Seen {
            pixels: &self.input[start..start + row - channel],
            channels,
            columns: columns.clone(),
        }
    }
}

/// The columns of the input that neighbouring outputs see.
#[derive(Clone)]
struct SeenColumns {
    /// Which of them are inside.
    inside: Range<usize>,
    /// Where the first of them would be; modulo 2^64 if it is in the padding.
    corner: usize,
}

/// A row of the input that neighbouring outputs see.
struct Seen<'a> {
    /// Its values from the first channel of a group on.
    pixels: &'a [f32],
    channels: usize,
    columns: SeenColumns,
}

/// Tiles of `O` neighbouring outputs of `LINES` rows, for filters of `K` rows of `K` taps that go on by
/// `STRIDE`.
struct Tiles<
    'i,
    'a,
    V,
    const N: usize,
    const O: usize,
    const K: usize,
    const STRIDE: usize,
    const LINES: usize,
> {
    image: &'i Image<'a>,
    simd: V,
}

impl<V: Simd<N>, const N: usize, const O: usize, const K: usize, const STRIDE: usize, const LINES: usize>
    Tiles<'_, '_, V, N, O, K, STRIDE, LINES>
{
    // Loops by index, as in [`super::floats`].

    #[inline(always)]
    fn lines(&self, inside: &Range<usize>, mut lines: Lines<'_>) {
        for x in tiles(self.image.patches.output.width as usize, O) {
            if inside.start <= x && x + O <= inside.end {
                self.outputs::<false>(&mut lines, x);
            } else {
                self.outputs::<true>(&mut lines, x);
            }
        }
    }

    /// Neighbouring outputs of `LINES` rows; at an `EDGE` their windows may reach into the padding, and some
    /// of them beyond the line.
    #[inline(always)]
    fn outputs<const EDGE: bool>(&self, lines: &mut Lines<'_>, x: usize) {
        let Tiles { image, simd } = *self;
        let channels = image.packed.channels;
        let columns = image.columns(x * STRIDE);
        let width = image.patches.output.width as usize;
        let (weights, biases) = image.groups::<N>();
        let Range { start: top, end } = lines.rows;
        // Rows follow each other, so that where each starts is not worked out for each group.
        let start = if top < end {
            image.row_start(lines.y, top)
        } else {
            0
        };
        let across = image.patches.input.width as usize * channels;
        for (group, bias) in biases.iter().enumerate() {
            let weights = &weights[group * K * K..][..K * K];
            let first = first_channel(group, N, channels);
            let mut sums = [[simd.load(bias); O]; LINES];
            if LINES == 1 {
                for row in top..end {
                    let seen = image.seen(start + (row - top) * across + first, first, &columns);
                    self.add_row::<EDGE>(&seen, (weights, row), &mut sums);
                }
            } else {
                // All rows of both lines' windows are inside.
                for_each_constant!(row in [0 1 2 3 4 5] {
                    if row <= K {
                        let seen = image.seen(start + row * across + first, first, &columns);
                        self.add_row::<EDGE>(&seen, (weights, row), &mut sums);
                    }
                });
            }
            for_each_constant!(output in [0 1 2 3 4 5 6 7] {
                if output < O && (!EDGE || x + output < width) {
                    let at = (x + output) * channels + first;
                    image.store::<V, N>(simd, sums[0][output], &mut lines.output[at..]);
                    if LINES == 2 {
                        let below = &mut lines.output[width * channels + at..];
                        image.store::<V, N>(simd, sums[LINES - 1][output], below);
                    }
                }
            });
        }
    }

    /// Adds the products of the pixels that neighbouring outputs see in a row with the row of the filter that
    /// stands there for the first line, and with the one above it for the second.
    #[inline(always)]
    fn add_row<const EDGE: bool>(
        &self,
        seen: &Seen<'_>,
        (weights, row): (&[[f32; N]], usize),
        sums: &mut [[V::F32; O]; LINES],
    ) {
        let simd = self.simd;
        let is_seen_by = |line: usize| LINES == 1 || (line..line + K).contains(&row);
        let mut taps = [[simd.splat(0.0); K]; LINES];
        for_each_constant!(line in [0 1] {
            if line < LINES && is_seen_by(line) {
                let weights = &weights[(row - line) * K..][..K];
                for_each_constant!(tap in [0 1 2 3 4] {
                    if tap < K {
                        taps[line][tap] = simd.load(&weights[tap]);
                    }
                });
            }
        });
        let count = (O - 1) * STRIDE + K;
        let inside = if EDGE {
            None
        } else {
            Some(Strided::<_, N>::new(
                &seen.pixels[seen.columns.corner..],
                (count, seen.channels),
            ))
        };
        for_each_product!(
            (O, K, STRIDE),
            column if (!EDGE || seen.columns.inside.contains(&column)) => values = simd.load(match &inside {
                Some(inside) => inside.at(column),
                None => first_lanes(&seen.pixels[seen.columns.corner.wrapping_add(column * seen.channels)..]),
            }),
            (output, tap) => for_each_constant!(line in [0 1] {
                if line < LINES && is_seen_by(line) {
                    sums[line][output] = simd.mul_add(values, taps[line][tap], sums[line][output]);
                }
            })
        );
    }
}
