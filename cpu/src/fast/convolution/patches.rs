//! Rows for matrix products out of images: each output position's patch of the input, one behind the other.
//!
//! A convolution is then a product of patches with the filter matrix. Patches of a 1x1 filter with stride 1
//! are the input's own rows and need no copy.

use nnhal_hal::ops::padding::{Extents, Window};
use nnhal_hal::ops::windows::WindowGeometry;

/// Where the patches of a convolution over NHWC images lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patches {
    pub(in crate::fast) input: Extents,
    pub(in crate::fast) output: Extents,
    pub(in crate::fast) vertical: Window,
    pub(in crate::fast) horizontal: Window,
}

/// An image, and how many zeros are before and behind it in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) vertical: [i32; 2],
    pub(crate) horizontal: [i32; 2],
    pub(crate) height: u32,
    pub(crate) width: u32,
}

impl Patches {
    /// The same patches where what is around this image is their padding. `None` if it is not the image that
    /// they are of with that around it, or if windows would lie in the padding as a whole.
    pub(in crate::fast) fn behind_padding(&self, around: &Around) -> Option<Patches> {
        let shrunk = |window: &Window, [before, behind]: [i32; 2], extents: [u32; 2]| {
            let [padded, extent] = extents.map(i64::from);
            let is_its = extent + i64::from(before) + i64::from(behind) == padded;
            let window = Window {
                head: window.head.checked_add(before)?,
                tail: window.tail.checked_add(behind)?,
                ..*window
            };
            let most = i64::from(window.head.max(window.tail));
            (is_its && most < window.effective()).then_some(window)
        };
        let (height, width) = (self.input.height, self.input.width);
        Some(Patches {
            vertical: shrunk(&self.vertical, around.vertical, [height, around.height])?,
            horizontal: shrunk(&self.horizontal, around.horizontal, [width, around.width])?,
            input: Extents {
                height: around.height,
                width: around.width,
                ..self.input
            },
            ..*self
        })
    }

    pub(in crate::fast) fn new(geometry: &WindowGeometry) -> Patches {
        Patches {
            input: geometry.input,
            output: geometry.output,
            vertical: geometry.vertical,
            horizontal: geometry.horizontal,
        }
    }

    /// The patches of a 1x1 filter: `count` single pixels.
    pub(in crate::fast) fn pixels(count: u32, depth: u32, columns: u32) -> Patches {
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
    pub(in crate::fast) fn count(&self) -> usize {
        self.output.batch as usize * self.output.height as usize * self.output.width as usize
    }

    /// Values in a patch.
    pub(in crate::fast) fn depth(&self) -> usize {
        self.vertical.filter as usize * self.horizontal.filter as usize * self.input.channels as usize
    }

    /// Pairs of values in a patch whose rows begin with a pair each.
    pub(in crate::fast) fn pairs(&self) -> usize {
        let across = self.horizontal.filter as usize * self.input.channels as usize;
        self.vertical.filter as usize * across.div_ceil(2)
    }

    /// Fours of values in a patch whose rows begin with four each.
    pub(in crate::fast) fn fours(&self) -> usize {
        let across = self.horizontal.filter as usize * self.input.channels as usize;
        self.vertical.filter as usize * across.div_ceil(4)
    }

    /// Values of one image of these extents.
    pub(in crate::fast) fn image_size(&self, extents: &Extents) -> usize {
        extents.height as usize * extents.width as usize * extents.channels as usize
    }

    /// The images of a batch, each with its output.
    pub(in crate::fast) fn images<'i, 'o, A, B>(
        &self,
        input: &'i [A],
        output: &'o mut [B],
    ) -> impl Iterator<Item = (&'i [A], &'o mut [B])> {
        let inputs = input.chunks_exact(self.image_size(&self.input).max(1));
        inputs.zip(output.chunks_exact_mut(self.image_size(&self.output).max(1)))
    }

    /// Whether patch `n` is the input's `n`th pixel.
    pub(in crate::fast) fn are_pixels(&self) -> bool {
        let single = |window: &Window| {
            window.filter == 1 && window.stride == 1 && window.head == 0 && window.tail == 0
        };
        single(&self.vertical) && single(&self.horizontal)
    }

    /// Tells `sink` every horizontal run of input pixels, or of padding, that the patches `first..first +
    /// count` take.
    #[inline(always)]
    pub(in crate::fast) fn gather<T>(
        &self,
        input: &[T],
        first: usize,
        count: usize,
        sink: &mut impl Sink<T>,
    ) {
        let (width, height) = (self.output.width as usize, self.output.height as usize);
        let channels = self.input.channels as usize;
        let (input_width, input_height) = (self.input.width as i64, self.input.height as i64);
        let across = self.horizontal.filter as usize;
        let (mut batch, mut y, mut x) = (
            first / (width * height).max(1),
            first / width.max(1) % height.max(1),
            first % width.max(1),
        );
        for number in 0..count {
            if x == width {
                (x, y) = (0, y + 1);
            }
            if y == height {
                (y, batch) = (0, batch + 1);
            }
            let top = y as i64 * i64::from(self.vertical.stride) - i64::from(self.vertical.head);
            let left = x as i64 * i64::from(self.horizontal.stride) - i64::from(self.horizontal.head);
            for row in 0..self.vertical.filter as usize {
                let input_y = top + row as i64 * i64::from(self.vertical.dilation);
                let offset = row * across * channels;
                if input_y < 0 || input_y >= input_height {
                    sink.padding(number, offset, across * channels);
                    continue;
                }
                let line = (batch as i64 * input_height + input_y) * input_width;
                let contiguous = self.horizontal.dilation == 1;
                if contiguous && left >= 0 && left + across as i64 <= input_width {
                    let start = (line + left) as usize * channels;
                    sink.pixels(number, offset, &input[start..start + across * channels]);
                    continue;
                }
                for tap in 0..across {
                    let input_x = left + tap as i64 * i64::from(self.horizontal.dilation);
                    let offset = offset + tap * channels;
                    if input_x < 0 || input_x >= input_width {
                        sink.padding(number, offset, channels);
                    } else {
                        let start = (line + input_x) as usize * channels;
                        sink.pixels(number, offset, &input[start..start + channels]);
                    }
                }
            }
            x += 1;
        }
    }
}

/// Takes the parts of patches; patch numbers start from 0.
pub(in crate::fast) trait Sink<T> {
    /// Neighbouring input values, at an offset in a patch.
    fn pixels(&mut self, number: usize, offset: usize, pixels: &[T]);
    /// So many values of padding.
    fn padding(&mut self, number: usize, offset: usize, length: usize);
}
