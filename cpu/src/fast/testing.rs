//! For the unit tests of products: blocks of an output.

use super::tile::COLUMNS;
use crate::kernels::fixed_point::Multiplier;
use crate::threads::{Block, Grid, Team, Threads};

/// Computes all rows of an output, some columns at a time.
pub(super) fn each_block<T: Send>(
    output: &mut [T],
    (rows, columns): (usize, usize),
    work: impl Fn(Block<'_, T>) + Sync,
) {
    let grid = Grid {
        rows,
        columns,
        rows_per_block: rows,
        columns_per_block: 4 * COLUMNS,
    };
    let none: &mut [u8] = &mut [];
    Team::new(Threads::ALONE, 0).for_each_block(1, &grid, (output, none), |block, _| work(block));
}

/// The least sum of which a multiplier makes a result.
pub(super) fn least_sum_of(by: Multiplier, result: i32) -> i32 {
    let real = f64::from(by.mantissa) * f64::from(by.exponent - 31).exp2();
    let near = ((f64::from(result) - 0.5) / real) as i32;
    (near - 3..).find(|sum| by.apply(*sum) >= result).unwrap()
}
