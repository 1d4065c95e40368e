//! Products of a matrix, given when it is computed, with a vector: to the same bits as row by row with
//! [`crate::kernels::recurrent::dot`], since each row's eight partial sums are kept and added up alike.

use super::simd::{LANES, Simd, Work, dispatch};

/// Rows that are summed side by side, so that none waits for its own last sum.
const ROWS: usize = 4;

/// Adds to each of `sums` the product of its row of `matrix` with `vector`, which is not empty.
pub(crate) fn add_products(matrix: &[f32], vector: &[f32], sums: &mut [f32]) {
    dispatch(AddProducts { matrix, vector, sums });
}

struct AddProducts<'a> {
    matrix: &'a [f32],
    vector: &'a [f32],
    sums: &'a mut [f32],
}

impl Work for AddProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let length = self.vector.len();
        let (groups, rest) = self.sums.as_chunks_mut::<ROWS>();
        let mut lines = self.matrix.chunks_exact(ROWS * length);
        for (sums, lines) in groups.iter_mut().zip(&mut lines) {
            let rows = std::array::from_fn(|row| &lines[row * length..][..length]);
            add_rows::<S, ROWS>(simd, rows, self.vector, sums);
        }
        let lines = self.matrix.chunks_exact(length).skip(groups.len() * ROWS);
        for (sum, row) in rest.iter_mut().zip(lines) {
            add_rows::<S, 1>(simd, [row], self.vector, std::array::from_mut(sum));
        }
    }
}

#[inline(always)]
fn add_rows<S: Simd, const R: usize>(simd: S, rows: [&[f32]; R], vector: &[f32], sums: &mut [f32; R]) {
    let (whole, end) = vector.as_chunks::<LANES>();
    let mut partial = [simd.splat(0.0); R];
    for (at, values) in whole.iter().enumerate() {
        let values = simd.load(values);
        for row in 0..R {
            let weights: &[f32] = &rows[row][at * LANES..][..LANES];
            let weights: &[[f32; LANES]] = bytemuck::cast_slice(weights);
            // Not fused: the reference rounds products.
            partial[row] = simd.add(partial[row], simd.mul(simd.load(&weights[0]), values));
        }
    }
    for row in 0..R {
        let mut lanes = [0.0; LANES];
        simd.store(partial[row], &mut lanes);
        let rest: f32 = rows[row][whole.len() * LANES..]
            .iter()
            .zip(end)
            .map(|(weight, value)| weight * value)
            .sum();
        sums[row] += lanes.iter().sum::<f32>() + rest;
    }
}

#[cfg(test)]
mod tests {
    use super::add_products;
    use crate::kernels::recurrent::dot;

    #[test]
    fn rows_have_the_bits_of_the_reference() {
        for (rows, length) in [(1, 1), (4, 8), (7, 29), (9, 100)] {
            let value = |at: usize| ((at * 7919) % 255) as f32 / 17.0 - 7.3;
            let matrix: Vec<f32> = (0..rows * length).map(value).collect();
            let vector: Vec<f32> = (0..length).map(|at| value(at + 5) * 0.37).collect();
            let mut sums: Vec<f32> = (0..rows).map(value).collect();
            let exact: Vec<f32> = sums
                .iter()
                .zip(matrix.chunks_exact(length))
                .map(|(sum, row)| sum + dot(row, &vector))
                .collect();
            add_products(&matrix, &vector, &mut sums);
            assert_eq!(sums, exact);
        }
    }
}
