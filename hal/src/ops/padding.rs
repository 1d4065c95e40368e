//! Padding and window arithmetic of convolutions and pools.
//!
//! Source: the padding arithmetic of the NN HAL reference. Extents: effective filter = (filter - 1) *
//! dilation + 1; SAME gives ceil(input / stride) outputs, with floor(total / 2) of the padding at the head;
//! explicit padding gives (input - effective + stride + head + tail) / stride.

use crate::Shape;

use super::context::OpError;

/// The HAL's implicit padding schemes: operand value 1 and 2. Value 0 counts as no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingScheme {
    /// As many outputs as `ceil(input / stride)`.
    Same,
    /// No padding.
    Valid,
}

impl PaddingScheme {
    /// The scheme with this operand value, given as input `index`.
    pub fn from_code(index: usize, code: i32) -> Result<PaddingScheme, OpError> {
        match code {
            1 => Ok(PaddingScheme::Same),
            0 | 2 => Ok(PaddingScheme::Valid),
            _ => Err(OpError::input(
                index,
                format!("is {code}, must be 1 (SAME) or 2 (VALID)"),
            )),
        }
    }
}

/// A sliding window along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Extent of the filter.
    pub filter: u32,
    /// Step between outputs.
    pub stride: u32,
    /// Step between filter taps.
    pub dilation: u32,
    /// Zeros before the first input.
    pub head: i32,
    /// Zeros after the last input.
    pub tail: i32,
}

impl Window {
    /// The window of an implicit scheme over `input` elements.
    pub fn implicit(
        scheme: PaddingScheme,
        input: u32,
        filter: u32,
        stride: i32,
        dilation: i32,
    ) -> Result<Window, OpError> {
        let mut window = Window::explicit(filter, stride, dilation, 0, 0)?;
        if scheme == PaddingScheme::Same {
            let out = i64::from(input.div_ceil(window.stride));
            let total = (out - 1) * i64::from(window.stride) + window.effective() - i64::from(input);
            let total = i32::try_from(total.max(0)).map_err(|_| {
                OpError::operation(format!("SAME padding of a filter of {filter} is too large"))
            })?;
            window.head = total / 2;
            window.tail = total - total / 2;
        }
        Ok(window)
    }

    /// A window with this padding.
    pub fn explicit(
        filter: u32,
        stride: i32,
        dilation: i32,
        head: i32,
        tail: i32,
    ) -> Result<Window, OpError> {
        if filter == 0 {
            return Err(OpError::operation("a filter extent is 0, must be at least 1"));
        }
        let positive = |what: &str, value: i32| {
            u32::try_from(value)
                .ok()
                .filter(|value| *value > 0)
                .ok_or_else(|| OpError::operation(format!("{what} is {value}, must be at least 1")))
        };
        if head < 0 || tail < 0 {
            return Err(OpError::operation(format!(
                "padding is {head} and {tail}, must not be negative"
            )));
        }
        Ok(Window {
            filter,
            stride: positive("a stride", stride)?,
            dilation: positive("a dilation factor", dilation)?,
            head,
            tail,
        })
    }

    /// The filter's extent with its gaps.
    #[must_use]
    pub fn effective(&self) -> i64 {
        (i64::from(self.filter) - 1) * i64::from(self.dilation) + 1
    }

    /// The number of outputs over `input` elements; an error if there is none.
    pub fn output_extent(&self, input: u32) -> Result<u32, OpError> {
        let span = i64::from(input) - self.effective()
            + i64::from(self.stride)
            + i64::from(self.head)
            + i64::from(self.tail);
        let out = span.div_euclid(i64::from(self.stride));
        u32::try_from(out).ok().filter(|out| *out > 0).ok_or_else(|| {
            OpError::operation(format!(
                "a filter spanning {} does not fit an input of {input} with padding {} and {}",
                self.effective(),
                self.head,
                self.tail
            ))
        })
    }
}

/// Batch, height, width and channels of a rank 4 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Batch.
    pub batch: u32,
    /// Height.
    pub height: u32,
    /// Width.
    pub width: u32,
    /// Channels.
    pub channels: u32,
}

impl Extents {
    /// The extents of a rank 4 shape, in NCHW order if `nchw`, else NHWC.
    #[must_use]
    pub fn of(shape: &Shape, nchw: bool) -> Extents {
        let [height, width, channels] = if nchw { [2, 3, 1] } else { [1, 2, 3] };
        Extents {
            batch: shape.dim(0),
            height: shape.dim(height),
            width: shape.dim(width),
            channels: shape.dim(channels),
        }
    }

    /// The dimensions in NCHW order if `nchw`, else NHWC.
    #[must_use]
    pub fn dims(&self, nchw: bool) -> [u32; 4] {
        if nchw {
            [self.batch, self.channels, self.height, self.width]
        } else {
            [self.batch, self.height, self.width, self.channels]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PaddingScheme, Window};

    #[test]
    fn same_padding_puts_the_odd_zero_at_the_tail() {
        let window = Window::implicit(PaddingScheme::Same, 224, 3, 2, 1).unwrap();
        assert_eq!((window.head, window.tail), (0, 1));
        assert_eq!(window.output_extent(224), Ok(112));
    }

    #[test]
    fn dilation_widens_the_filter() {
        let window = Window::explicit(3, 1, 2, 0, 0).unwrap();
        assert_eq!(window.effective(), 5);
        assert_eq!(window.output_extent(9), Ok(5));
    }

    #[test]
    fn window_larger_than_its_input_gives_an_error() {
        assert!(Window::explicit(5, 1, 1, 0, 0).unwrap().output_extent(3).is_err());
        assert!(Window::explicit(3, 0, 1, 0, 0).is_err());
    }
}
