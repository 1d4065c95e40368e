//! How many lanes vectors have, and in which order they stand.

/// Lanes of a narrow vector.
pub(in crate::fast) const LANES: usize = 8;

/// Lanes of a wide vector.
pub(in crate::fast) const WIDE: usize = 2 * LANES;

/// Which of sixteen columns each lane holds.
pub(in crate::fast) const COLUMN_ORDER: [usize; WIDE] =
    [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15];
/// Lanes of an array from the `first` on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn lanes_from<T, const N: usize>(all: &[T], first: usize) -> &[T; N] {
    match all[first..].first_chunk() {
        Some(lanes) => lanes,
        None => unreachable!("vectors lie within the lanes of {} values", all.len()),
    }
}
