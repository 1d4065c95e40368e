//! Neighbouring values at places that are equally far apart, as those of neighbouring pixels are.
//!
//! Convolutions load from a dozen such places for a few products each, so that checking each place takes as
//! long as the products, and remembering each more registers than there are. Here all are checked at once,
//! and none again. Where they are few enough to be remembered, there are the rows themselves
//! ([`Rows::each`]).

/// The first `N` values at each of some places.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Strided<'a, T, const N: usize> {
    /// At least `(count - 1) * apart + N` of them.
    values: &'a [T],
    apart: usize,
    /// At least 1.
    count: usize,
}

impl<'a, T, const N: usize> Strided<'a, T, N> {
    /// So many places, so many values apart, the first of which is the start of `values`.
    ///
    /// # Panics
    /// If there is no place, or `values` ends before the last one does.
    #[inline(always)]
    pub(in crate::fast) fn new(values: &'a [T], (count, apart): (usize, usize)) -> Self {
        let last = count.checked_sub(1).and_then(|last| apart.checked_mul(last));
        let end = last.and_then(|last| last.checked_add(N));
        assert!(
            end.is_some_and(|end| end <= values.len()),
            "{count} times {N} values, {apart} apart, in {}",
            values.len()
        );
        Strided { values, apart, count }
    }

    /// What there is at a place.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline(always)]
    pub(in crate::fast) fn at(&self, place: usize) -> &'a [T; N] {
        assert!(place < self.count, "place {place} of {}", self.count);
        let start = place * self.apart;
        // SAFETY: `place` is at most `count - 1`, and `new` has seen that there are at least `(count - 1) *
        // apart + N` values, without an overflow; so `start + N` are not more than there are.
        let first = unsafe { self.values.as_ptr().add(start) };
        // SAFETY: so there are `N` values from there on, which live as long as the result.
        unsafe { &*first.cast::<[T; N]>() }
    }
}

/// The same to be written.
#[derive(Debug)]
pub(in crate::fast) struct StridedMut<'a, T, const N: usize> {
    /// As many as for [`Strided`].
    values: &'a mut [T],
    apart: usize,
    count: usize,
}

impl<'a, T, const N: usize> StridedMut<'a, T, N> {
    /// As [`Strided::new`].
    ///
    /// # Panics
    /// As that does.
    #[inline(always)]
    pub(in crate::fast) fn new(values: &'a mut [T], (count, apart): (usize, usize)) -> Self {
        let Strided { apart, count, .. } = Strided::<T, N>::new(values, (count, apart));
        StridedMut { values, apart, count }
    }

    /// What there is at a place.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline(always)]
    pub(in crate::fast) fn at(&mut self, place: usize) -> &mut [T; N] {
        // Not told which of how many: what is told of is in memory, and so would be where values are.
        assert!(place < self.count, "a place that there is");
        let start = place * self.apart;
        // SAFETY: as for `Strided::at`, by which `new` has looked at the values.
        let first = unsafe { self.values.as_mut_ptr().add(start) };
        // SAFETY: so there are `N` values from there on, which are borrowed mutably as long as the result
        // lives.
        unsafe { &mut *first.cast::<[T; N]>() }
    }
}

/// Some rows of the same length.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Rows<'a, T> {
    /// At least `(count - 1) * apart + length` of them.
    values: &'a [T],
    apart: usize,
    /// At least 1.
    count: usize,
    length: usize,
}

impl<'a, T: Copy> Rows<'a, T> {
    /// So many rows of `length` values, so many values from one start to the next, the first of which is the
    /// start of `values`.
    ///
    /// # Panics
    /// If there is no row, or `values` ends before the last one does.
    #[inline(always)]
    pub(in crate::fast) fn new(values: &'a [T], (count, apart): (usize, usize), length: usize) -> Self {
        let last = count.checked_sub(1).and_then(|last| apart.checked_mul(last));
        let end = last.and_then(|last| last.checked_add(length));
        assert!(
            end.is_some_and(|end| end <= values.len()),
            "{count} rows of {length} values, {apart} apart, in {}",
            values.len()
        );
        Rows {
            values,
            apart,
            count,
            length,
        }
    }

