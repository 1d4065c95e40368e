//! Where the rows of a matrix product lie that are patches of an image: read in place, without a copy of each patch.

/// Rows to multiply with a packed matrix, as they lie in lines of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<'a, T> {
    pub(super) values: &'a [T],
    /// How many rows there are.
    pub(super) count: usize,
    /// The place of the first row in its line.
    pub(super) first: usize,
    /// Rows of a line.
    pub(super) width: usize,
    /// Values from a row's start to the next one's in a line.
    pub(super) step: usize,
    /// Values from a line's start to the next one's.
    pub(super) line: usize,
    pub(super) parts: Parts,
}

/// The parts that a row is made of, each of neighbouring values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Rows of a filter, and values from one to the next.
    pub(super) rows: (usize, usize),
    /// Parts of such a row, and values from one to the next.
    pub(super) taps: (usize, usize),
    /// Values of a part.
    pub(super) length: usize,
}

impl<'a, T> Lines<'a, T> {
    /// Rows of `length` values that start `apart` values from each other.
    pub(super) fn of_rows(values: &'a [T], count: usize, (length, apart): (usize, usize)) -> Lines<'a, T> {
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
    pub(super) fn walk(&self) -> Walk {
        Walk {
            x: self.first,
            line: 0,
        }
    }

    /// The starts of the next rows.
    #[inline(always)]
    pub(super) fn next<const R: usize>(&self, walk: &mut Walk) -> [usize; R] {
        let mut starts = [walk.line + walk.x * self.step; R];
        if walk.x + R < self.width {
            // All in this line, as most are.
            for row in 1..R {
                starts[row] = starts[row - 1] + self.step;
            }
            walk.x += R;
            return starts;
        }
        for start in &mut starts {
            *start = walk.line + walk.x * self.step;
            walk.x += 1;
            if walk.x == self.width {
                walk.x = 0;
                walk.line += self.line;
            }
        }
        starts
    }

    /// A part of each row.
    #[inline(always)]
    pub(super) fn part<const R: usize>(&self, starts: &[usize; R], offset: usize) -> [&'a [T]; R] {
        let mut rows = [&self.values[..0]; R];
        for (row, start) in rows.iter_mut().zip(starts) {
            *row = &self.values[start + offset..][..self.parts.length];
        }
        rows
    }
}

/// Where a walk over rows is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    x: usize,
    line: usize,
}

/// How many of the rows that are left the next tile takes, of at most six, so that none is left to be slow alone.
#[inline(always)]
pub(super) fn rows_of_next_tile(left: usize) -> usize {
    match left {
        7 | 8 => 4,
        9 => 5,
        0..=6 => left,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Parts, rows_of_next_tile};

    #[test]
    fn rows_go_on_in_the_next_line() {
        let values: Vec<u32> = (0..40).collect();
        let lines = Lines {
            values: &values,
            count: 4,
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
        let starts: [usize; 4] = lines.next(&mut walk);
        assert_eq!(starts, [2, 4, 10, 12]);
        assert_eq!(lines.part(&starts, 10)[2], [20, 21, 22]);
    }

    #[test]
    fn starts_go_on_to_the_end_of_a_line_and_across_it() {
        let values = [0_u8; 64];
        let mut lines = Lines::of_rows(&values, 12, (1, 3));
        (lines.width, lines.line) = (9, 30);
        let mut walk = lines.walk();
        let mut starts = Vec::new();
        starts.extend::<[usize; 4]>(lines.next(&mut walk));
        starts.extend::<[usize; 5]>(lines.next(&mut walk));
        starts.extend::<[usize; 3]>(lines.next(&mut walk));
        assert_eq!(starts, [0, 3, 6, 9, 12, 15, 18, 21, 24, 30, 33, 36]);
        let mut walk = lines.walk();
        let _: [usize; 6] = lines.next(&mut walk);
        let across: [usize; 4] = lines.next(&mut walk);
        assert_eq!(across, [18, 21, 24, 30]);
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
        }
        assert_eq!(rows_of_next_tile(7), 4);
    }
}
