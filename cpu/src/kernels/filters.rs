//! Products of filters with what windows see: a block of output channels times a tile of pixels at once.

use std::ops::Range;

use super::image::{Image, Pixel};
use super::layer::Arithmetic;
use super::products::{BLOCK, Product};
use crate::kernel::{KernelError, Pace};

/// Pixels whose windows are multiplied with a filter at once, so that the filter is read once for all of
/// them.
pub(super) const TILE: usize = 4;

/// Calls `each` with up to [`TILE`] pixels at a time, until it fails.
pub(super) fn for_each_tile(
    mut pixels: impl Iterator<Item = Pixel>,
    mut each: impl FnMut(&[Pixel]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    loop {
        let mut tile = [Pixel::default(); TILE];
        let mut count = 0;
        for (slot, pixel) in tile.iter_mut().zip(&mut pixels) {
            *slot = pixel;
            count += 1;
        }
        if count > 0 {
            each(&tile[..count])?;
        }
        if count < TILE {
            return Ok(());
        }
    }
}

/// How many elements [`Filters`] of `channels` channels with `length` weights each need.
pub(super) fn filter_size(channels: usize, length: usize) -> usize {
    channels.div_ceil(BLOCK) * BLOCK * length
}

/// The weights of some output channels, in blocks of [`BLOCK`].
pub(super) struct Filters<'a, A: Arithmetic> {
    arithmetic: &'a A,
    weights: &'a [A::Operand],
    /// Weights of one channel.
    length: usize,
    channels: Range<usize>,
}

impl<'a, A: Arithmetic> Filters<'a, A> {
    /// Fills `weights` with `weight(channel, index)`. Channels that the last block lacks get weights of 0.
    pub(super) fn new(
        arithmetic: &'a A,
        weights: &'a mut [A::Operand],
        length: usize,
        channels: Range<usize>,
        weight: impl Fn(usize, usize) -> A::Weight,
    ) -> Filters<'a, A> {
        weights.fill(bytemuck::Zeroable::zeroed());
        for (block, first) in weights
            .chunks_exact_mut(BLOCK * length)
            .zip(channels.clone().step_by(BLOCK))
        {
            for channel in first..channels.end.min(first + BLOCK) {
                for index in 0..length {
                    block[A::Operand::place(channel - first, index, length)] =
                        arithmetic.weight(weight(channel, index));
                }
            }
        }
        Filters {
            arithmetic,
            weights,
            length,
            channels,
        }
    }

    /// Computes the channels of some pixels from what their windows see, one patch after the other; fails if
    /// the execution is interrupted.
    pub(super) fn apply(
        &self,
        patches: &[A::Operand],
        pixels: &[Pixel],
        (output, image): (&mut [A::Output], &Image),
        pace: &mut Pace<'_>,
    ) -> Result<(), KernelError> {
        if let Ok(pixels) = <&[Pixel; TILE]>::try_from(pixels) {
            return self.apply_to(patches, pixels, (output, image), pace);
        }
        for (patch, pixel) in patches.chunks_exact(self.length).zip(pixels) {
            self.apply_to(patch, std::array::from_ref(pixel), (&mut *output, image), pace)?;
        }
        Ok(())
    }

    fn apply_to<const N: usize>(
        &self,
        patches: &[A::Operand],
        pixels: &[Pixel; N],
        (output, image): (&mut [A::Output], &Image),
        pace: &mut Pace<'_>,
    ) -> Result<(), KernelError> {
        let columns: [&[A::Operand]; N] = std::array::from_fn(|index| &patches[index * self.length..]);
        let at = pixels.map(|pixel| image.at(pixel.batch, pixel.row, pixel.column));
        for (weights, first) in self
            .weights
            .chunks_exact(BLOCK * self.length)
            .zip(self.channels.clone().step_by(BLOCK))
        {
            pace.work(N * BLOCK * self.length)?;
            let sums = A::Operand::block(weights, columns);
            for (at, sums) in at.into_iter().zip(sums) {
                for (channel, sum) in (first..self.channels.end).zip(sums) {
                    output[at + channel * image.channel_step] = self.arithmetic.finish(channel, sum);
                }
            }
        }
        Ok(())
    }
}
