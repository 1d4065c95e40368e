//! Products of a matrix with a vector, which are summed side by side for many rows.

use super::stored_weights::{Precision, Weight};
use crate::fast::simd::{Instructions, LANES, Simd, WIDE, Work, dispatch};

/// Vectors of sums that are kept side by side.
const VECTORS: usize = 8;

/// Rows of a group of as many vectors: the first row of a part of a matrix is a multiple of it.
pub(in crate::fast) const ROWS_OF_GROUP: usize = VECTORS * LANES;

/// The order in which [`PackedMatrix`] takes weights: rows in groups of as many whole vectors as there are
/// left, at most [`VECTORS`] and a power of two; in a group, column by column, what each of its rows has
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMatrix {
    rows: usize,
    columns: usize,
    precision: Precision,
}

/// Vectors of the next group, of so many that are left.
#[inline(always)]
fn group(left: usize) -> usize {
    match left {
        VECTORS.. => VECTORS,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

impl PackedMatrix {
    /// The order for a matrix of so many rows of so many values each.
    pub(crate) fn new(rows: usize, columns: usize, precision: Precision) -> PackedMatrix {
        PackedMatrix {
            rows,
            columns,
            precision,
        }
    }

    /// How many bytes the weights take with the padding of the last vector.
    pub(crate) fn size(&self) -> usize {
        self.rows.next_multiple_of(LANES) * self.columns * self.precision.size()
    }

    /// Puts the weights, `weight(row, column)`, in order.
    pub(crate) fn pack(&self, weight: impl Fn(usize, usize) -> f32, packed: &mut [u8]) {
        match self.precision {
            Precision::Single => self.pack_as::<f32>(weight, bytemuck::cast_slice_mut(packed)),
            Precision::Half => self.pack_as::<u16>(weight, bytemuck::cast_slice_mut(packed)),
        }
    }

    fn pack_as<T: Weight>(&self, weight: impl Fn(usize, usize) -> f32, packed: &mut [T]) {
        let vectors = self.rows.div_ceil(LANES);
        let (mut first, mut rest) = (0, packed);
        while first < vectors {
            let width = group(vectors - first) * LANES;
            let (these, after) = rest.split_at_mut(width * self.columns);
            for (column, line) in these.chunks_exact_mut(width).enumerate() {
                for (row, to) in (first * LANES..).zip(line) {
                    *to = T::nearest(if row < self.rows { weight(row, column) } else { 0.0 });
                }
            }
            rest = after;
            first += width / LANES;
        }
    }

    /// Adds to each of `sums` the product of its row with `vector`, and clamps the result to `range`: of rows
    /// from `first` on, a multiple of [`ROWS_OF_GROUP`], to another one or the last. Weights are those that
    /// were packed.
    pub(in crate::fast) fn add_products(
        &self,
        weights: &[u8],
        vector: &[f32],
        (first, sums): (usize, &mut [f32]),
        range: (f32, f32),
    ) {
        let rows = self.rows.saturating_sub(first).min(sums.len());
        let weights = &weights[first * self.columns * self.precision.size()..];
        let (vector, sums) = (&vector[..self.columns], &mut sums[..rows]);
        match self.precision {
            Precision::Single => dispatch(AddPackedProducts::<f32> {
                weights: bytemuck::cast_slice(weights),
                vector,
                sums,
                range,
            }),
            Precision::Half => dispatch(AddPackedProducts::<u16> {
                weights: bytemuck::cast_slice(weights),
                vector,
                sums,
                range,
            }),
        }
    }
}

/// The range that clamps nothing.
pub(in crate::fast) const EVERYTHING: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

struct AddPackedProducts<'a, T> {
    weights: &'a [T],
    vector: &'a [f32],
    sums: &'a mut [f32],
    range: (f32, f32),
}

impl<T: Weight> Work for AddPackedProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let mut weights = self.weights;
        let mut sums = self.sums;
        let wide = simd.wide();
        while !sums.is_empty() {
            let vectors = group(sums.len().div_ceil(LANES));
            let (these, after) = weights.split_at(vectors * LANES * self.vector.len());
            let (to, rest) = sums.split_at_mut(sums.len().min(vectors * LANES));
            let group = (these, self.vector);
            match vectors {
                // One sum for each row is fast enough for what comes out of a second-level cache.
                VECTORS => add_group::<_, T, WIDE, 4, 1>(wide, group, to, self.range),
                4 if S::HAS_WIDE => add_group::<_, T, WIDE, 2, 4>(wide, group, to, self.range),
                4 => add_group::<_, T, WIDE, 2, 2>(wide, group, to, self.range),
                2 if S::HAS_WIDE => add_group::<_, T, WIDE, 1, 8>(wide, group, to, self.range),
                2 => add_group::<_, T, WIDE, 1, 4>(wide, group, to, self.range),
                _ => add_group::<_, T, LANES, 1, 8>(simd.narrow(), group, to, self.range),
            }
            (weights, sums) = (after, rest);
        }
    }
}

