//! Where the rows of a matrix product lie that are patches of an image: read in place, without a copy of each
//! patch. Those that are multiplied together are neighbours in a line, so that they are equally far apart.

use crate::fast::simd::strided::{Rows, Strided};

/// Rows to multiply with a packed matrix, as they lie in lines of an image.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Lines<'a, T> {
    pub(in crate::fast) values: &'a [T],
    /// How many rows there are.
    pub(in crate::fast) count: usize,
    /// The place of the first row in its line.
    pub(in crate::fast) first: usize,
    /// Rows of a line.
    pub(in crate::fast) width: usize,
    /// Values from a row's start to the next one's in a line.
    pub(in crate::fast) step: usize,
    /// Values from a line's start to the next one's.
    pub(in crate::fast) line: usize,
    pub(in crate::fast) parts: Parts,
}

/// The parts that a row is made of, each of neighbouring values.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Parts {
    /// Rows of a filter, and values from one to the next.
    pub(in crate::fast) rows: (usize, usize),
    /// Parts of such a row, and values from one to the next.
    pub(in crate::fast) taps: (usize, usize),
    /// Values of a part.
    pub(in crate::fast) length: usize,
}

impl<'a, T> Lines<'a, T> {
    /// Rows of `length` values that start `apart` values from each other.
    pub(in crate::fast) fn of_rows(
        values: &'a [T],
        count: usize,
        (length, apart): (usize, usize),
    ) -> Lines<'a, T> {
        Lines {
            values,
            count,
            first: 0,
            width: count.max(1),
            step: apart,
            line: 0,
            parts: Parts {
                rows: (1, 0),
                taps: (1, 0),
                length,
            },
        }
    }

    /// At the first row.
    #[inline(always)]
    pub(in crate::fast) fn walk(&self) -> Walk {
        Walk {
            row: 0,
            x: self.first,
            line: 0,
        }
    }

    /// At a row that there is, or behind the last one.
    #[inline(always)]
    pub(in crate::fast) fn walk_from(&self, row: usize) -> Walk {
        let x = self.first + row;
        Walk {
            row,
            x: x % self.width,
            line: x / self.width * self.line,
        }
    }

    /// How many rows are left in the line where a walk is; 0 at the end.
    #[inline(always)]
    pub(in crate::fast) fn left(&self, walk: &Walk) -> usize {
        (self.count - walk.row).min(self.width - walk.x)
    }

    /// Takes some of those rows.
    #[inline(always)]
    pub(in crate::fast) fn take(&self, walk: &mut Walk, count: usize) -> Run {
        let run = Run {
            row: walk.row,
            count,
            start: walk.line + walk.x * self.step,
        };
        walk.row += count;
        walk.x += count;
        if walk.x == self.width {
            walk.x = 0;
            walk.line += self.line;
        }
        run
    }

    /// A part of each row of a run.
    #[inline(always)]
    pub(in crate::fast) fn part(&self, run: &Run, offset: usize) -> Rows<'a, T>
    where
        T: Copy,
    {
        let values = &self.values[run.start + offset..];
        Rows::new(values, (run.count, self.step), self.parts.length)
    }

    /// The first `N` values of each row of a run.
    #[inline(always)]
    pub(in crate::fast) fn places<const N: usize>(&self, run: &Run) -> Strided<'a, T, N> {
        Strided::new(&self.values[run.start..], (run.count, self.step))
    }

    /// Whether rows lie side by side where they are.
    #[inline(always)]
    pub(in crate::fast) fn are_whole(&self) -> bool {
        (self.parts.rows.0, self.parts.taps.0) == (1, 1)
    }

    /// The values of a run's first row side by side in `copy`, which has room for as many.
    #[inline(always)]
    pub(in crate::fast) fn whole<'v>(&self, run: &Run, copy: &'v mut [T]) -> Rows<'v, T>
    where
        T: Copy,
    {
        let Parts { rows, taps, length } = self.parts;
        let mut parts = copy.chunks_exact_mut(length);
        for row in 0..rows.0 {
            for (tap, to) in (0..taps.0).zip(&mut parts) {
                let offset = run.start + row * rows.1 + tap * taps.1;
                to.copy_from_slice(&self.values[offset..][..length]);
            }
        }
        let length = copy.len();
        Rows::new(copy, (1, length), length)
    }
}

