//! Rows of a resized image: what they lie between, and where results are put.

use nnhal_hal::ops::resize::ResizeGeometry;

use crate::fast::simd::WIDE;
use crate::kernels::resize::Axis;

/// Where a column of the output lies: the elements at which the pixels left and right of it start, and its
/// distance from the left one.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub(in crate::fast) struct Column {
    pub(in crate::fast) left: u32,
    pub(in crate::fast) right: u32,
    pub(in crate::fast) fraction: f32,
}

/// Values after the last pixel of a line, so that vectors of channels may end beyond it.
pub(in crate::fast) const OVERHANG: usize = 2 * WIDE;

/// Some rows of the output.
pub(in crate::fast) struct Rows<'a, T> {
    pub(in crate::fast) geometry: &'a ResizeGeometry,
    pub(in crate::fast) columns: &'a [Column],
    pub(in crate::fast) from: &'a [T],
    /// Which row the first is, all images together.
    pub(in crate::fast) first: usize,
    pub(in crate::fast) to: &'a mut [T],
    /// Room for two lines of the input, and more.
    pub(in crate::fast) lines: &'a mut [f32],
}

/// The lines of the input between which a row of the output lies.
pub(in crate::fast) struct Surroundings<'a, T> {
    pub(in crate::fast) upper: &'a [T],
    pub(in crate::fast) lower: &'a [T],
    /// The row's distance from the upper one.
    pub(in crate::fast) fraction: f32,
}

impl<'a, T> Rows<'a, T> {
    /// Values of a line of the input.
    #[inline(always)]
    pub(in crate::fast) fn line(&self) -> usize {
        self.geometry.input.width as usize * self.channels()
    }

    #[inline(always)]
    pub(in crate::fast) fn channels(&self) -> usize {
        self.geometry.output.channels as usize
    }

    /// Values of a row.
    #[inline(always)]
    pub(in crate::fast) fn width(&self) -> usize {
        self.columns.len() * self.channels()
    }

    /// What a row lies between.
    #[inline(always)]
    pub(in crate::fast) fn around(&self, row: usize) -> Surroundings<'a, T> {
        let height = (self.geometry.output.height as usize).max(1);
        let between = Axis::rows(self.geometry).between(row % height);
        let image = row / height * self.geometry.input.height as usize;
        let line = self.line();
        Surroundings {
            upper: &self.from[(image + between.lower) * line..][..line],
            lower: &self.from[(image + between.upper) * line..][..line],
            fraction: between.fraction,
        }
    }
}

/// Puts values to a place, as many as there is room for: all but the last pixels leave what is too much to
/// the next pixel to overwrite.
#[inline(always)]
pub(in crate::fast) fn put<T: Copy, const N: usize>(values: &[T; N], to: &mut [T], start: usize) {
    let rest = &mut to[start..];
    match rest.first_chunk_mut() {
        Some(all) => *all = *values,
        None => rest.copy_from_slice(&values[..rest.len()]),
    }
}
