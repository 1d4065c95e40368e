//! How outputs are parted among threads.

use super::matmul::rows_per_block;
use super::tile::{COLUMNS, PANELS, ROWS};
use crate::threads::Grid;

/// Blocks for each thread, so that one that comes late or is held up leaves the others something to do.
const BLOCKS_PER_THREAD: usize = 4;

/// Fewest rows of a block of a matrix product with all columns: the matrix passes the processor once for each block, and
/// with fewer rows it could not come fast enough.
const LEAST_ROWS: usize = 8 * ROWS;

/// Blocks of a product of `rows` rows, of `row_bytes` each, with a matrix of `columns` columns: rows as they fit a
/// second-level cache, and for several threads fewer of them, or some of the columns of all.
pub(super) fn product(threads: usize, (rows, row_bytes): (usize, usize), columns: usize) -> Grid {
    let whole = rows_per_block(row_bytes).min(rows.max(1));
    let grid = |rows_per_block, columns_per_block| Grid {
        rows,
        columns,
        rows_per_block,
        columns_per_block,
    };
    if threads == 1 {
        return grid(whole, columns);
    }
    let wanted = threads * BLOCKS_PER_THREAD;
    if rows >= threads * LEAST_ROWS {
        let some = rows.div_ceil(wanted).max(LEAST_ROWS).next_multiple_of(ROWS);
        return grid(some.min(whole), columns);
    }
    let panels = columns.div_ceil(COLUMNS);
    if panels < 2 * threads {
        // Too few columns as well: whole tiles of rows, as evenly as it goes.
        let some = rows.div_ceil(threads).next_multiple_of(ROWS);
        return grid(some.min(whole), columns);
    }
    // Rows that are alone take several panels at once.
    let at_once = if panels >= PANELS * threads { PANELS } else { 1 };
    let some = panels.div_ceil(wanted).next_multiple_of(at_once);
    grid(whole, some * COLUMNS)
}

/// Blocks of `rows` rows of `columns` elements each that are computed one like the other, in whole rows.
pub(super) fn rows(threads: usize, rows: usize, columns: usize) -> Grid {
    let blocks = if threads == 1 {
        1
    } else {
        threads * BLOCKS_PER_THREAD
    };
    Grid {
        rows,
        columns,
        rows_per_block: rows.div_ceil(blocks).max(1),
        columns_per_block: columns,
    }
}

/// Blocks of `elements` that are computed one like the other, each a multiple of `unit` elements but the last.
pub(super) fn elements(threads: usize, elements: usize, unit: usize) -> Grid {
    let some = if threads == 1 {
        elements
    } else {
        let even = elements.div_ceil(threads * BLOCKS_PER_THREAD);
        even.checked_next_multiple_of(unit.max(1)).unwrap_or(elements)
    };
    Grid {
        rows: 1,
        columns: elements,
        rows_per_block: 1,
        columns_per_block: some.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::{elements, product, rows};

    #[test]
    fn single_rows_are_parted_by_columns_and_many_rows_by_rows() {
        let grid = product(2, (1, 4096), 1000);
        assert_eq!((grid.rows_per_block, grid.columns_per_block), (1, 128));
        let grid = product(2, (12_544, 128), 64);
        assert_eq!((grid.rows_per_block, grid.columns_per_block), (1_536, 64));
        let grid = product(2, (49, 4096), 1024);
        assert_eq!((grid.rows_per_block, grid.columns_per_block), (48, 128));
        let grid = product(2, (90, 16), 24);
        assert_eq!((grid.rows_per_block, grid.columns_per_block), (48, 24));
        let grid = product(1, (49, 4096), 1024);
        assert_eq!((grid.rows_per_block, grid.columns_per_block), (48, 1024));
    }

    #[test]
    fn one_thread_has_one_block() {
        assert_eq!(rows(1, 10, 3).rows_per_block, 10);
        assert_eq!(elements(1, 10, 8).columns_per_block, 10);
        assert_eq!(elements(2, 100, 8).columns_per_block, 16);
        assert_eq!(rows(4, 3, 5).rows_per_block, 1);
        assert_eq!(elements(3, 0, 8).columns_per_block, 1);
    }
}