/// Where a walk over rows is.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Walk {
    /// Rows before.
    row: usize,
    x: usize,
    line: usize,
}

/// Neighbouring rows of a line.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Run {
    /// Which row the first one is.
    pub(in crate::fast) row: usize,
    count: usize,
    /// Where it starts.
    start: usize,
}

/// How many of the rows that are left the next tile takes, of at most six, so that none is left to be slow
/// alone.
#[inline(always)]
pub(in crate::fast) fn rows_of_next_tile(left: usize) -> usize {
    match left {
        7 | 8 => 4,
        9 => 5,
        0..=6 => left,
        _ => 6,
    }
}

/// The same for tiles of at most so many rows: as few tiles as there can be, as equal as they can be.
#[inline(always)]
pub(in crate::fast) fn rows_of_next_tall_tile(left: usize, most: usize) -> usize {
    left.div_ceil(left.div_ceil(most).max(1))
}

/// How many of the panels that are left the next tiles take, where registers hold the sums of two dozen
/// vectors. A value of a row is brought into a register for every so many products, so four panels take fewer
/// instructions for each than two, and rows pass the processor half as often; threes are better than fours
/// where one would be left. `is_half_behind` says whether half a panel is behind them, with which one that is
/// left is multiplied.
#[inline(always)]
pub(in crate::fast) fn panels_of_next_tile(left: usize, is_half_behind: bool) -> usize {
    match left {
        5 | 9 if !is_half_behind => 3,
        6 => 3,
        _ => left.min(4),
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Parts, panels_of_next_tile, rows_of_next_tall_tile, rows_of_next_tile};

    #[test]
    fn tiles_take_all_panels_and_leave_none_alone() {
        for count in 2..100 {
            let mut left = count;
            while left > 0 {
                let panels = panels_of_next_tile(left, false);
                assert!((2..=4).contains(&panels), "{panels} of {left} of {count}");
                left -= panels;
            }
        }
        assert_eq!(
            (panels_of_next_tile(1, false), panels_of_next_tile(5, true)),
            (1, 4)
        );
    }

    #[test]
    fn rows_go_on_in_the_next_line() {
        let values: Vec<u32> = (0..40).collect();
        let lines = Lines {
            values: &values,
            count: 6,
            first: 1,
            width: 3,
            step: 2,
            line: 10,
            parts: Parts {
                rows: (2, 10),
                taps: (1, 0),
                length: 3,
            },
        };
        let mut walk = lines.walk();
        let mut firsts = Vec::new();
        while lines.left(&walk) > 0 {
            let count = lines.left(&walk).min(2);
            let run = lines.take(&mut walk, count);
            firsts.push((run.row, count, lines.part(&run, 10).value(count - 1, 0)));
        }
        assert_eq!(firsts, [(0, 2, 14), (2, 2, 22), (4, 1, 24), (5, 1, 30)]);
    }

    #[test]
    fn tiles_take_all_rows() {
        for count in 0..100 {
            let mut left = count;
            while left > 0 {
                let rows = rows_of_next_tile(left);
                assert!((1..=6).contains(&rows));
                left -= rows;
            }
            for most in [6, 8, 12] {
                left = count;
                while left > 0 {
                    let rows = rows_of_next_tall_tile(left, most);
                    assert!((1..=most).contains(&rows) && (count < most || rows >= most / 2));
                    left -= rows;
                }
            }
        }
        assert_eq!(rows_of_next_tile(7), 4);
        assert_eq!(rows_of_next_tall_tile(49, 12), 10);
    }
}
