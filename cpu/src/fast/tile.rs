//! The innermost loops of matrix products, and the choice of the code that runs them.
//!
//! The loops are plain Rust over arrays of constant size, which the compiler turns into vector code for the
//! instruction set that the enclosing function enables; only the pairwise 16-bit product, which it does not find by
//! itself, is an intrinsic. Calling a function compiled for more than the build's base instruction set is the one
//! unsafe act of this crate, and this module is its only place.

use std::sync::LazyLock;

/// Rows of a tile.
pub(super) const ROWS: usize = 6;
/// Columns of a tile.
pub(super) const COLUMNS: usize = 16;

/// The instruction set that the inner loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// AVX2 and FMA.
    Avx2,
    /// Whatever the build targets.
    Portable,
}

/// What this processor has.
pub(super) static LEVEL: LazyLock<Level> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return Level::Avx2;
    }
    Level::Portable
});

/// `bias + rows * panel`: the products of [`ROWS`] rows with [`COLUMNS`] columns. The panel holds, for each index
/// along the common dimension, the values of all columns; rows are at least as long as the panel is deep.
pub(super) fn tile_f32(
    level: Level,
    rows: [&[f32]; ROWS],
    panel: &[f32],
    bias: &[f32; COLUMNS],
) -> [[f32; COLUMNS]; ROWS] {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::tile_f32(rows, panel, bias),
        _ => generic_tile_f32::<false>(rows, panel, bias),
    }
}

/// The same for pairs of 16-bit integers: each row element is two values, the panel holds two for each column.
/// Exact as long as sums fit 32 bits, beyond which they wrap.
pub(super) fn tile_i16(
    level: Level,
    rows: [&[i32]; ROWS],
    panel: &[i16],
    bias: &[i32; COLUMNS],
) -> [[i32; COLUMNS]; ROWS] {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::tile_i16(rows, panel, bias),
        _ => portable_tile_i16(rows, panel, bias),
    }
}

/// Runs `work` with the loops in it compiled for the level; `work` must be inlined to profit.
#[inline(always)]
pub(super) fn vectorized<R>(level: Level, work: impl FnOnce() -> R) -> R {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::vectorized(work),
        _ => work(),
    }
}

#[inline(always)]
fn generic_tile_f32<const FMA: bool>(
    rows: [&[f32]; ROWS],
    panel: &[f32],
    bias: &[f32; COLUMNS],
) -> [[f32; COLUMNS]; ROWS] {
    let depth = panel.len() / COLUMNS;
    let rows = rows.map(|row| &row[..depth]);
    let mut sums = [*bias; ROWS];
    for (at, columns) in panel.chunks_exact(COLUMNS).enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let value = row[at];
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = if FMA {
                    value.mul_add(*column, *sum)
                } else {
                    *sum + value * *column
                };
            }
        }
    }
    sums
}

