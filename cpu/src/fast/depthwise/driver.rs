//! What depthwise convolutions of all types have in common: how rows of outputs are parted among threads, how
//! filters are packed by groups of channels, and which tap of which output a column of the input meets.
//!
//! Channels are taken in groups of a vector's lanes; the last group overlaps the one before it where the
//! channels do not fill it, so that every group is whole. Likewise the last of a row's outputs are computed
//! with some before them, for the second time.

use std::ops::Range;

use bytemuck::Pod;
use nnhal_hal::ops::padding::Window;
use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use crate::fast::convolution::patches::Patches;
use crate::fast::convolution::products::vector_speed;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::interrupt::Interrupt as _;
use crate::scratch::Scratch;
use crate::threads::{Cost, Parts, Team};

/// What computes rows of outputs.
pub(super) trait MicroKernel: Sync {
    type Value: Sync;
    type Result: Send;
    /// What the input is laid out as before it is multiplied.
    type LaidOut: Pod + Send;

    /// The most rows that are computed at once.
    fn most_rows(&self) -> usize {
        usize::MAX
    }

    /// What is laid out for so many rows at the most.
    fn laid_out(&self, rows: usize) -> usize;

    /// Computes some rows of an image.
    fn compute(&self, rows: Rows<'_, Self::Value, Self::Result>, memory: &mut [Self::LaidOut]);
}

/// Rows of one image's output.
pub(super) struct Rows<'a, V, R> {
    /// The whole image.
    pub(super) input: &'a [V],
    /// Which rows they are.
    pub(super) rows: Range<usize>,
    pub(super) output: &'a mut [R],
}

/// Convolves `input` into `output` in so many parts.
pub(super) fn run<K: MicroKernel>(
    kernel: &K,
    patches: &Patches,
    (input, output): (&[K::Value], &mut [K::Result]),
    (scratch, team, parts): (&mut Scratch, &Team<'_>, Parts),
) -> Result<(), OutOfMemory> {
    let height = patches.output.height as usize;
    let row = patches.image_size(&patches.output) / height.max(1);
    let mut grid = partition::rows(parts, height, row);
    grid.rows_per_block = grid.rows_per_block.min(kernel.most_rows());
    let threads = grid.most_threads(parts.threads);
    let memory = scratch.shares::<K::LaidOut>(threads, kernel.laid_out(grid.rows_per_block))?;
    for (image, (input, output)) in patches.images(input, output).enumerate() {
        if image > 0 && team.check().is_err() {
            break;
        }
        team.for_each_block(threads, &grid, (output, &mut *memory), |mut block, memory| {
            let first = block.first_row();
            let rows = first..first + block.rows();
            let output = block.all();
            kernel.compute(Rows { input, rows, output }, memory);
        });
    }
    Ok(())
}

/// What one image takes, of floats or 8-bit values. Its products are summed at about a third of the speed of
/// a matrix product of floats.
pub(in crate::fast) fn cost(patches: &Patches) -> Cost {
    let taps = u64::from(patches.vertical.filter) * u64::from(patches.horizontal.filter);
    let extents = &patches.output;
    let outputs = [extents.height, extents.width, extents.channels]
        .into_iter()
        .fold(1, |product: u64, extent| {
            product.saturating_mul(u64::from(extent))
        });
    Cost {
        multiply_adds: outputs.saturating_mul(3 * taps) / vector_speed(),
        bytes: 0,
    }
}

/// The first channel of a group.
#[inline(always)]
pub(super) fn first_channel(group: usize, lanes: usize, channels: usize) -> usize {
    (group * lanes).min(channels.saturating_sub(lanes))
}

/// Packs so many values of each of some groups; `value(group, at)` gives them.
pub(super) fn pack<T: Pod>(
    packing: &mut Packing,
    (groups, each): (usize, usize),
    value: impl Fn(usize, usize) -> T,
) -> Result<AlignedSlice, PackingError> {
    packing.part(groups * each * size_of::<T>(), |bytes| {
        let packed: &mut [T] = bytemuck::cast_slice_mut(bytes);
        for (at, packed) in packed.iter_mut().enumerate() {
            *packed = value(at / each, at % each);
        }
    })
}

/// Where the tiles of so many outputs begin of which there are `all`, at least one tile.
#[inline(always)]
pub(super) fn tiles(all: usize, outputs: usize) -> impl Iterator<Item = usize> {
    // The last ones, some of them for the second time, if there are not so many left.
    (0..all)
        .step_by(outputs)
        .map(move |at| at.min(all.saturating_sub(outputs)))
}

/// The taps of a window that are inside the input, for the window at `position`.
#[inline(always)]
pub(super) fn taps_inside(window: &Window, position: usize, extent: u32) -> Range<usize> {
    let start = position as i64 * i64::from(window.stride) - i64::from(window.head);
    let dilation = i64::from(window.dilation);
    let filter = i64::from(window.filter);
    let first = steps(-start, dilation).min(filter);
    let end = steps(i64::from(extent) - start, dilation);
    first as usize..end.min(filter).max(first) as usize
}

/// How many steps of a dilated window reach over a distance.
#[inline(always)]
fn steps(distance: i64, dilation: i64) -> i64 {
    // A division takes longer than a window; most windows are not dilated.
    match dilation {
        1 => distance.max(0),
        _ => (distance.max(0) + dilation - 1) / dilation,
    }
}

/// The outputs of a row whose windows are inside the input.
pub(super) fn whole_windows(window: &Window, width: usize, extent: u32) -> Range<usize> {
    let whole = 0..window.filter as usize;
    let is_whole = |x: &usize| taps_inside(window, *x, extent) == whole;
    let first = (0..width).find(is_whole).unwrap_or(width);
    let after = (first..width).rev().find(is_whole).map_or(first, |last| last + 1);
    first..after
}

/// Loads each of the columns that some neighbouring outputs see of a row of the input, and has each output
/// take its product with each tap that meets it: at most 8 outputs by 5 taps, which go on by 1 or 2 columns
/// from one output to the next. `if` says which columns are seen.
macro_rules! for_each_product {
    (
        ($outputs:expr, $taps:expr, $stride:expr),
        $column:ident if $seen:expr => $values:ident = $load:expr,
        ($output:ident, $tap:ident) => $add:expr
    ) => {
        $crate::fast::matmul::tile::for_each_constant!($column in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18] {
            if $column < ($outputs - 1) * $stride + $taps && $seen {
                let $values = $load;
                $crate::fast::matmul::tile::for_each_constant!($tap in [0 1 2 3 4] {
                    if $tap < $taps && $tap <= $column {
                        let ($output, between) = (($column - $tap) / $stride, ($column - $tap) % $stride);
                        if between == 0 && $output < $outputs {
                            $add;
                        }
                    }
                });
            }
        })
    };
}

