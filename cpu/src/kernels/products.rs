//! Sums of products over contiguous elements, in a form that compilers turn into vector instructions.

/// Output channels that are computed at once.
pub(super) const BLOCK: usize = 8;

/// An element that layers multiply and sum: `f32`, or for quantised values less their zero points `i16`, and
/// `i32` where they have 16 bits.
pub(super) trait Product: bytemuck::Pod {
    /// What the products are summed in.
    type Sum: bytemuck::Pod;

    /// The sum of the products of elements at the same place; `right` is at least as long as `left`.
    fn dot(left: &[Self], right: &[Self]) -> Self::Sum;

    /// Where, among the weights of a block of [`BLOCK`] channels, element `index` of the `length` of one
    /// channel stands for [`Product::block`].
    fn place(channel: usize, index: usize, length: usize) -> usize;

    /// The products of [`BLOCK`] channels' weights, placed by [`Product::place`], with each of `columns`.
    fn block<const N: usize>(weights: &[Self], columns: [&[Self]; N]) -> [[Self::Sum; BLOCK]; N];

    /// Adds the products of elements at the same place to `sums`.
    fn add_products(sums: &mut [Self::Sum], left: &[Self], right: &[Self]);

    /// Adds `factor` times each element to `sums`.
    fn add_scaled(sums: &mut [Self::Sum], factor: Self, elements: &[Self]);
}

/// Partial sums that are kept side by side, so that one addition need not wait for the last.
const LANES: usize = 16;

/// Weights stand channel by channel beside each other: a block is summed without moving sums between lanes.
impl Product for f32 {
    type Sum = f32;

    #[inline]
    fn dot(left: &[f32], right: &[f32]) -> f32 {
        let (left_chunks, left_rest) = left.as_chunks::<LANES>();
        let (right_chunks, right_rest) = right[..left.len()].as_chunks::<LANES>();
        let mut lanes = [0.0_f32; LANES];
        for (left, right) in left_chunks.iter().zip(right_chunks) {
            for lane in 0..LANES {
                lanes[lane] += left[lane] * right[lane];
            }
        }
        let rest = left_rest.iter().zip(right_rest);
        let start: f32 = lanes.iter().sum();
        rest.fold(start, |sum, (left, right)| sum + left * right)
    }

    #[inline]
    fn place(channel: usize, index: usize, _length: usize) -> usize {
        index * BLOCK + channel
    }

    #[inline]
    fn block<const N: usize>(weights: &[f32], columns: [&[f32]; N]) -> [[f32; BLOCK]; N] {
        let weights = weights.as_chunks::<BLOCK>().0;
        let columns = columns.map(|column| &column[..weights.len()]);
        let mut sums = [[0.0_f32; BLOCK]; N];
        for (index, weights) in weights.iter().enumerate() {
            for (sums, column) in sums.iter_mut().zip(&columns) {
                let factor = column[index];
                for channel in 0..BLOCK {
                    sums[channel] += factor * weights[channel];
                }
            }
        }
        sums
    }

    #[inline]
    fn add_products(sums: &mut [f32], left: &[f32], right: &[f32]) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }

    #[inline]
    fn add_scaled(sums: &mut [f32], factor: f32, elements: &[f32]) {
        for (sum, element) in sums.iter_mut().zip(elements) {
            *sum += factor * element;
        }
    }
}

/// Weights stand channel after channel: instruction sets multiply and add neighbouring integers in one step.
/// Sums wrap: an accumulator that overflows gives a wrong value, as in the HAL's reference, never a panic.
macro_rules! impl_product {
    ($element:ty, $sum:ty) => {
        impl Product for $element {
            type Sum = $sum;

            #[inline]
            fn dot(left: &[$element], right: &[$element]) -> $sum {
                let products = left.iter().zip(right);
                products.fold(0, |sum: $sum, (left, right)| {
                    sum.wrapping_add(<$sum>::from(*left).wrapping_mul(<$sum>::from(*right)))
                })
            }

            #[inline]
            fn place(channel: usize, index: usize, length: usize) -> usize {
                channel * length + index
            }

            #[inline]
            fn block<const N: usize>(weights: &[$element], columns: [&[$element]; N]) -> [[$sum; BLOCK]; N] {
                let length = weights.len() / BLOCK;
                let mut sums = [[0; BLOCK]; N];
                for channel in 0..BLOCK {
                    let row = &weights[channel * length..][..length];
                    for (sums, column) in sums.iter_mut().zip(columns) {
                        sums[channel] = <$element>::dot(row, column);
                    }
                }
                sums
            }

            #[inline]
            fn add_products(sums: &mut [$sum], left: &[$element], right: &[$element]) {
                for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
                    *sum = sum.wrapping_add(<$sum>::from(*left).wrapping_mul(<$sum>::from(*right)));
                }
            }

            #[inline]
            fn add_scaled(sums: &mut [$sum], factor: $element, elements: &[$element]) {
                for (sum, element) in sums.iter_mut().zip(elements) {
                    *sum = sum.wrapping_add(<$sum>::from(factor).wrapping_mul(<$sum>::from(*element)));
                }
            }
        }
    };
}

impl_product!(i16, i32);
impl_product!(i32, i64);

#[cfg(test)]
mod tests {
    use super::{BLOCK, Product};

    fn blocks_equal_dots<P: Product<Sum: PartialEq + std::fmt::Debug>>(convert: impl Fn(i16) -> P) {
        for length in 0..40_usize {
            let column: Vec<P> = (0..length).map(|index| convert(index as i16 - 7)).collect();
            let weight = |channel: usize, index: usize| convert((channel * 3 + index) as i16 % 11);
            let mut weights = vec![convert(0); BLOCK * length];
            for (channel, index) in (0..BLOCK * length).map(|at| (at / length, at % length)) {
                weights[P::place(channel, index, length)] = weight(channel, index);
            }
            let [first, second] = P::block(&weights, [&column, &weights]);
            for channel in 0..BLOCK {
                let row: Vec<P> = (0..length).map(|index| weight(channel, index)).collect();
                assert_eq!(first[channel], P::dot(&row, &column));
                assert_eq!(second[channel], P::dot(&row, &weights));
            }
        }
    }

    #[test]
    fn blocks_give_the_dots_of_their_channels() {
        blocks_equal_dots(|value| value);
        blocks_equal_dots(i32::from);
        blocks_equal_dots(f32::from);
        assert_eq!(i16::dot(&[1, 2, 3], &[4, 5, 6, 7]), 32);
    }

    #[test]
    fn sums_that_overflow_wrap() {
        let mut sums = [i32::MAX];
        i16::add_products(&mut sums, &[1], &[1]);
        assert_eq!(sums, [i32::MIN]);
    }
}
