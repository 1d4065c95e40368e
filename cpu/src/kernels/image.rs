//! Images in either layout, and what a window sees of them.

use std::ops::Range;

use nnhal_hal::ops::padding::Extents;

/// Extents and steps of a rank 4 tensor. Where the executor has sized a tensor by these extents, every
/// position inside them is inside its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) batch: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    batch_step: usize,
    row_step: usize,
    column_step: usize,
    /// How far the next channel of the same pixel is.
    pub(super) channel_step: usize,
}

impl Image {
    pub(super) fn new(extents: &Extents, nchw: bool) -> Image {
        let [batch, height, width, channels] =
            [extents.batch, extents.height, extents.width, extents.channels].map(|extent| extent as usize);
        let (row_step, column_step, channel_step) = if nchw {
            (width, 1, product([height, width, 1]))
        } else {
            (product([width, channels, 1]), channels, 1)
        };
        Image {
            batch,
            height,
            width,
            channels,
            batch_step: product([height, width, channels]),
            row_step,
            column_step,
            channel_step,
        }
    }

    /// How many elements there are.
    pub(super) fn elements(&self) -> usize {
        product([self.batch, self.batch_step, 1])
    }

    /// All pixels, in the order batch, row, column.
    pub(super) fn pixels(&self) -> impl Iterator<Item = Pixel> + use<> {
        self.pixels_at(0..self.height, 0..self.width)
    }

    /// The pixels of all batches with these rows and columns, in the order batch, row, column.
    pub(super) fn pixels_at<I: Iterator<Item = usize> + Clone>(
        &self,
        rows: I,
        columns: I,
    ) -> impl Iterator<Item = Pixel> + use<I> {
        (0..self.batch).flat_map(move |batch| {
            let columns = columns.clone();
            rows.clone()
                .flat_map(move |row| columns.clone().map(move |column| Pixel { batch, row, column }))
        })
    }

    /// Where the first channel of a pixel is.
    #[inline]
    pub(super) fn at(&self, batch: usize, row: usize, column: usize) -> usize {
        batch * self.batch_step + row * self.row_step + column * self.column_step
    }

    /// How far the next batch, row, column and channel are.
    pub(super) fn steps(&self) -> [isize; 4] {
        [
            self.batch_step,
            self.row_step,
            self.column_step,
            self.channel_step,
        ]
        .map(|step| step as isize)
    }

    /// Whether the channels of a pixel, and the pixels of a row, follow one another.
    fn interleaved(&self) -> bool {
        self.channel_step == 1 && self.column_step == self.channels
    }
}

/// The product of extents. Some of a tensor that has no elements can be beyond all bounds: it is then the
/// most that a step can be, and no step is made.
fn product(extents: [usize; 3]) -> usize {
    extents
        .into_iter()
        .fold(1, usize::saturating_mul)
        .min(isize::MAX as usize)
}

/// A pixel's place in an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pixel {
    pub(super) batch: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// The positions along one axis that the taps of a filter look at; they may be outside the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taps {
    pub(super) first: i64,
    pub(super) step: i64,
    pub(super) count: usize,
}

impl Taps {
    /// The position of tap `index`, if it is below `extent`.
    #[inline]
    pub(super) fn position(&self, index: usize, extent: usize) -> Option<usize> {
        usize::try_from(self.first + index as i64 * self.step)
            .ok()
            .filter(|position| *position < extent)
    }

    /// The taps whose positions are inside `extent`, where neighbouring taps look at neighbouring positions.
    fn inside(&self, extent: usize) -> Range<usize> {
        let below = |position: i64| usize::try_from(position).unwrap_or(0).min(self.count);
        below(-self.first)..below(extent as i64 - self.first)
    }
}