pub(super) use for_each_product;

#[cfg(test)]
mod tests {
    use nnhal_hal::ops::padding::Window;

    use super::{taps_inside, tiles, whole_windows};

    #[test]
    fn tiles_are_whole_and_cover_all() {
        assert!(tiles(0, 4).next().is_none());
        assert!(tiles(10, 4).eq([0, 4, 6]));
        assert!(tiles(8, 4).eq([0, 4]));
        // A tile may reach beyond what there is only if that is less than a tile.
        assert!(tiles(3, 4).eq([0]));
    }

    #[test]
    fn windows_inside_are_those_between_the_paddings() {
        let window = |filter, stride, head| Window {
            filter,
            stride,
            dilation: 1,
            head,
            tail: 0,
        };
        assert_eq!(whole_windows(&window(3, 1, 1), 5, 5), 1..4);
        assert_eq!(whole_windows(&window(3, 2, 0), 2, 5), 0..2);
        assert_eq!(whole_windows(&window(5, 1, 2), 3, 3), 3..3);
    }

    #[test]
    fn taps_in_the_padding_are_left_out() {
        let window = Window {
            filter: 3,
            stride: 2,
            dilation: 2,
            head: 3,
            tail: 1,
        };
        // Positions -3, -1, 1; then 1, 3, 5 of 5; then 7 and beyond.
        assert_eq!(taps_inside(&window, 0, 5), 2..3);
        assert_eq!(taps_inside(&window, 2, 5), 0..2);
        assert_eq!(taps_inside(&window, 5, 5), 0..0);
        assert_eq!(taps_inside(&window, 0, 1), 2..2);
    }
}
