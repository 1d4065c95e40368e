//! Strips of images with their padding, in which every window of a convolution is whole: what a block of
//! outputs sees.

use std::ops::Range;

use nnhal_hal::ops::padding::Window;

use super::convolution::patches::Patches;
use super::matmul::lines::{Lines, Parts};

/// Strips are at most so many times as large as the image, or [`SMALL`].
const MOST_TIMES: usize = 8;

/// Elements of a strip that are no burden whatever the image: 4 MiB of floats.
const SMALL: usize = 1 << 20;

/// How the windows of a convolution lie in a strip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    patches: &'a Patches,
    /// Pixels of a line.
    width: usize,
    /// Whether windows reach beyond the image.
    is_padded: bool,
}

/// Pixels from the first that windows see to the last.
fn span(window: &Window, outputs: usize) -> usize {
    outputs.saturating_sub(1) * window.stride as usize + window.effective() as usize
}

/// Which rows of an image's input, so many in all, some rows of its output see; or columns.
#[inline(always)]
pub(super) fn seen(window: &Window, height: usize, rows: &Range<usize>) -> Range<usize> {
    let (stride, head) = (i64::from(window.stride), i64::from(window.head));
    let inside = |row: i64| row.clamp(0, height as i64) as usize;
    let start = inside(rows.start as i64 * stride - head);
    let end = inside((rows.end as i64 - 1) * stride - head + window.effective());
    start..end.max(start)
}

/// At most how many rows of the input so many neighbouring rows of the output see.
pub(super) fn most_seen(window: &Window, height: usize, rows: usize) -> usize {
    let seen = (rows.saturating_sub(1) as u64)
        .saturating_mul(u64::from(window.stride))
        .saturating_add(window.effective().unsigned_abs());
    usize::try_from(seen).unwrap_or(usize::MAX).min(height)
}

/// The neighbouring outputs of one image that a strip is for, line by line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outputs {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<'a> Frame<'a> {
    /// For all windows of a convolution.
    pub(super) fn new(patches: &'a Patches) -> Frame<'a> {
        let (vertical, horizontal) = (&patches.vertical, &patches.horizontal);
        let reaches_beyond = |window: &Window, outputs: u32, extent: u32| {
            window.head > 0 || span(window, outputs as usize) > extent as usize
        };
        let is_padded = reaches_beyond(vertical, patches.output.height, patches.input.height)
            || reaches_beyond(horizontal, patches.output.width, patches.input.width);
        Frame {
            patches,
            width: if is_padded {
                span(horizontal, patches.output.width as usize)
            } else {
                patches.input.width as usize
            },
            is_padded,
        }
    }

    /// For blocks of so many outputs; `None` where strips would not be [small](Frame::is_small), or contain
    /// more that no window sees than what windows see.
    pub(super) fn of(patches: &'a Patches, outputs: usize) -> Option<Frame<'a>> {
        let (vertical, horizontal) = (&patches.vertical, &patches.horizontal);
        let seen = u64::from(vertical.filter) * u64::from(horizontal.filter);
        let is_dense = u64::from(vertical.stride) * u64::from(horizontal.stride) <= seen;
        Some(Frame::new(patches)).filter(|frame| is_dense && frame.is_small(outputs))
    }

    /// Whether strips for so many outputs are not far larger than the image.
    pub(super) fn is_small(&self, outputs: usize) -> bool {
        let input = &self.patches.input;
        let image = [input.height, input.width, input.channels]
            .into_iter()
            .fold(1, |product: usize, extent| {
                product.saturating_mul(extent as usize)
            });
        let most = image.saturating_mul(MOST_TIMES).max(SMALL);
        self.len(outputs).is_some_and(|length| length <= most)
    }

    /// Whether the strip is the image itself.
    pub(super) fn is_image(&self) -> bool {
        !self.is_padded
    }

    /// Elements of a strip for so many outputs, whichever they are; one more is there to be read with the
    /// last.
    pub(super) fn len(&self, outputs: usize) -> Option<usize> {
        let line = (self.patches.output.width as usize).max(1);
        let lines = (outputs.saturating_sub(1) / line + 2).min(self.patches.output.height as usize);
        span(&self.patches.vertical, lines)
            .checked_mul(self.width)?
            .checked_mul(self.patches.input.channels as usize)?
            .checked_add(1)
    }

    /// Elements of a line.
    pub(super) fn line(&self) -> usize {
        self.width * self.patches.input.channels as usize
    }

    /// The lines of outputs, as numbers of the first and the one after the last.
    fn output_lines(&self, outputs: Outputs) -> (usize, usize) {
        let width = (self.patches.output.width as usize).max(1);
        let last = (outputs.first + outputs.count).saturating_sub(1);
        (outputs.first / width, last / width + 1)
    }

    /// Makes the strip for some outputs out of the image. `copy` writes neighbouring elements of the image,
    /// `zero` is what stands in the padding.
    #[inline(always)]
    pub(super) fn fill<A, B: Copy>(
        &self,
        image: &[A],
        outputs: Outputs,
        (strip, zero): (&mut [B], B),
        copy: impl Fn(&[A], &mut [B]),
    ) {
        let (vertical, extents) = (&self.patches.vertical, &self.patches.input);
        let channels = extents.channels as usize;
        let (from, to) = self.output_lines(outputs);
        let top = (from * vertical.stride as usize) as i64 - i64::from(vertical.head);
        let left = if self.is_padded {
            (self.patches.horizontal.head as usize).min(self.width)
        } else {
            0
        };
        let columns = (extents.width as usize).min(self.width - left);
        let lines = strip.chunks_exact_mut(self.line().max(1));
        for (y, line) in (top..).zip(lines.take(span(vertical, to - from))) {
            if y < 0 || y >= i64::from(extents.height) {
                line.fill(zero);
                continue;
            }
            let (head, rest) = line.split_at_mut(left * channels);
            let (middle, tail) = rest.split_at_mut(columns * channels);
            head.fill(zero);
            tail.fill(zero);
            let start = y as usize * extents.width as usize * channels;
            copy(&image[start..start + columns * channels], middle);
        }
    }

    /// The part of the image that is the strip for some outputs, if it [is](Frame::is_image) one.
    pub(super) fn of_image<'i, T>(&self, image: &'i [T], outputs: Outputs) -> &'i [T] {
        let (from, _) = self.output_lines(outputs);
        &image[from * self.patches.vertical.stride as usize * self.line()..]
    }

    /// The windows of some outputs in their strip. Parts are made as long as a multiple of `unit`.
    pub(super) fn windows<'s, T>(&self, strip: &'s [T], outputs: Outputs, unit: usize) -> Lines<'s, T> {
        let (vertical, horizontal) = (&self.patches.vertical, &self.patches.horizontal);
        let channels = self.patches.input.channels as usize;
        let width = (self.patches.output.width as usize).max(1);
        let across = horizontal.filter as usize;
        let (taps, length) = if horizontal.dilation == 1 {
            ((1, 0), across * channels)
        } else {
            ((across, horizontal.dilation as usize * channels), channels)
        };
        Lines {
            values: strip,
            count: outputs.count,
            first: outputs.first % width,
            width,
            step: horizontal.stride as usize * channels,
            line: vertical.stride as usize * self.line(),
            parts: Parts {
                rows: (vertical.filter as usize, vertical.dilation as usize * self.line()),
                taps,
                length: length.next_multiple_of(unit),
            },
        }
    }
}
