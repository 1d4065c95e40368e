//! Memory that is written in disjoint parts by several threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows of equal length, parted into blocks of neighbouring rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) rows: usize,
    /// Elements of a row.
    pub(crate) columns: usize,
    pub(crate) rows_per_block: usize,
    pub(crate) columns_per_block: usize,
}

impl Grid {
    /// Blocks beside each other.
    fn across(&self) -> usize {
        self.columns.div_ceil(self.columns_per_block.max(1))
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.rows.div_ceil(self.rows_per_block.max(1)) * self.across()
    }

    /// So many threads, but no more than there are blocks for.
    pub(crate) fn most_threads(&self, threads: usize) -> usize {
        // Blocks are counted by division, which one thread can do without.
        if threads <= 1 {
            1
        } else {
            threads.min(self.blocks().max(1))
        }
    }

    /// Whether memory of so many elements is large enough.
    fn fits(&self, elements: usize) -> bool {
        let needed = self.rows.checked_mul(self.columns);
        needed.is_some_and(|needed| needed <= elements)
    }

    /// The block that begins at a row and a column.
    #[inline(always)]
    fn block<'a, T>(&self, memory: *mut T, (top, left): (usize, usize)) -> Block<'a, T> {
        Block {
            memory,
            stride: self.columns,
            rows: top..(top + self.rows_per_block).min(self.rows),
            columns: left..(left + self.columns_per_block).min(self.columns),
            lent: PhantomData,
        }
    }
}

/// Has one thread compute the blocks of a grid, one after the other.
///
/// # Panics
/// If `memory` is smaller than the grid.
#[inline]
pub(super) fn for_each<T>(memory: &mut [T], grid: &Grid, mut work: impl FnMut(Block<'_, T>)) {
    assert!(grid.fits(memory.len()), "a grid as large as its memory");
    let mut top = 0;
    while top < grid.rows {
        let mut left = 0;
        while left < grid.columns {
            work(grid.block(memory.as_mut_ptr(), (top, left)));
            left += grid.columns_per_block.max(1);
        }
        top += grid.rows_per_block.max(1);
    }
}

/// How many bits of a word count blocks.
const BLOCK_BITS: u32 = 32;
const BLOCK_MASK: u64 = u32::MAX as u64;

/// Gives out the blocks of a grid, each once, to whichever threads ask.
#[derive(Debug)]
pub(super) struct Blocks<'a, T> {
    grid: Grid,
    memory: *mut T,
    /// The first block that has not been given out, and in the upper half the first behind those.
    left: AtomicU64,
    lent: PhantomData<&'a mut [T]>,
}

/// Which of the blocks that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// That of the first row of blocks, then those beside it, then those of the next row.
    First,
    /// The other way round.
    Last,
}

// SAFETY: all that can be done with a shared reference is to take blocks. No two have an element in common,
// so taking one is as if its elements had been sent to the thread.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Blocks<'_, T> {}

impl<'a, T> Blocks<'a, T> {
    /// # Panics
    /// If `memory` is smaller than the grid, or there are 2^32 blocks.
    #[inline]
    pub(super) fn new(memory: &'a mut [T], grid: Grid) -> Blocks<'a, T> {
        assert!(grid.fits(memory.len()), "a grid as large as its memory");
        let blocks = grid.blocks() as u64;
        assert!(blocks <= BLOCK_MASK, "blocks that can be counted");
        Blocks {
            grid,
            memory: memory.as_mut_ptr(),
            left: AtomicU64::new(blocks << BLOCK_BITS),
            lent: PhantomData,
        }
    }

    /// `count` shares of `length` elements each.
    ///
    /// # Panics
    /// If `memory` is smaller.
    pub(super) fn shares(memory: &'a mut [T], (count, length): (usize, usize)) -> Blocks<'a, T> {
        let grid = Grid {
            rows: count,
            columns: length,
            rows_per_block: 1,
            columns_per_block: length,
        };
        Blocks::new(memory, grid)
    }

    /// Whether any has not been taken yet.
    pub(super) fn are_left(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        left & BLOCK_MASK < left >> BLOCK_BITS
    }

    /// The next block from this end; none when all have been taken.
    pub(super) fn take(&self, end: End) -> Option<Block<'_, T>> {
        let without = |left: u64| {
            let (first, behind) = (left & BLOCK_MASK, left >> BLOCK_BITS);
            (first < behind).then(|| match end {
                End::First => left + 1,
                End::Last => left - (1 << BLOCK_BITS),
            })
        };
        // Blocks are all that is told by it: what the threads write is handed over with the end of the job.
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, without)
            .ok()?;
        let number = match end {
            End::First => left & BLOCK_MASK,
            End::Last => (left >> BLOCK_BITS) - 1,
        } as usize;
        let grid = &self.grid;
        let (row, column) = (number / grid.across(), number % grid.across());
        let start = (row * grid.rows_per_block, column * grid.columns_per_block);
        Some(grid.block(self.memory, start))
    }
}