    /// How many there are.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(in crate::fast) fn count(&self) -> usize {
        self.count
    }

    /// Values from a row's start to the next one's.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(in crate::fast) fn apart(&self) -> usize {
        self.apart
    }

    /// Where the first row starts.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(in crate::fast) fn start(&self) -> *const T {
        self.values.as_ptr()
    }

    /// Values of each row.
    #[inline(always)]
    pub(in crate::fast) fn length(&self) -> usize {
        self.length
    }

    /// The values of each of the first rows.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub(in crate::fast) fn each<const R: usize>(&self) -> [&'a [T]; R] {
        assert!(R <= self.count, "{R} rows of {}", self.count);
        let mut rows = [&[][..]; R];
        for (number, row) in rows.iter_mut().enumerate() {
            let start = number * self.apart;
            // SAFETY: `number` is at most `count - 1`, and `new` has seen that there are at least `(count -
            // 1) * apart + length` values, without an overflow.
            *row = unsafe { self.values.get_unchecked(start..start + self.length) };
        }
        rows
    }

    /// The values of a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub(in crate::fast) fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.count, "row {row} of {}", self.count);
        &self.values[row * self.apart..][..self.length]
    }

    /// A value of a row.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(in crate::fast) fn value(&self, row: usize, at: usize) -> T {
        assert!(row < self.count && at < self.length, "value {at} of row {row}");
        // SAFETY: `row` is at most `count - 1` and `at` less than `length`, and `new` has seen that there are
        // at least `(count - 1) * apart + length` values, without an overflow.
        unsafe { *self.values.get_unchecked(row * self.apart + at) }
    }

    /// A value of a row: that number `at` of those from twice `pair` on, of which there are two.
    ///
    /// Loops over pairs check nothing in it that they have not checked themselves.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(in crate::fast) fn of_pair(&self, row: usize, pair: usize, at: usize) -> T {
        assert!(
            row < self.count && pair < self.length / 2 && at < 2,
            "value {at} of pair {pair} of row {row}"
        );
        // SAFETY: as for `value`, since `2 * pair + 1` is less than `length`.
        unsafe { *self.values.get_unchecked(row * self.apart + 2 * pair + at) }
    }

    /// Two values of a row: the first two or the last two, by `at`, of those from four times `four` on.
    ///
    /// # Panics
    /// If there are none.
    #[inline(always)]
    pub(in crate::fast) fn pair_of_four(&self, row: usize, four: usize, at: usize) -> [T; 2] {
        assert!(
            row < self.count && four < self.length / 4 && at < 2,
            "pair {at} of four {four} of row {row}"
        );
        let start = row * self.apart + 4 * four + 2 * at;
        // SAFETY: as for `value`, since `4 * four + 3` is less than `length`.
        let first = unsafe { self.values.as_ptr().add(start) };
        // SAFETY: so there are two values from there on.
        unsafe { *first.cast::<[T; 2]>() }
    }

    /// Two values of a row: those from twice `at` on.
    ///
    /// # Panics
    /// If there are none.
    #[inline(always)]
    pub(in crate::fast) fn pair(&self, row: usize, at: usize) -> [T; 2] {
        assert!(row < self.count && at < self.length / 2, "pair {at} of row {row}");
        let start = row * self.apart + 2 * at;
        // SAFETY: as for `value`, and `2 * at + 1` is less than `length`.
        let first = unsafe { self.values.as_ptr().add(start) };
        // SAFETY: so there are two values from there on.
        unsafe { *first.cast::<[T; 2]>() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rows, Strided, StridedMut};

    #[test]
    fn places_are_equally_far_apart() {
        let values: Vec<i16> = (0..20).collect();
        let strided = Strided::<_, 4>::new(&values, (5, 4));
        assert_eq!(strided.at(0), &[0, 1, 2, 3]);
        assert_eq!(strided.at(4), &[16, 17, 18, 19]);
        let overlapping = Strided::<_, 4>::new(&values[14..], (3, 1));
        assert_eq!(overlapping.at(2), &[16, 17, 18, 19]);
    }

    #[test]
    #[should_panic(expected = "5 times 4 values")]
    fn places_beyond_the_end_are_refused() {
        let _ = Strided::<_, 4>::new(&[0_u8; 19], (5, 4));
    }

    #[test]
    #[should_panic(expected = "values")]
    fn places_too_far_apart_to_count_are_refused() {
        let _ = Strided::<_, 4>::new(&[0_u8; 64], (3, usize::MAX / 2 + 1));
    }

    #[test]
    #[should_panic(expected = "place 2 of 2")]
    fn there_are_only_so_many_places() {
        let _ = Strided::<_, 1>::new(&[0_u8; 64], (2, 2)).at(2);
    }

    #[test]
    fn places_are_written() {
        let mut values = [0; 7];
        let mut strided = StridedMut::<_, 2>::new(&mut values, (3, 2));
        *strided.at(2) = [5, 6];
        strided.at(0)[1] = 1;
        assert_eq!(values, [0, 1, 0, 0, 5, 6, 0]);
    }

    #[test]
    #[should_panic(expected = "3 times 2 values")]
    fn places_beyond_the_end_are_not_written() {
        let _ = StridedMut::<_, 2>::new(&mut [0_u8; 5], (3, 2));
    }

    #[test]
    #[should_panic(expected = "a place that there is")]
    fn only_places_that_there_are_are_written() {
        StridedMut::<_, 1>::new(&mut [0_u8; 64], (2, 2)).at(2)[0] = 1;
    }

    #[test]
    fn rows_have_their_values_by_numbers_in_pairs_and_pairs_in_fours() {
        let values: Vec<i16> = (0..20).collect();
        let rows = Rows::new(&values, (2, 10), 9);
        assert_eq!((rows.of_pair(0, 0, 1), rows.of_pair(1, 3, 0)), (1, 16));
        assert_eq!(rows.pair_of_four(0, 1, 0), [4, 5]);
        assert_eq!(rows.pair_of_four(1, 1, 1), [16, 17]);
    }

    #[test]
    #[should_panic(expected = "value 0 of pair 4 of row 0")]
    fn pairs_end_where_a_row_of_odd_length_does() {
        let _ = Rows::new(&[0_u8; 20], (2, 10), 9).of_pair(0, 4, 0);
    }

    #[test]
    #[should_panic(expected = "value 2 of pair 3 of row 1")]
    fn a_pair_has_two_values() {
        let _ = Rows::new(&[0_u8; 20], (2, 10), 9).of_pair(1, 3, 2);
    }

    #[test]
    #[should_panic(expected = "pair 0 of four 2 of row 1")]
    fn fours_end_where_a_row_does() {
        let _ = Rows::new(&[0_u8; 20], (2, 10), 10).pair_of_four(1, 2, 0);
    }

    #[test]
    #[should_panic(expected = "pair 0 of four 0 of row 2")]
    fn pairs_of_fours_are_of_rows_that_there_are() {
        let _ = Rows::new(&[0_u8; 20], (2, 10), 10).pair_of_four(2, 0, 0);
    }

    #[test]
    fn each_row_has_all_its_values() {
        let values: Vec<u8> = (0..30).collect();
        let rows = Rows::new(&values, (3, 11), 8);
        assert_eq!(rows.each::<2>(), [&values[..8], &values[11..19]]);
        assert_eq!(rows.each::<3>()[2], &values[22..]);
    }

    #[test]
    #[should_panic(expected = "3 rows of 2")]
    fn there_are_no_more_rows_than_counted() {
        let _ = Rows::new(&[0_u8; 30], (2, 10), 10).each::<3>();
    }

    #[test]
    fn rows_have_their_values_by_ones_and_by_twos() {
        let values: Vec<i16> = (0..20).collect();
        let rows = Rows::new(&values, (3, 7), 6);
        assert_eq!((rows.value(0, 0), rows.value(2, 5)), (0, 19));
        assert_eq!((rows.pair(1, 0), rows.pair(2, 2)), ([7, 8], [18, 19]));
        assert_eq!(Rows::new(&values[..3], (4, 0), 3).value(3, 2), 2);
    }

    #[test]
    #[should_panic(expected = "3 rows of 7 values")]
    fn rows_beyond_the_end_are_refused() {
        let _ = Rows::new(&[0_u8; 20], (3, 7), 7);
    }

    #[test]
    #[should_panic(expected = "value 6 of row 0")]
    fn rows_end() {
        let _ = Rows::new(&[0_u8; 20], (3, 7), 6).value(0, 6);
    }

    #[test]
    #[should_panic(expected = "pair 3 of row 2")]
    fn rows_end_by_twos() {
        let _ = Rows::new(&[0_u8; 20], (3, 6), 7).pair(2, 3);
    }
}