/// Adds the products of a group of `C` vectors of rows; `APART` columns have sums of their own, so that none
/// waits for its last sum.
#[inline(always)]
fn add_group<V: Simd<N>, T: Weight, const N: usize, const C: usize, const APART: usize>(
    simd: V,
    (weights, vector): (&[T], &[f32]),
    to: &mut [f32],
    range: (f32, f32),
) {
    let (lines, _) = weights.as_chunks::<N>().0.as_chunks::<C>();
    let mut totals = [[simd.splat(0.0); C]; APART];
    let (values, end) = vector.as_chunks::<APART>();
    let (several, rest) = lines.split_at(values.len() * APART);
    // As arrays, whose lengths the compiler knows: with slices the loop is slower than memory.
    for (values, lines) in values.iter().zip(several.as_chunks::<APART>().0) {
        for apart in 0..APART {
            add_line(simd, values[apart], &lines[apart], &mut totals[apart]);
        }
    }
    for (value, line) in end.iter().zip(rest) {
        add_line(simd, *value, line, &mut totals[0]);
    }
    let mut sums = totals[0];
    for other in &totals[1..] {
        for at in 0..C {
            sums[at] = simd.add(sums[at], other[at]);
        }
    }
    add_to(simd, &sums, to, range);
}

/// Adds vectors to values, of which there are fewer if the last vector is padded, and clamps them to a range.
#[inline(always)]
fn add_to<V: Simd<N>, const N: usize>(simd: V, vectors: &[V::F32], to: &mut [f32], range: (f32, f32)) {
    let (low, high) = (simd.splat(range.0), simd.splat(range.1));
    let add = |to: &mut [f32; N], vector: V::F32| {
        let sum = simd.add(simd.load(to), vector);
        simd.store(simd.at_most(simd.at_least(sum, low), high), to);
    };
    let (whole, end) = to.as_chunks_mut::<N>();
    for (to, vector) in whole.iter_mut().zip(vectors) {
        add(to, *vector);
    }
    if let Some(last) = vectors.get(whole.len()) {
        let mut lanes = [0.0; N];
        lanes[..end.len()].copy_from_slice(end);
        add(&mut lanes, *last);
        end.copy_from_slice(&lanes[..end.len()]);
    }
}

#[inline(always)]
fn add_line<V: Simd<N>, T: Weight, const N: usize, const C: usize>(
    simd: V,
    value: f32,
    line: &[[T; N]; C],
    totals: &mut [V::F32; C],
) {
    let value = simd.splat(value);
    for at in 0..C {
        totals[at] = simd.mul_add(value, T::load(simd, &line[at]), totals[at]);
    }
}

#[cfg(test)]
mod tests {
    use nnhal_os::buffer::AlignedBuffer;

    use super::{PackedMatrix, Precision, ROWS_OF_GROUP};

    #[test]
    fn packed_rows_give_their_products_whatever_their_number() {
        for (rows, columns) in [
            (1, 1),
            (8, 3),
            (15, 9),
            (64, 10),
            (100, 7),
            (121, 20),
            (130, 5),
            (3, 0),
        ] {
            for precision in [Precision::Single, Precision::Half] {
                assert_products(PackedMatrix::new(rows, columns, precision), rows, columns);
            }
        }
    }

    /// With weights that have few enough bits for either precision.
    fn assert_products(matrix: PackedMatrix, rows: usize, columns: usize) {
        let weight = |row: usize, column: usize| ((row * 7 + column * 13) % 19) as f32 - 9.0;
        let vector: Vec<f32> = (0..columns).map(|at| (at % 5) as f32 - 1.0).collect();
        let mut packed = AlignedBuffer::new();
        packed.resize(matrix.size()).unwrap();
        matrix.pack(weight, packed.bytes_mut());
        let mut sums: Vec<f32> = (0..rows).map(|row| row as f32).collect();
        for (part, sums) in sums.chunks_mut(ROWS_OF_GROUP).enumerate() {
            let sums = (part * ROWS_OF_GROUP, sums);
            matrix.add_products(packed.bytes(), &vector, sums, (-40.0, 60.0));
        }
        for (row, sum) in sums.into_iter().enumerate() {
            let products = vector.iter().enumerate();
            let product: f32 = products.map(|(column, value)| weight(row, column) * value).sum();
            assert_eq!(sum, (row as f32 + product).clamp(-40.0, 60.0));
        }
    }

    /// If this fails, weights are packed otherwise than before: count [`crate::fast::LAYOUT`] up and write
    /// the new sum here.
    #[test]
    fn rows_are_laid_out_as_their_version_says() {
        // FNV-1a.
        let fold = |sum: u64, bits: u32| (sum ^ u64::from(bits)).wrapping_mul(0x0100_0000_01b3);
        let mut packed = AlignedBuffer::new();
        let mut sum = |precision, bits: fn(&[u8]) -> Vec<u32>| {
            let matrix = PackedMatrix::new(121, 3, precision);
            packed.resize(matrix.size()).unwrap();
            matrix.pack(|row, column| (row * 3 + column) as f32, packed.bytes_mut());
            bits(packed.bytes()).into_iter().fold(0xcbf2_9ce4_8422_2325, fold)
        };
        let single = sum(Precision::Single, |bytes| bytemuck::cast_slice(bytes).to_vec());
        let half = sum(Precision::Half, |bytes| {
            let halves: &[u16] = bytemuck::cast_slice(bytes);
            halves.iter().copied().map(u32::from).collect()
        });
        assert_eq!(
            (crate::fast::LAYOUT, single, half),
            (15, 13_548_032_039_609_762_085, 16_817_367_031_974_431_841)
        );
    }
}