/// Copies what a window sees of `channels` of an image to `patch`, in the order row, column, channel:
/// `convert`ed, and 0 outside the image.
pub(super) fn gather<T: Copy, U: bytemuck::Pod>(
    (data, image): (&[T], &Image),
    batch: usize,
    (rows, columns): (Taps, Taps),
    channels: &Range<usize>,
    patch: &mut [U],
    convert: impl Fn(T) -> U,
) {
    let depth = channels.len();
    let whole_rows = columns.step == 1 && image.interleaved() && depth == image.channels;
    for (index, line) in patch.chunks_exact_mut((columns.count * depth).max(1)).enumerate() {
        let Some(row) = rows.position(index, image.height) else {
            line.fill(U::zeroed());
            continue;
        };
        if whole_rows {
            let inside = columns.inside(image.width);
            let (before, rest) = line.split_at_mut(inside.start.min(inside.end) * depth);
            let (seen, after) = rest.split_at_mut(inside.len() * depth);
            before.fill(U::zeroed());
            after.fill(U::zeroed());
            if let Some(column) = columns
                .position(inside.start, image.width)
                .filter(|_| !seen.is_empty())
            {
                copy_pixel(&data[image.at(batch, row, column)..], 1, seen, &convert);
            }
            continue;
        }
        for (index, pixel) in line.chunks_exact_mut(depth.max(1)).enumerate() {
            match columns.position(index, image.width) {
                Some(column) => {
                    let at = image.at(batch, row, column) + channels.start * image.channel_step;
                    copy_pixel(&data[at..], image.channel_step, pixel, &convert);
                }
                None => pixel.fill(U::zeroed()),
            }
        }
    }
}

#[inline]
fn copy_pixel<T: Copy, U>(from: &[T], step: usize, to: &mut [U], convert: &impl Fn(T) -> U) {
    if step == 1 {
        to.iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to = convert(*from));
    } else {
        to.iter_mut()
            .zip(from.iter().step_by(step))
            .for_each(|(to, from)| *to = convert(*from));
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, Taps, gather};
    use nnhal_hal::ops::padding::Extents;

    const EXTENTS: Extents = Extents {
        batch: 1,
        height: 2,
        width: 3,
        channels: 2,
    };

    fn taps(first: i64, step: i64, count: usize) -> Taps {
        Taps { first, step, count }
    }

    /// What a window sees; element `(row, column, channel)` is `100 * row + 10 * column + channel + 1`.
    fn seen(nchw: bool, rows: Taps, columns: Taps, channels: std::ops::Range<usize>) -> Vec<i32> {
        let image = Image::new(&EXTENTS, nchw);
        let mut data = vec![0_i16; 12];
        for (row, column, channel) in (0..12).map(|index| (index / 6, index / 2 % 3, index % 2)) {
            data[image.at(0, row, column) + channel * image.channel_step] =
                (100 * row + 10 * column + channel + 1) as i16;
        }
        let mut patch = vec![-1; rows.count * columns.count * channels.len()];
        gather(
            (&data, &image),
            0,
            (rows, columns),
            &channels,
            &mut patch,
            i32::from,
        );
        patch
    }

    #[test]
    fn both_layouts_show_the_same_window() {
        let windows = [
            (taps(-1, 1, 3), taps(-1, 1, 2)),
            (taps(0, 1, 2), taps(1, 1, 4)),
            (taps(1, -1, 2), taps(2, -2, 3)),
            (taps(0, 2, 2), taps(5, 1, 2)),
            (taps(0, 1, 1), taps(-7, 1, 3)),
        ];
        for (rows, columns) in windows {
            for channels in [0..2, 1..2] {
                assert_eq!(
                    seen(false, rows, columns, channels.clone()),
                    seen(true, rows, columns, channels)
                );
            }
        }
    }

    #[test]
    fn what_lies_outside_is_zero() {
        assert_eq!(
            seen(false, taps(-1, 1, 2), taps(-1, 1, 2), 0..2),
            [0, 0, 0, 0, 0, 0, 1, 2]
        );
        assert_eq!(seen(false, taps(1, -1, 2), taps(2, 1, 2), 1..2), [122, 0, 22, 0]);
    }
}