/// Some neighbouring columns of some neighbouring rows, which nobody else has.
///
/// Made only by [`Blocks::take`], for each number once, so that no two have an element in common, by
/// [`for_each`], which makes none before the last one is gone, or by [`Block::whole`] of memory that is
/// borrowed for it alone. The whole grid is within the memory.
#[derive(Debug)]
pub(crate) struct Block<'a, T> {
    memory: *mut T,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    lent: PhantomData<&'a mut [T]>,
}

impl<'a, T> Block<'a, T> {
    /// All of some memory, as rows of `columns` elements: whole ones, so many as there are.
    pub(crate) fn whole(memory: &'a mut [T], columns: usize) -> Block<'a, T> {
        Block {
            stride: columns,
            rows: 0..memory.len().checked_div(columns).unwrap_or(0),
            columns: 0..columns,
            memory: memory.as_mut_ptr(),
            lent: PhantomData,
        }
    }

    /// How many rows it has.
    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Which row of the grid is its first.
    #[inline(always)]
    pub(crate) fn first_row(&self) -> usize {
        self.rows.start
    }

    /// Which columns it has.
    #[inline(always)]
    pub(crate) fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Its part of its row `row`, counted from its first.
    ///
    /// # Panics
    /// If it has no such row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows.len(), "a row of the block");
        self.slice(
            (self.rows.start + row) * self.stride + self.columns.start,
            self.columns.len(),
        )
    }

