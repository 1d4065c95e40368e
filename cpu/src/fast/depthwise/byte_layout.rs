//! What a depthwise convolution by products of bytes sees of its image, side by side for each channel.

use std::ops::Range;

use super::byte_filters::{FOUR, Four};
use super::bytes::Image;
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::simd::Columns;

impl Image<'_> {
    /// A row of the input, if the tap `at` of the windows of row `y` sees one, or of those of the rows that
    /// are computed with it.
    #[inline(always)]
    fn input_row(&self, y: usize, at: usize) -> Option<usize> {
        let (window, height) = (
            &self.plan.patches.vertical,
            self.plan.patches.input.height as usize,
        );
        let below = y * window.stride as usize + at * window.dilation as usize;
        let row = below.checked_sub(window.head as usize)?;
        let taps = window.filter as usize + self.plan.rows - 1;
        (at < taps && row < height).then_some(row)
    }

    /// Which of so many columns of the windows that begin with output `first` are inside, and where the first
    /// of these is in the input.
    #[inline(always)]
    fn inside(&self, first: usize, columns: usize) -> (Range<usize>, usize) {
        let (window, width) = (
            &self.plan.patches.horizontal,
            self.plan.patches.input.width as usize,
        );
        let (start, head) = (first * window.stride as usize, window.head as usize);
        let left = head.saturating_sub(start).min(columns);
        let begin = (start + left).saturating_sub(head).min(width);
        (left..left + (columns - left).min(width - begin), begin)
    }

    /// Lays out what the windows of row `y` see from output `first` on, rows by fours.
    #[inline(always)]
    pub(super) fn lay_out<V: Columns>(&mut self, simd: V, y: usize, first: usize) {
        let channels = self.plan.packed.layer.channels;
        let (inside, begin) = self.inside(first, self.plan.plane / channels);
        let width = self.plan.patches.input.width as usize;
        for plane in 0..self.plan.fours / self.plan.plane {
            let mut rows = [&self.line[..inside.len() * channels]; FOUR];
            for (which, line) in rows.iter_mut().enumerate() {
                if let Some(row) = self.input_row(y, plane * FOUR + which) {
                    *line = &self.block.input[(row * width + begin) * channels..][..inside.len() * channels];
                }
            }
            let fours = &mut self.fours[plane * self.plan.plane..][..self.plan.plane];
            let (left, rest) = fours.split_at_mut(inside.start * channels);
            let (middle, right) = rest.split_at_mut(inside.len() * channels);
            left.fill([self.kernel.zero; FOUR]);
            right.fill([self.kernel.zero; FOUR]);
            by_fours(simd, rows, self.kernel.flip, middle);
        }
    }

    /// The same of a filter of one row, columns by fours.
    #[inline(always)]
    pub(super) fn lay_out_line<V: Columns>(&mut self, simd: V, y: usize, first: usize) {
        let channels = self.plan.packed.layer.channels;
        let (inside, begin) = self.inside(first, self.plan.line / channels);
        let width = self.plan.patches.input.width as usize;
        let padding = self.kernel.zero ^ self.kernel.flip;
        self.line.fill(padding);
        if let Some(row) = self.input_row(y, 0) {
            let from = &self.block.input[(row * width + begin) * channels..][..inside.len() * channels];
            self.line[inside.start * channels..][..from.len()].copy_from_slice(from);
        }
        let mut rows = [&self.line[..]; FOUR];
        for (which, line) in rows.iter_mut().enumerate() {
            *line = &self.line[which * self.plan.beside..][..self.plan.plane];
        }
        by_fours(simd, rows, self.kernel.flip, &mut self.fours[..self.plan.plane]);
    }
}

/// Lays values of four rows side by side.
#[inline(always)]
fn by_fours<V: Columns>(simd: V, rows: [&[u8]; FOUR], flip: u8, to: &mut [Four]) {
    const AT_ONCE: usize = 4 * COLUMNS;
    let length = to.len();
    let mut at = 0;
    while at < length && length >= AT_ONCE {
        // The last ones, some of them for the second time.
        let from = at.min(length - AT_ONCE);
        let mut places = [&[0; AT_ONCE]; FOUR];
        for (place, row) in places.iter_mut().zip(rows) {
            *place = &row[from..].as_chunks().0[0];
        }
        simd.by_fours(places, flip, &mut to[from..].as_chunks_mut().0[0]);
        at += AT_ONCE;
    }
    if length < AT_ONCE {
        for (at, to) in to.iter_mut().enumerate() {
            *to = std::array::from_fn(|which| rows[which][at] ^ flip);
        }
    }
}
