//! For the unit tests of products: blocks of an output, and what they are made of.

use nnhal_hal::ops::padding::Window;

use super::matmul::tile::COLUMNS;
use crate::interrupt::NeverInterrupted;
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
    Team::new(Threads::ALONE, 0, &NeverInterrupted)
        .for_each_block(1, &grid, (output, none), |block, _| work(block));
}

/// The least sum of which a multiplier makes a result.
pub(super) fn least_sum_of(by: Multiplier, result: i32) -> i32 {
    let real = f64::from(by.mantissa) * f64::from(by.exponent - 31).exp2();
    let near = ((f64::from(result) - 0.5) / real) as i32;
    (near - 3..).find(|sum| by.apply(*sum) >= result).unwrap()
}

/// Where in an image of so many lines or columns a window's tap is, for the window of the output at `at`;
/// nowhere in the padding.
pub(super) fn place(window: &Window, at: usize, tap: usize, extent: u32) -> Option<usize> {
    let place = at as i64 * i64::from(window.stride) + tap as i64 * i64::from(window.dilation);
    usize::try_from(place - i64::from(window.head))
        .ok()
        .filter(|place| *place < extent as usize)
}
