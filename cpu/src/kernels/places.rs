//! The places of a box of elements, one after the other.

use nnhal_hal::MAX_RANK;

use super::blocks::count_of;

/// The places of a box with these extents, in row-major order: for each the steps along every axis.
pub(super) struct Places<'a> {
    extents: &'a [u32],
    position: [u32; MAX_RANK],
    left: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(extents: &'a [u32]) -> Places<'a> {
        Places {
            extents,
            position: [0; MAX_RANK],
            left: count_of(extents),
        }
    }
}

impl Iterator for Places<'_> {
    type Item = [u32; MAX_RANK];

    fn next(&mut self) -> Option<[u32; MAX_RANK]> {
        self.left = self.left.checked_sub(1)?;
        let position = self.position;
        let axes = self.extents.len();
        for (step, extent) in self.position[..axes].iter_mut().zip(self.extents).rev() {
            *step += 1;
            if *step < *extent {
                break;
            }
            *step = 0;
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn the_last_axis_moves_fastest() {
        let found: Vec<[u32; 2]> = Places::new(&[2, 1, 2]).map(|at| [at[0], at[2]]).collect();
        assert_eq!(found, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(Places::new(&[2, 0]).count(), 0);
        assert_eq!(Places::new(&[]).count(), 1);
    }
}
