//! Sums of products over contiguous elements, in a form that compilers turn into vector instructions.

/// An element that layers multiply and sum: `f32`, or `i16` for quantised values less their zero points.
pub(super) trait Product: bytemuck::Pod {
    /// What the products are summed in.
    type Sum: bytemuck::Pod;

    /// The sums of `row` times each of `columns`, which are at least as long.
    fn dots<const N: usize>(row: &[Self], columns: [&[Self]; N]) -> [Self::Sum; N];

    /// Adds the products of elements at the same place to `sums`.
    fn add_products(sums: &mut [Self::Sum], left: &[Self], right: &[Self]);

    /// Adds `factor` times each element to `sums`.
    fn add_scaled(sums: &mut [Self::Sum], factor: Self, elements: &[Self]);
}

/// Partial sums that are kept side by side: two vectors of the narrowest instruction set.
const LANES: usize = 8;

impl Product for f32 {
    type Sum = f32;

    #[inline]
    fn dots<const N: usize>(row: &[f32], columns: [&[f32]; N]) -> [f32; N] {
        let (chunks, rest) = row.as_chunks::<LANES>();
        let columns = columns.map(|column| &column[..row.len()]);
        let column_chunks = columns.map(|column| &column.as_chunks::<LANES>().0[..chunks.len()]);
        let mut lanes = [[0.0_f32; LANES]; N];
        for (index, left) in chunks.iter().enumerate() {
            for (lanes, column) in lanes.iter_mut().zip(&column_chunks) {
                let right = &column[index];
                for lane in 0..LANES {
                    lanes[lane] += left[lane] * right[lane];
                }
            }
        }
        let mut sums = lanes.map(|lanes| {
            let [a, b, c, d, e, f, g, h] = lanes;
            ((a + e) + (c + g)) + ((b + f) + (d + h))
        });
        let from = row.len() - rest.len();
        for (sum, column) in sums.iter_mut().zip(columns) {
            for (left, right) in rest.iter().zip(&column[from..]) {
                *sum += left * right;
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

/// Sums wrap: an accumulator that overflows gives a wrong value, as in the HAL's reference, never a panic.
impl Product for i16 {
    type Sum = i32;

    #[inline]
    fn dots<const N: usize>(row: &[i16], columns: [&[i16]; N]) -> [i32; N] {
        columns.map(|column| {
            row.iter().zip(column).fold(0_i32, |sum, (left, right)| {
                sum.wrapping_add(i32::from(*left).wrapping_mul(i32::from(*right)))
            })
        })
    }

    #[inline]
    fn add_products(sums: &mut [i32], left: &[i16], right: &[i16]) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum = sum.wrapping_add(i32::from(*left).wrapping_mul(i32::from(*right)));
        }
    }

    #[inline]
    fn add_scaled(sums: &mut [i32], factor: i16, elements: &[i16]) {
        for (sum, element) in sums.iter_mut().zip(elements) {
            *sum = sum.wrapping_add(i32::from(factor).wrapping_mul(i32::from(*element)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Product;

    #[test]
    fn dots_take_every_element() {
        for length in 0..40_i16 {
            let row: Vec<i16> = (0..length).collect();
            let twice: Vec<i16> = row.iter().map(|value| 2 * value).collect();
            let expected: i32 = row.iter().map(|value| i32::from(*value).pow(2)).sum();
            assert_eq!(i16::dots(&row, [&row, &twice]), [expected, 2 * expected]);
            let row: Vec<f32> = row.iter().map(|value| f32::from(*value)).collect();
            assert_eq!(f32::dots(&row, [&row]), [expected as f32]);
        }
    }

    #[test]
    fn sums_that_overflow_wrap() {
        let mut sums = [i32::MAX];
        i16::add_products(&mut sums, &[1], &[1]);
        assert_eq!(sums, [i32::MIN]);
    }
}
