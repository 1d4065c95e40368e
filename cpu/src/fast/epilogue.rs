//! What becomes of the sums of a matrix product while they are in registers: they are clamped to a range, or,
//! as graphs have it behind many layers, something is added to them and negative ones are scaled. Operations
//! of their own would load them and store them once more. Kernels have code of their own for each kind:
//! choices among these for each vector take as long as what is chosen.

use super::padded_row::PaddedRow;
use super::simd::Simd;
use super::simd::strided::Strided;

/// What becomes of sums.
#[derive(Clone, Copy, Debug)]
pub(super) enum Epilogue<'a> {
    Clamp(Clamp),
    Added(Added<'a>),
    Scaled(Scaled<'a>),
    AddedAndScaled(Both<Added<'a>, Scaled<'a>>),
}

impl Epilogue<'_> {
    /// The same for an output whose first row is this one of all results.
    pub(super) fn at_row(mut self, first_row: usize) -> Self {
        if let Epilogue::Added(added) | Epilogue::AddedAndScaled(Both(added, _)) = &mut self {
            added.first_row = first_row;
        }
        self
    }
}

/// A kind of epilogue.
pub(super) trait Finish: Copy {
    /// What of it some rows need of `N` columns.
    type Part<const N: usize>: FinishPart<N>;

    /// The part of so many rows from one on, which is counted from the first one of the output, and of the
    /// columns from one on, which is counted from the first of the matrix.
    fn part<const N: usize>(&self, rows: (usize, usize), column: usize) -> Self::Part<N>;
}

/// The part of some rows and columns.
pub(super) trait FinishPart<const N: usize>: Copy {
    /// The results of the sums of a row, which is counted from the first of these.
    fn finish<V: Simd<N>>(&self, simd: V, sums: V::F32, row: usize) -> V::F32;
}

/// Sums are clamped to a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clamp(pub(super) (f32, f32));

impl Finish for Clamp {
    type Part<const N: usize> = Clamp;

    #[inline(always)]
    fn part<const N: usize>(&self, _: (usize, usize), _: usize) -> Clamp {
        *self
    }
}

impl<const N: usize> FinishPart<N> for Clamp {
    #[inline(always)]
    fn finish<V: Simd<N>>(&self, simd: V, sums: V::F32, _: usize) -> V::F32 {
        clamp(simd, sums, self.0)
    }
}

/// `value` clamped to a range; a NaN stays one.
#[inline(always)]
pub(super) fn clamp<V: Simd<N>, const N: usize>(simd: V, value: V::F32, (low, high): (f32, f32)) -> V::F32 {
    simd.at_most(simd.at_least(value, simd.splat(low)), simd.splat(high))
}

/// Something is added to each, and then they are clamped to a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added<'a> {
    addend: &'a [f32],
    /// How rows of it serve those of the results. Zeros begin and end with whole wide vectors.
    row: PaddedRow,
    range: (f32, f32),
    /// Which row of all results is the first one of the output.
    first_row: usize,
}

impl<'a> Added<'a> {
    pub(super) fn new(addend: &'a [f32], row: PaddedRow, range: (f32, f32)) -> Added<'a> {
        Added {
            addend,
            row,
            range,
            first_row: 0,
        }
    }
}

impl<'a> Finish for Added<'a> {
    type Part<const N: usize> = AddedPart<'a, N>;

    #[inline(always)]
    fn part<const N: usize>(&self, (row, count): (usize, usize), column: usize) -> AddedPart<'a, N> {
        let length = self.row.length;
        // In front of the first of them as well it is none of them.
        let at = column.wrapping_sub(self.row.before);
        let addend = if at < length {
            let values = &self.addend[(self.first_row + row) * length + at..];
            Strided::new(values, (count, length))
        } else {
            // Zeros are added, too: -0 becomes 0.
            Strided::new(&[0.0; N], (count, 0))
        };
        AddedPart {
            addend,
            range: self.range,
        }
    }
}

/// What is added to some columns of some rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddedPart<'a, const N: usize> {
    addend: Strided<'a, f32, N>,
    range: (f32, f32),
}

impl<const N: usize> FinishPart<N> for AddedPart<'_, N> {
    #[inline(always)]
    fn finish<V: Simd<N>>(&self, simd: V, sums: V::F32, row: usize) -> V::F32 {
        clamp(simd, simd.add(sums, simd.load(self.addend.at(row))), self.range)
    }
}

/// Negative ones are multiplied with a value for each column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled<'a>(pub(super) &'a [f32]);

impl<'a> Finish for Scaled<'a> {
    type Part<const N: usize> = ScaledPart<'a, N>;

    #[inline(always)]
    fn part<const N: usize>(&self, _: (usize, usize), column: usize) -> ScaledPart<'a, N> {
        ScaledPart(&self.0[column..].as_chunks().0[0])
    }
}

/// What some columns are multiplied with.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaledPart<'a, const N: usize>(&'a [f32; N]);

