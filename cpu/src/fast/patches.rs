//! Rows for matrix products out of images: each output position's patch of the input, one behind the other.
//!
//! A convolution is then a product of patches with the filter matrix. Patches of a 1x1 filter with stride 1 are the
//! input's own rows and need no copy.

use nnhal::ops::padding::{Extents, Window};
use nnhal::ops::windows::WindowGeometry;

/// Where the patches of a convolution over NHWC images lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    pub(super) input: Extents,
    pub(super) output: Extents,
    pub(super) vertical: Window,
    pub(super) horizontal: Window,
}

impl Patches {
    pub(super) fn new(geometry: &WindowGeometry) -> Patches {
        Patches {
            input: geometry.input,
            output: geometry.output,
            vertical: geometry.vertical,
            horizontal: geometry.horizontal,
        }
    }

    /// The patches of a 1x1 filter: `count` single pixels.
    pub(super) fn pixels(count: u32, depth: u32, columns: u32) -> Patches {
        let row = Extents {
            batch: count,
            height: 1,
            width: 1,
            channels: depth,
        };
        let window = Window {
            filter: 1,
            stride: 1,
            dilation: 1,
            head: 0,
            tail: 0,
        };
        Patches {
            input: row,
            output: Extents {
                channels: columns,
                ..row
            },
            vertical: window,
            horizontal: window,
        }
    }

    /// Number of patches.
    pub(super) fn count(&self) -> usize {
        self.output.batch as usize * self.output.height as usize * self.output.width as usize
    }

    /// Values in a patch.
    pub(super) fn depth(&self) -> usize {
        self.vertical.filter as usize * self.horizontal.filter as usize * self.input.channels as usize
    }

    /// Whether patch `n` is the input's `n`th pixel.
    pub(super) fn are_pixels(&self) -> bool {
        let single = |window: &Window| {
            window.filter == 1 && window.stride == 1 && window.head == 0 && window.tail == 0
        };
        single(&self.vertical) && single(&self.horizontal)
    }

    /// Calls `each(patch number from 0, offset in the patch, pixels)` for every horizontal run of input pixels that
    /// the patches `first..first + count` take, and `each` with `None` and the run's length in values for padding.
    pub(super) fn gather<'i, T>(
        &self,
        input: &'i [T],
        first: usize,
        count: usize,
        mut each: impl FnMut(usize, usize, Run<'i, T>),
    ) {
        let (width, height) = (self.output.width as usize, self.output.height as usize);
        let channels = self.input.channels as usize;
        let (input_width, input_height) = (self.input.width as i64, self.input.height as i64);
        let across = self.horizontal.filter as usize;
        for number in 0..count {
            let at = first + number;
            let (batch, y, x) = (at / (width * height), at / width % height, at % width);
            let top = y as i64 * i64::from(self.vertical.stride) - i64::from(self.vertical.head);
            let left = x as i64 * i64::from(self.horizontal.stride) - i64::from(self.horizontal.head);
            for row in 0..self.vertical.filter as usize {
                let input_y = top + row as i64 * i64::from(self.vertical.dilation);
                let offset = row * across * channels;
                if input_y < 0 || input_y >= input_height {
                    each(number, offset, Run::Padding(across * channels));
                    continue;
                }
                let line = (batch as i64 * input_height + input_y) * input_width;
                let contiguous = self.horizontal.dilation == 1;
                if contiguous && left >= 0 && left + across as i64 <= input_width {
                    let start = (line + left) as usize * channels;
                    each(
                        number,
                        offset,
                        Run::Pixels(&input[start..start + across * channels]),
                    );
                    continue;
                }
                for tap in 0..across {
                    let input_x = left + tap as i64 * i64::from(self.horizontal.dilation);
                    let offset = offset + tap * channels;
                    if input_x < 0 || input_x >= input_width {
                        each(number, offset, Run::Padding(channels));
                    } else {
                        let start = (line + input_x) as usize * channels;
                        each(number, offset, Run::Pixels(&input[start..start + channels]));
                    }
                }
            }
        }
    }
}

/// A part of a patch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run<'i, T> {
    /// Neighbouring input values.
    Pixels(&'i [T]),
    /// So many values of padding.
    Padding(usize),
}
