//! For the unit tests of products: blocks of an output.

use super::tile::COLUMNS;
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