impl<const N: usize> FinishPart<N> for ScaledPart<'_, N> {
    #[inline(always)]
    fn finish<V: Simd<N>>(&self, simd: V, sums: V::F32, _: usize) -> V::F32 {
        simd.scale_negative(sums, simd.load(self.0))
    }
}

/// One after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

impl<A: Finish, B: Finish> Finish for Both<A, B> {
    type Part<const N: usize> = Both<A::Part<N>, B::Part<N>>;

    #[inline(always)]
    fn part<const N: usize>(&self, rows: (usize, usize), column: usize) -> Self::Part<N> {
        Both(self.0.part(rows, column), self.1.part(rows, column))
    }
}

impl<A: FinishPart<N>, B: FinishPart<N>, const N: usize> FinishPart<N> for Both<A, B> {
    #[inline(always)]
    fn finish<V: Simd<N>>(&self, simd: V, sums: V::F32, row: usize) -> V::F32 {
        self.1.finish(simd, self.0.finish(simd, sums, row), row)
    }
}

#[cfg(test)]
mod tests {
    use super::{Added, Both, Clamp, Finish, FinishPart, PaddedRow, Scaled};
    use crate::fast::elementwise::binary::Binary;
    use crate::fast::elementwise::values::clamp;
    use crate::fast::simd::{Instructions, LANES, Simd, WIDE, Work, dispatch};

    const SPECIAL: [f32; 8] = [
        -0.0,
        0.0,
        -3.5,
        7.25,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -1e-40,
    ];

    /// Finishes one row of [`WIDE`] columns, by a wide vector and by narrow ones.
    struct FinishRow<F>(F, [f32; WIDE]);

    impl<F: Finish> Work for FinishRow<F> {
        type Output = [[f32; WIDE]; 2];

        #[inline(always)]
        fn run<S: Instructions>(self, simd: S) -> Self::Output {
            let (wide, narrow) = (simd.wide(), simd.narrow());
            let mut results = [[0.0; WIDE]; 2];
            let part = self.0.part::<WIDE>((0, 1), 0);
            wide.store(part.finish(wide, wide.load(&self.1), 0), &mut results[0]);
            for half in 0..2 {
                let part = self.0.part::<LANES>((0, 1), half * LANES);
                let sums = narrow.load(&self.1.as_chunks().0[half]);
                narrow.store(
                    part.finish(narrow, sums, 0),
                    &mut results[1].as_chunks_mut().0[half],
                );
            }
            results
        }
    }

    fn assert_finishes(finish: impl Finish, sums: [f32; WIDE], expected: [f32; WIDE]) {
        for results in dispatch(FinishRow(finish, sums)) {
            for ((found, exact), sum) in results.iter().zip(expected).zip(sums) {
                let are_nan = found.is_nan() && exact.is_nan();
                assert!(
                    are_nan || found.to_bits() == exact.to_bits(),
                    "{found} in place of {exact}, of {sum}"
                );
            }
        }
    }

    #[test]
    fn special_values_become_what_operations_make_of_them() {
        const WHOLE: PaddedRow = PaddedRow {
            before: 0,
            length: WIDE,
            padded: WIDE,
        };
        const NOTHING: PaddedRow = PaddedRow {
            before: WIDE,
            length: WIDE,
            padded: 2 * WIDE,
        };
        let sums = std::array::from_fn(|at| SPECIAL[at % 8]);
        let none = (f32::NEG_INFINITY, f32::INFINITY);
        for turn in 0..8 {
            let others: [f32; WIDE] = std::array::from_fn(|at| SPECIAL[(at + turn) % 8]);
            for range in [none, (0.0, 6.0), (-1.0, 1.0)] {
                let (low, high) = range;
                // One by one, so that they are no constants: of a vector of constants, none of which is a
                // NaN, LLVM 22 makes `fmaxnm` of the comparison on aarch64, for which 0 is more than -0. What
                // kernels clamp was loaded and may be a NaN.
                let of_clamped = sums.map(|sum| clamp(std::hint::black_box(sum), low, high));
                assert_finishes(Clamp(range), sums, of_clamped);
                let scaled = |value: f32, at: usize| Binary::Prelu.combine(value, others[at]);
                let of_sums = std::array::from_fn(|at| scaled(sums[at], at));
                assert_finishes(Scaled(&others), sums, of_sums);
                for row in [WHOLE, NOTHING] {
                    let added = |at: usize| if row == WHOLE { others[at] } else { 0.0 };
                    let add = |at: usize| {
                        let sum = Binary::Add.combine(sums[at], added(at));
                        clamp(std::hint::black_box(sum), low, high)
                    };
                    let finish = Added::new(&others, row, range);
                    assert_finishes(finish, sums, std::array::from_fn(add));
                    let both = std::array::from_fn(|at| scaled(add(at), at));
                    assert_finishes(Both(finish, Scaled(&others)), sums, both);
                }
            }
        }
    }
}