fn portable_tile_i16(rows: [&[i32]; ROWS], panel: &[i16], bias: &[i32; COLUMNS]) -> [[i32; COLUMNS]; ROWS] {
    let depth = panel.len() / (2 * COLUMNS);
    let rows = rows.map(|row| &row[..depth]);
    let mut sums = [*bias; ROWS];
    for (at, columns) in panel.chunks_exact(2 * COLUMNS).enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let [first, second]: [i16; 2] = bytemuck::cast(row[at]);
            for (sum, pair) in sums.iter_mut().zip(columns.chunks_exact(2)) {
                let products = i32::from(first) * i32::from(pair[0]) + i32::from(second) * i32::from(pair[1]);
                *sum = sum.wrapping_add(products);
            }
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::{__m256i, _mm256_add_epi32, _mm256_madd_epi16, _mm256_set1_epi32};

    use super::{COLUMNS, ROWS, generic_tile_f32};

    pub(super) fn tile_f32(
        rows: [&[f32]; ROWS],
        panel: &[f32],
        bias: &[f32; COLUMNS],
    ) -> [[f32; COLUMNS]; ROWS] {
        #[target_feature(enable = "avx2,fma")]
        fn compiled(rows: [&[f32]; ROWS], panel: &[f32], bias: &[f32; COLUMNS]) -> [[f32; COLUMNS]; ROWS] {
            generic_tile_f32::<true>(rows, panel, bias)
        }
        // SAFETY: `Level::Avx2` is only made where the processor has both features.
        unsafe { compiled(rows, panel, bias) }
    }

    pub(super) fn tile_i16(
        rows: [&[i32]; ROWS],
        panel: &[i16],
        bias: &[i32; COLUMNS],
    ) -> [[i32; COLUMNS]; ROWS] {
        #[target_feature(enable = "avx2,fma")]
        fn compiled(rows: [&[i32]; ROWS], panel: &[i16], bias: &[i32; COLUMNS]) -> [[i32; COLUMNS]; ROWS] {
            let depth = panel.len() / (2 * COLUMNS);
            let rows = rows.map(|row| &row[..depth]);
            let bias: [__m256i; 2] = bytemuck::cast(*bias);
            let mut sums = [bias; ROWS];
            for (at, columns) in panel.chunks_exact(2 * COLUMNS).enumerate() {
                let low: __m256i = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&columns[..COLUMNS]));
                let high: __m256i = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&columns[COLUMNS..]));
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    let pair = _mm256_set1_epi32(row[at]);
                    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(pair, low));
                    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(pair, high));
                }
            }
            bytemuck::cast(sums)
        }
        // SAFETY: `Level::Avx2` is only made where the processor has both features.
        unsafe { compiled(rows, panel, bias) }
    }

    #[inline(always)]
    pub(super) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,fma")]
        fn compiled<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `Level::Avx2` is only made where the processor has both features.
        unsafe { compiled(work) }
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, LEVEL, Level, ROWS, tile_f32, tile_i16};

    #[test]
    fn every_level_gives_the_products_of_rows_and_columns() {
        let depth = 7;
        let rows: Vec<Vec<f32>> = (0..ROWS)
            .map(|row| (0..depth).map(|at| (row * depth + at) as f32).collect())
            .collect();
        let panel: Vec<f32> = (0..depth * COLUMNS).map(|at| at as f32 - 50.0).collect();
        for level in [*LEVEL, Level::Portable] {
            let found = tile_f32(
                level,
                std::array::from_fn(|row| &rows[row][..]),
                &panel,
                &[0.5; COLUMNS],
            );
            for (row, sums) in found.iter().enumerate() {
                for (column, sum) in sums.iter().enumerate() {
                    let exact: f32 = (0..depth)
                        .map(|at| rows[row][at] * panel[at * COLUMNS + column])
                        .sum::<f32>()
                        + 0.5;
                    assert_eq!(*sum, exact, "{level:?}");
                }
            }
        }
    }

    #[test]
    fn every_level_gives_exact_products_of_16_bit_pairs() {
        let pairs = 3;
        let rows: Vec<Vec<i32>> = (0..ROWS as i16)
            .map(|row| {
                (0..pairs as i16)
                    .map(|at| bytemuck::cast([row * 40 - 120, at * 100 - 150]))
                    .collect()
            })
            .collect();
        let panel: Vec<i16> = (0..pairs * 2 * COLUMNS).map(|at| at as i16 * 5 - 240).collect();
        for level in [*LEVEL, Level::Portable] {
            let found = tile_i16(
                level,
                std::array::from_fn(|row| &rows[row][..]),
                &panel,
                &[7; COLUMNS],
            );
            for (row, sums) in found.iter().enumerate() {
                for (column, sum) in sums.iter().enumerate() {
                    let mut exact = 7;
                    for at in 0..pairs {
                        let pair: [i16; 2] = bytemuck::cast(rows[row][at]);
                        for (half, value) in pair.iter().enumerate() {
                            let weight = panel[at * 2 * COLUMNS + 2 * column + half];
                            exact += i32::from(*value) * i32::from(weight);
                        }
                    }
                    assert_eq!(*sum, exact, "{level:?}");
                }
            }
        }
    }
}
