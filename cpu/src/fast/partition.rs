//! How outputs are parted: among threads, and into blocks between which an execution can be stopped.

use std::ops::Range;

use super::matmul::tile::{COLUMNS, PANELS, ROWS, rows_per_block};
use crate::plan::cost::{BLOCKS_PER_THREAD, LEAST_TILES, LEAST_TILES_NEAR, MATRIX_PER_ROWS, NEAR_BYTES};
use crate::threads::{Cost, Grid, Parts, Team};

/// Blocks of more rows have whole tall tiles, but those of three panels.
const MANY_ROWS: usize = 16 * ROWS;

/// How many of `units` that take equally long a block has, so that there are about as many blocks as are
/// wanted.
fn per_block(parts: Parts, units: usize) -> usize {
    let most = units.div_ceil(parts.blocks.max(1)).max(1);
    match parts.threads {
        1 => most,
        threads => most.min(even(threads, units, 1)),
    }
}

/// How many of `units` that take equally long a block has, at least `least` if there are as many: for each
/// thread as many blocks as leave it hardly more to do than the others.
fn even(threads: usize, units: usize, least: usize) -> usize {
    let per_block = |blocks: usize| units.div_ceil(threads * blocks).max(1);
    let longest = |blocks: usize| {
        let each = per_block(blocks);
        units.div_ceil(each).div_ceil(threads) * each
    };
    let choices = (1..=BLOCKS_PER_THREAD).filter(|blocks| *blocks == 1 || per_block(*blocks) >= least);
    let best = choices.clone().map(longest).min().unwrap_or(units);
    let chosen = choices.rev().find(|blocks| longest(*blocks) * 16 <= best * 17);
    per_block(chosen.unwrap_or(1))
}

/// Blocks of a product of `rows` rows, of `row_bytes` each, with a matrix of `columns` columns and
/// `matrix_bytes`: those for so many threads, or about as many more as are wanted. A block of fewer rows has
/// the matrix pass the processor once more, and one of fewer columns has the rows copied once more.
pub(super) fn product(
    parts: Parts,
    rows: (usize, usize),
    matrix @ (columns, matrix_bytes): (usize, usize),
) -> Grid {
    let grid = product_by(parts.threads, rows, matrix);
    let more = parts.blocks.div_ceil(grid.blocks().max(1));
    if more <= 1 {
        return grid;
    }
    let most = grid.rows_per_block / (least_tiles(matrix_bytes) * ROWS);
    let by_rows = match more.min(most) {
        0 | 1 => grid,
        times => Grid {
            rows_per_block: grid.rows_per_block.div_ceil(times).next_multiple_of(2 * ROWS),
            ..grid
        },
    };
    let more = parts.blocks.div_ceil(by_rows.blocks());
    if more <= 1 {
        return by_rows;
    }
    let panels = grid.columns_per_block.min(columns).div_ceil(COLUMNS);
    Grid {
        columns_per_block: panels.div_ceil(more).next_multiple_of(PANELS).min(panels) * COLUMNS,
        ..by_rows
    }
}

/// Fewest rows of a block with all columns of a matrix of so many bytes, in tiles.
fn least_tiles(matrix_bytes: usize) -> usize {
    if matrix_bytes <= NEAR_BYTES {
        LEAST_TILES_NEAR
    } else {
        LEAST_TILES
    }
}