    /// Its parts of its rows from `top` on, as many as are asked for, so that places in them are checked for
    /// all at once.
    ///
    /// # Panics
    /// If it has not so many rows.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) fn rows_from<const R: usize>(&mut self, top: usize) -> [&mut [T]; R] {
        let fits = self.rows.len().checked_sub(top).is_some_and(|rows| rows >= R);
        assert!(fits, "rows of the block");
        let first = (self.rows.start + top) * self.stride + self.columns.start;
        let length = self.columns.len();
        std::array::from_fn(|row| {
            // SAFETY: there are `R` rows from `top` on, so these are elements of the block, which is within
            // memory that is mutably borrowed as long as the block lives.
            let start = unsafe { self.memory.add(first + row * self.stride) };
            // SAFETY: as above; no other block has any of these elements, no two rows have one in common, and
            // this block is borrowed mutably for all of the slices.
            unsafe { std::slice::from_raw_parts_mut(start, length) }
        })
    }

    /// All of it, one row behind the other, if it has all columns.
    ///
    /// # Panics
    /// If there are others.
    #[inline(always)]
    pub(crate) fn all(&mut self) -> &mut [T] {
        let is_whole = self.rows.len() == 1 || self.columns == (0..self.stride);
        assert!(is_whole, "a block of whole rows");
        let length = self.columns.len() * self.rows.len();
        self.slice(self.rows.start * self.stride + self.columns.start, length)
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn slice(&mut self, from: usize, length: usize) -> &mut [T] {
        // SAFETY: the callers give ranges within the block, which is within memory that is mutably borrowed
        // as long as the block lives.
        let start = unsafe { self.memory.add(from) };
        // SAFETY: as above; no other block has any of these elements, and this one is borrowed mutably for
        // the slice.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Block, Blocks, End, Grid, for_each};

    #[test]
    fn blocks_cover_every_element_once() {
        for (rows, columns) in [(1, 1), (5, 7), (6, 8), (3, 1), (0, 4)] {
            for (rows_per_block, columns_per_block) in [(1, 1), (2, 3), (9, 9), (3, 8)] {
                let grid = Grid {
                    rows,
                    columns,
                    rows_per_block,
                    columns_per_block,
                };
                let mut memory = vec![0; rows * columns];
                let mut taken = 0;
                let mut visit = |mut block: Block<'_, i32>| {
                    taken += 1;
                    for row in 0..block.rows() {
                        block.row(row).iter_mut().for_each(|value| *value += 1);
                    }
                };
                let blocks = Blocks::new(&mut memory, grid);
                let mut ends = [End::First, End::Last, End::Last].into_iter().cycle();
                while let Some(block) = blocks.take(ends.next().unwrap()) {
                    visit(block);
                }
                for_each(&mut memory, &grid, visit);
                assert_eq!(taken, 2 * grid.blocks());
                assert!(memory.iter().all(|value| *value == 2), "{grid:?}");
            }
        }
    }

    #[test]
    fn blocks_come_from_both_ends() {
        let mut memory = [0; 5];
        let blocks = Blocks::shares(&mut memory, (5, 1));
        let ends = [
            End::First,
            End::Last,
            End::First,
            End::Last,
            End::Last,
            End::First,
        ];
        let rows = ends.map(|end| blocks.take(end).map(|block| block.first_row()));
        assert_eq!(rows, [Some(0), Some(4), Some(1), Some(3), Some(2), None]);
    }

    #[test]
    #[should_panic(expected = "a grid as large as its memory")]
    fn grid_beyond_its_memory_is_refused() {
        let _ = Blocks::shares(&mut [0; 5], (3, 2));
    }

    #[test]
    #[should_panic(expected = "a grid as large as its memory")]
    fn grid_beyond_its_memory_is_refused_to_one_thread() {
        let grid = Grid {
            rows: 3,
            columns: 2,
            rows_per_block: 1,
            columns_per_block: 2,
        };
        for_each(&mut [0; 5], &grid, |_| ());
    }

    #[test]
    #[should_panic(expected = "a row of the block")]
    fn rows_beyond_the_block_are_refused() {
        let mut memory = [0; 6];
        let shares = Blocks::shares(&mut memory, (2, 3));
        shares.take(End::First).unwrap().row(1);
    }

    #[test]
    fn neighbouring_rows_come_together() {
        let mut memory = [0; 20];
        let grid = Grid {
            rows: 4,
            columns: 5,
            rows_per_block: 3,
            columns_per_block: 3,
        };
        let blocks = Blocks::new(&mut memory, grid);
        blocks.take(End::First).unwrap();
        let mut block = blocks.take(End::First).unwrap();
        let [first, second] = block.rows_from::<2>(1);
        (first[1], second[0]) = (first.len(), second.len() + 1);
        assert_eq!(block.rows_from::<1>(2)[0], [3, 0]);
        assert_eq!((memory[9], memory[13]), (2, 3));
    }

    #[test]
    #[should_panic(expected = "rows of the block")]
    fn more_rows_than_the_block_has_are_refused() {
        let mut memory = [0; 6];
        super::Block::whole(&mut memory, 3).rows_from::<2>(1);
    }

    #[test]
    fn block_of_some_memory_has_its_whole_rows() {
        let mut memory = [0; 7];
        let mut block = super::Block::whole(&mut memory, 3);
        assert_eq!((block.rows(), block.first_row(), block.columns()), (2, 0, 0..3));
        block.row(1).fill(1);
        block.all()[0] = 2;
        assert_eq!(memory, [2, 0, 0, 1, 1, 1, 0]);
        assert_eq!(super::Block::whole(&mut memory, 0).rows(), 0);
    }

    #[test]
    #[should_panic(expected = "a block of whole rows")]
    fn blocks_of_part_rows_have_no_whole() {
        let mut memory = [0; 6];
        let grid = Grid {
            rows: 2,
            columns: 3,
            rows_per_block: 2,
            columns_per_block: 2,
        };
        Blocks::new(&mut memory, grid).take(End::First).unwrap().all();
    }
}
