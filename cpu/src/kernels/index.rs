//! Indices into tensors, which may have 32 or 64 bits.

use std::fmt::Display;

/// An element that is an index.
pub(super) trait Index: bytemuck::Pod + Display {
    /// The index, if it is one into an axis of this extent.
    fn below(self, extent: usize) -> Option<usize>;
}

macro_rules! impl_index {
    ($($element:ty),+) => {
        $(
            impl Index for $element {
                #[inline]
                fn below(self, extent: usize) -> Option<usize> {
                    usize::try_from(self).ok().filter(|index| *index < extent)
                }
            }
        )+
    };
}

impl_index!(i32, i64);

/// Calls a function that is generic over an element and over the type of the indices, which are the input
/// with this number: `by_index!(context, 1, pick::<T>(context))`.
macro_rules! by_index {
    ($context:ident, $input:literal, $function:ident::<$element:ty> $arguments:tt) => {
        match $context.inputs.tensor($input)?.ty() {
            nnhal_hal::tflite::TENSOR_INT64 => $function::<$element, i64> $arguments,
            _ => $function::<$element, i32> $arguments,
        }
    };
}

pub(super) use by_index;

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn indices_lie_below_the_extent() {
        assert_eq!(3_i32.below(4), Some(3));
        assert_eq!(4_i64.below(4), None);
        assert_eq!((-1_i32).below(4), None);
        assert_eq!((1_i64 << 32).below(4), None);
        assert_eq!(i64::MIN.below(usize::MAX), None);
    }
}