/// The same for so many threads, however long it takes: rows as they fit a second-level cache, and for
/// several threads fewer of them, or some of the columns of all.
fn product_by(
    threads: usize,
    (rows, row_bytes): (usize, usize),
    (columns, matrix_bytes): (usize, usize),
) -> Grid {
    // A few more are not worth another pass over the matrix.
    let whole = match rows_per_block(row_bytes) {
        some if rows <= some + some / 4 => rows.max(1),
        some => some,
    };
    let grid = |rows_per_block, columns_per_block| Grid {
        rows,
        columns,
        rows_per_block,
        columns_per_block,
    };
    if threads == 1 {
        return grid(whole, columns);
    }
    let least = least_tiles(matrix_bytes);
    let panels = columns.div_ceil(COLUMNS);
    // With too few columns as well, rows, as evenly as it goes.
    if rows >= threads * least * ROWS || panels < 2 * threads {
        let some = match even(threads, rows, least * ROWS) {
            many if many > MANY_ROWS => many.next_multiple_of(2 * ROWS),
            some => some,
        };
        return grid(some.min(whole), columns);
    }
    let is_tall = rows >= threads * LEAST_TILES_NEAR * ROWS;
    if is_tall && matrix_bytes / MATRIX_PER_ROWS <= rows.saturating_mul(row_bytes) {
        return grid(rows.div_ceil(threads).min(whole), columns);
    }
    // One row or two take several panels at once, others two at least if all threads have as many.
    let at_once = if rows <= 2 && panels >= PANELS * threads {
        PANELS
    } else if panels.is_multiple_of(2 * threads) {
        2
    } else {
        1
    };
    let some = even(threads, panels.div_ceil(at_once), 1) * at_once;
    grid(whole, some * COLUMNS)
}

/// Blocks of `rows` rows of `columns` elements each that are computed one like the other, in whole rows.
pub(super) fn rows(parts: Parts, rows: usize, columns: usize) -> Grid {
    Grid {
        rows,
        columns,
        rows_per_block: per_block(parts, rows),
        columns_per_block: columns,
    }
}

/// The same in one block for each thread, where something is computed twice at each border between blocks.
pub(super) fn rows_at_once(threads: usize, rows: usize, columns: usize) -> Grid {
    Grid {
        rows,
        columns,
        rows_per_block: rows.div_ceil(threads.max(1)).max(1),
        columns_per_block: columns,
    }
}

/// Blocks of `elements` that are computed one like the other, each a multiple of `unit` elements but the
/// last.
pub(super) fn elements(parts: Parts, elements: usize, unit: usize) -> Grid {
    let some = if parts == Parts::ONE {
        elements
    } else {
        let unit = unit.max(1);
        per_block(parts, elements.div_ceil(unit)).saturating_mul(unit)
    };
    Grid {
        rows: 1,
        columns: elements,
        rows_per_block: 1,
        columns_per_block: some.max(1),
    }
}

