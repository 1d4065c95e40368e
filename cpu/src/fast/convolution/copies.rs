//! What a product multiplies of an image where that is not the image itself: strips with the padding, and
//! patches one behind the other, in the form that is multiplied.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::patches::{Patches, Sink};
use crate::fast::matmul::lines::Lines;
use crate::fast::simd::{Instructions, LANES, Work, dispatch};
use crate::fast::strips::{Frame, Outputs};
use crate::kernels::element::Quant8;

/// In which form an image's values are multiplied.
pub(in crate::fast) trait Form: Copy {
    type From: Copy;
    type To: Pod;

    /// What padding holds.
    fn padding(self) -> Self::To;

    /// An image's values if they are in that form as they are.
    fn as_is(image: &[Self::From]) -> Option<&[Self::To]>;

    /// Turns values into that form; to be marked `#[inline(always)]`.
    fn convert(self, from: &[Self::From], to: &mut [Self::To]);
}

/// Floats as they are.
#[derive(Clone, Copy)]
pub(in crate::fast) struct Floats;

impl Form for Floats {
    type From = f32;
    type To = f32;

    #[inline(always)]
    fn padding(self) -> f32 {
        0.0
    }

    fn as_is(image: &[f32]) -> Option<&[f32]> {
        Some(image)
    }

    #[inline(always)]
    fn convert(self, from: &[f32], to: &mut [f32]) {
        if from.len() > 2 * LANES {
            to.copy_from_slice(from);
            return;
        }
        // Shorter than the call that copies.
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}

/// 8-bit values as unsigned ones.
#[derive(Clone, Copy)]
pub(in crate::fast) struct Unsigned<T> {
    zero: u8,
    of: PhantomData<T>,
}

impl<T> Unsigned<T> {
    /// With this zero point, as unsigned.
    pub(in crate::fast) fn new(zero: u8) -> Unsigned<T> {
        let of = PhantomData;
        Unsigned { zero, of }
    }
}

impl<T: Quant8> Form for Unsigned<T> {
    type From = T;
    type To = u8;

    #[inline(always)]
    fn padding(self) -> u8 {
        self.zero
    }

    fn as_is(image: &[T]) -> Option<&[u8]> {
        (T::LEAST == 0).then(|| bytemuck::cast_slice(image))
    }

    #[inline(always)]
    fn convert(self, from: &[T], to: &mut [u8]) {
        for (to, from) in to.iter_mut().zip(bytemuck::cast_slice::<T, u8>(from)) {
            *to = from ^ sign_bit::<T>();
        }
    }
}

/// What makes 8-bit values of this type unsigned, in the same order: nothing, or their uppermost bit.
pub(in crate::fast) fn sign_bit<T: Quant8>() -> u8 {
    if T::LEAST < 0 { 0x80 } else { 0 }
}

/// 8-bit values as 16-bit ones less the zero point.
#[derive(Clone, Copy)]
pub(in crate::fast) struct Widened<T> {
    zero: i16,
    of: PhantomData<T>,
}

impl<T> Widened<T> {
    /// With this zero point.
    pub(in crate::fast) fn new(zero: i32) -> Widened<T> {
        Widened {
            zero: zero as i16,
            of: PhantomData,
        }
    }
}

impl<T: Quant8> Form for Widened<T> {
    type From = T;
    type To = i16;

    #[inline(always)]
    fn padding(self) -> i16 {
        0
    }

    fn as_is(_: &[T]) -> Option<&[i16]> {
        None
    }

    #[inline(always)]
    fn convert(self, from: &[T], to: &mut [i16]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_i32() as i16 - self.zero;
        }
    }
}

/// Where the rows of a product lie.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Source<'a> {
    pub(in crate::fast) patches: &'a Patches,
    /// None where rows are copied one behind the other, or are the image's own pixels.
    pub(in crate::fast) frame: Option<Frame<'a>>,
    /// Of how many values parts of rows are multiples.
    pub(in crate::fast) unit: usize,
    /// Values from a copied row to the next.
    pub(in crate::fast) apart: usize,
}

