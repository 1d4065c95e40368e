//! RESIZE_BILINEAR of 8-bit values at positions that are all in sixteenths of a pixel.
//!
//! The reference's products and sums of floats are then exact, so that integers of 16 bits give the same
//! results in any order: between two lines first, then between two of those sums, in 256ths, rounded to
//! nearest.

use nnhal_hal::ops::resize::ResizeGeometry;

use super::rows::{OVERHANG, Rows, put};
use crate::fast::simd::{Instructions, WIDE, Work};
use crate::kernels::element::Quant8;
use crate::kernels::resize::Axis;

/// Parts of a pixel.
const PARTS: u16 = 16;

/// Channels that are computed at once.
const AT_ONCE: usize = 2 * WIDE;

/// Whether all rows and columns are at such positions.
pub(in crate::fast) fn are_sixteenths(geometry: &ResizeGeometry) -> bool {
    let is_exact = |axis: Axis, count: u32| {
        (0..count as usize).all(|at| (axis.between(at).fraction * f32::from(PARTS)).fract() == 0.0)
    };
    is_exact(Axis::rows(geometry), geometry.output.height)
        && is_exact(Axis::columns(geometry), geometry.output.width)
}

/// A distance in sixteenths. It is negative before the first pixel, which then is both of those around the
/// position: what its two weights overflow by cancels out.
#[inline(always)]
fn parts(fraction: f32) -> u16 {
    (fraction * f32::from(PARTS)) as i32 as u16
}

/// Some rows of such an output.
pub(in crate::fast) struct InSixteenths<'a, T>(pub(in crate::fast) Rows<'a, T>);

impl<T: Quant8> Work for InSixteenths<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let InSixteenths(mut rows) = self;
        let (channels, length, width) = (rows.channels(), rows.line(), rows.width());
        let lines: &mut [u16] = bytemuck::cast_slice_mut(std::mem::take(&mut rows.lines));
        let line = &mut lines[..length + OVERHANG];
        for row in 0..rows.to.len() / width {
            let around = rows.around(rows.first + row);
            weigh(around.upper, around.lower, parts(around.fraction), line);
            let mut start = row * width;
            for column in rows.columns {
                let pixels = [&line[column.left as usize..], &line[column.right as usize..]];
                let right = parts(column.fraction);
                for first in (0..channels).step_by(AT_ONCE) {
                    put(&between(pixels, first, right), rows.to, start + first);
                }
                start += channels;
            }
        }
    }
}

/// What lies between two lines in sixteenths, so much more that a result that is rounded down is rounded to
/// nearest.
#[inline(always)]
fn weigh<T: Quant8>(upper: &[T], lower: &[T], fraction: u16, to: &mut [u16]) {
    for ((to, upper), lower) in to.iter_mut().zip(upper).zip(lower) {
        let upper = u16::from(upper.to_unsigned()).wrapping_mul(PARTS.wrapping_sub(fraction));
        let lower = u16::from(lower.to_unsigned()).wrapping_mul(fraction);
        *to = upper.wrapping_add(lower) + PARTS / 2;
    }
}

/// Some channels of an output between two pixels, from the `first` on.
#[inline(always)]
fn between<T: Quant8>(pixels: [&[u16]; 2], first: usize, fraction: u16) -> [T; AT_ONCE] {
    let [left, right]: [&[u16; AT_ONCE]; 2] = pixels.map(|pixel| match pixel[first..].first_chunk() {
        Some(channels) => channels,
        None => unreachable!("lines have {OVERHANG} values after the last pixel"),
    });
    let weights = [PARTS.wrapping_sub(fraction), fraction];
    std::array::from_fn(|at| {
        let sum = left[at]
            .wrapping_mul(weights[0])
            .wrapping_add(right[at].wrapping_mul(weights[1]));
        T::from_unsigned((sum >> 8) as u8)
    })
}