/// Has threads compute the elements of an output, one like the other, in blocks that begin at multiples of
/// `unit` elements. `compute` is told which elements of the output it is given.
pub(super) fn for_each_part<T: Send>(
    (team, cost): (&Team<'_>, Cost),
    (output, unit): (&mut [T], usize),
    compute: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let parts = team.parts_for(cost);
    if parts == Parts::ONE {
        return compute(0..output.len(), output);
    }
    let grid = elements(parts, output.len(), unit);
    let none: &mut [u8] = &mut [];
    team.for_each_block(parts.threads, &grid, (output, none), |mut block, _| {
        compute(block.columns(), block.all());
    });
}

/// Blocks of so many bytes that are copied: whole pages, if not all begin with one.
pub(crate) fn copied(parts: Parts, bytes: usize) -> Grid {
    elements(parts, bytes, 4096)
}

#[cfg(test)]
mod tests {
    use super::{Parts, elements, even, product, rows, rows_at_once};

    const NEAR: usize = 1 << 14;
    const FAR: usize = 1 << 22;

    /// For so many threads, and no more blocks than these need.
    fn by(threads: usize) -> Parts {
        Parts { threads, blocks: 1 }
    }

    #[test]
    fn single_rows_are_parted_by_columns_and_many_rows_by_rows() {
        let blocks = |threads, rows, matrix| {
            let grid = product(by(threads), rows, matrix);
            (grid.rows_per_block, grid.columns_per_block)
        };
        assert_eq!(blocks(2, (1, 4096), (1000, FAR)), (1, 256));
        assert_eq!(blocks(2, (12_544, 128), (64, NEAR)), (1_536, 64));
        assert_eq!(blocks(2, (3_136, 128), (64, NEAR)), (792, 64));
        assert_eq!(blocks(2, (49, 4096), (1024, FAR)), (49, 256));
        assert_eq!(blocks(1, (49, 4096), (1024, FAR)), (49, 1024));
        assert_eq!(blocks(1, (61, 4096), (1024, FAR)), (48, 1024));
        // As evenly with few panels, and in pairs of them if that is even.
        assert_eq!(blocks(2, (20, 3840), (160, FAR)), (20, 80));
        assert_eq!(blocks(2, (20, 3840), (320, FAR)), (20, 160));
        // Rows that are hardly smaller than the matrix.
        assert_eq!(blocks(2, (49, 3840), (160, 160 * 3840)), (25, 160));
    }

    #[test]
    fn few_rows_are_parted_if_the_matrix_is_at_hand() {
        let rows = |rows, bytes| product(by(2), (rows, 512), (128, bytes)).rows_per_block;
        assert_eq!(rows(36, NEAR), 18);
        assert_eq!(rows(36, FAR), 36);
        assert_eq!(rows(9, NEAR), 9);
        // Too few columns to be parted.
        assert_eq!(product(by(2), (90, 16), (24, FAR)).rows_per_block, 45);
    }

    #[test]
    fn no_thread_has_much_more_to_do_than_another() {
        for threads in 2..9 {
            for units in 1..500 {
                let each = even(threads, units, 1);
                let longest = units.div_ceil(each).div_ceil(threads) * each;
                assert!(
                    longest * 16 <= units.div_ceil(threads) * 17,
                    "{units} by {threads}"
                );
            }
        }
        assert_eq!((even(2, 25, 1), even(2, 21, 2)), (13, 11));
        assert_eq!(
            even(2, 384, 2),
            96,
            "several blocks for each thread where that is as even"
        );
    }

    #[test]
    fn one_thread_has_one_block() {
        assert_eq!(rows(by(1), 10, 3).rows_per_block, 10);
        assert_eq!(elements(by(1), 10, 8).columns_per_block, 10);
        assert_eq!(elements(by(2), 100, 8).columns_per_block, 56);
        assert_eq!(elements(by(2), 1000, 8).columns_per_block, 256);
        assert_eq!(rows(by(4), 3, 5).rows_per_block, 1);
        assert_eq!(rows_at_once(1, 10, 3).rows_per_block, 10);
        assert_eq!(rows_at_once(3, 10, 3).rows_per_block, 4);
        assert_eq!(rows_at_once(4, 0, 3).rows_per_block, 1);
        assert_eq!(elements(by(3), 0, 8).columns_per_block, 8);
    }

    #[test]
    fn there_are_as_many_blocks_as_are_wanted() {
        for threads in 1..5 {
            for blocks in [1, 2, 7, 40] {
                let parts = Parts { threads, blocks };
                let grids = [
                    rows(parts, 100, 3),
                    elements(parts, 10_000, 64),
                    // Many rows, few of many columns, and some of both.
                    product(parts, (12_544, 128), (64, NEAR)),
                    product(parts, (49, 4096), (10_240, FAR)),
                    product(parts, (200, 4096), (1024, FAR)),
                ];
                for grid in grids {
                    assert!(4 * grid.blocks() >= 3 * blocks, "{parts:?} {grid:?}");
                }
                // Of those for several threads blocks may be narrower.
                if threads == 1 {
                    assert_eq!(grids[3].columns_per_block % (super::PANELS * super::COLUMNS), 0);
                }
            }
        }
    }

    #[test]
    fn blocks_are_no_smaller_than_their_units() {
        let parts = Parts {
            threads: 1,
            blocks: 1000,
        };
        assert_eq!(rows(parts, 3, 9).rows_per_block, 1);
        assert_eq!(elements(parts, 100, 64).columns_per_block, 64);
        let few = product(parts, (5, 64), (48, NEAR));
        assert_eq!((few.rows_per_block, few.columns_per_block), (5, 48));
        let some = product(parts, (30, 64), (480, NEAR));
        assert_eq!((some.rows_per_block, some.columns_per_block), (24, 64));
    }
}