impl Source<'_> {
    /// Whether rows are read in the image, if it is in the form that is multiplied.
    fn is_image(&self) -> bool {
        let patches = self.patches;
        match &self.frame {
            Some(frame) => {
                // Nothing else is read to fill parts up.
                let part = patches.horizontal.filter as usize * patches.input.channels as usize;
                frame.is_image() && part.is_multiple_of(self.unit)
            }
            None => patches.are_pixels() && patches.depth() == self.apart,
        }
    }

    /// Values of memory that rows of so many outputs take.
    pub(in crate::fast) fn copies<F: Form>(&self, outputs: usize) -> usize {
        if self.is_image() && F::as_is(&[]).is_some() {
            return 0;
        }
        match &self.frame {
            // With what is read with the last part to fill it up, of which the strip has one already.
            Some(frame) => {
                let length = frame.len(outputs).unwrap_or(usize::MAX);
                length.saturating_add(self.unit.saturating_sub(2))
            }
            None => outputs.saturating_mul(self.apart),
        }
    }

    /// The rows of some outputs of an image, read in place or from `copies`, which is memory of
    /// [`Source::copies`].
    pub(in crate::fast) fn lines<'l, F: Form>(
        &self,
        form: F,
        input: &'l [F::From],
        outputs: Outputs,
        copies: &'l mut [F::To],
    ) -> Lines<'l, F::To> {
        let (unit, apart) = (self.unit, self.apart);
        match (&self.frame, F::as_is(input).filter(|_| self.is_image())) {
            (Some(frame), Some(image)) => frame.windows(frame.of_image(image, outputs), outputs, unit),
            (Some(frame), None) => {
                dispatch(Strip {
                    form,
                    frame,
                    input,
                    outputs,
                    strip: &mut *copies,
                });
                frame.windows(copies, outputs, unit)
            }
            (None, Some(image)) => {
                Lines::of_rows(&image[outputs.first * apart..], outputs.count, (apart, apart))
            }
            (None, None) => {
                dispatch(Gather {
                    form,
                    patches: self.patches,
                    input,
                    outputs,
                    unit,
                    apart,
                    rows: &mut *copies,
                });
                Lines::of_rows(copies, outputs.count, (apart, apart))
            }
        }
    }
}

/// Makes the strip that the windows of some outputs see.
pub(in crate::fast) struct Strip<'a, F: Form> {
    pub(in crate::fast) form: F,
    pub(in crate::fast) frame: &'a Frame<'a>,
    pub(in crate::fast) input: &'a [F::From],
    pub(in crate::fast) outputs: Outputs,
    pub(in crate::fast) strip: &'a mut [F::To],
}

impl<F: Form> Work for Strip<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let (form, strip) = (self.form, (self.strip, self.form.padding()));
        self.frame
            .fill(self.input, self.outputs, strip, |from, to| form.convert(from, to));
    }
}

/// Copies the patches of some outputs, each to a row of its own. Each row of a filter begins with a multiple
/// of so many values, and what is behind the last one is 0.
pub(in crate::fast) struct Gather<'a, F: Form> {
    pub(in crate::fast) form: F,
    pub(in crate::fast) patches: &'a Patches,
    pub(in crate::fast) input: &'a [F::From],
    pub(in crate::fast) outputs: Outputs,
    /// Of how many values parts of rows are multiples.
    pub(in crate::fast) unit: usize,
    /// Values from a row to the next.
    pub(in crate::fast) apart: usize,
    pub(in crate::fast) rows: &'a mut [F::To],
}

impl<F: Form> Work for Gather<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, _: S) {
        let (patches, input) = (self.patches, self.input);
        let Outputs { first, count } = self.outputs;
        let (depth, apart) = (patches.depth(), self.apart);
        if patches.are_pixels() && depth == apart {
            let pixels = &input[first * depth..][..count * depth];
            return self.form.convert(pixels, &mut self.rows[..count * depth]);
        }
        let filled = self.place(depth);
        if filled < apart {
            for row in self.rows[..count * apart].chunks_exact_mut(apart) {
                row[filled..].fill(bytemuck::Zeroable::zeroed());
            }
        }
        patches.gather(input, first, count, &mut self);
    }
}

impl<F: Form> Gather<'_, F> {
    /// Where an offset in a patch is in its row.
    #[inline(always)]
    fn place(&self, offset: usize) -> usize {
        let part = self.patches.horizontal.filter as usize * self.patches.input.channels as usize;
        let filled = part.next_multiple_of(self.unit);
        if part == filled {
            return offset;
        }
        offset / part * filled + offset % part
    }
}

impl<F: Form> Sink<F::From> for Gather<'_, F> {
    #[inline(always)]
    fn pixels(&mut self, number: usize, offset: usize, pixels: &[F::From]) {
        let start = number * self.apart + self.place(offset);
        self.form
            .convert(pixels, &mut self.rows[start..start + pixels.len()]);
    }

    #[inline(always)]
    fn padding(&mut self, number: usize, offset: usize, length: usize) {
        let start = number * self.apart + self.place(offset);
        self.rows[start..start + length].fill(self.form.padding());
    }
}
