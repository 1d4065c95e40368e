//! Moving blocks of elements between arrays of different layouts; what PAD, SLICE, TRANSPOSE, TILE and their
//! like have in common.

use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, OperandType};

use crate::kernel::KernelError;

/// Most axes that a block can have: tiling gives two to each axis of a tensor.
const MAX_AXES: usize = 2 * MAX_RANK;

/// A walk over elements of an array: where it starts, and how far a step along each axis moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    start: isize,
    steps: [isize; MAX_AXES],
}

impl Layout {
    /// A walk from element `start` with these steps.
    pub(super) fn new(start: isize, steps: &[isize]) -> Layout {
        let mut all = [0; MAX_AXES];
        all[..steps.len()].copy_from_slice(steps);
        Layout { start, steps: all }
    }

    /// All elements of an array with these dimensions, in order.
    pub(super) fn whole(dims: &[u32]) -> Layout {
        let steps = steps_of(dims);
        Layout::new(0, &steps[..dims.len()])
    }
}

/// How far a step along each axis moves in a row-major array with these dimensions.
pub(super) fn steps_of(dims: &[u32]) -> [isize; MAX_AXES] {
    let mut steps = [0; MAX_AXES];
    let mut step = 1_isize;
    for (axis, dim) in dims.iter().enumerate().rev() {
        steps[axis] = step;
        step = step.saturating_mul(*dim as isize);
    }
    steps
}

/// The number of elements of an array with these dimensions, as far as it can be told: an extent of 0 makes
/// it 0.
pub(super) fn count_of(dims: &[u32]) -> usize {
    dims.iter()
        .map(|dim| *dim as usize)
        .fold(1, usize::saturating_mul)
}

/// Copies a block with these extents, element by element in row-major order, from one layout to another.
///
/// # Errors
/// The block reaches outside one of the arrays. Callers have proven that it does not.
pub(super) fn copy_block<T: Copy>(
    extents: &[u32],
    from: &[T],
    from_layout: &Layout,
    to: &mut [T],
    to_layout: &Layout,
) -> Result<(), KernelError> {
    if extents.contains(&0) {
        return Ok(());
    }
    let block = Block::merged(extents, from_layout, to_layout);
    let (inner, outer) = (block.axes - 1, &block.extents[..block.axes - 1]);
    let run = block.extents[inner];
    let (from_step, to_step) = (block.from.steps[inner], block.to.steps[inner]);
    let mut position = [0_usize; MAX_AXES];
    let (mut at_from, mut at_to) = (block.from.start, block.to.start);
    loop {
        let moved = if from_step == 1 && to_step == 1 {
            copy_run(from, at_from, to, at_to, run)
        } else {
            copy_stepwise(from, (at_from, from_step), to, (at_to, to_step), run)
        };
        moved.ok_or_else(|| OpError::operation("a block reaches outside its operand"))?;
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            position[axis] += 1;
            at_from += block.from.steps[axis];
            at_to += block.to.steps[axis];
            if position[axis] < outer[axis] {
                break;
            }
            at_from -= block.from.steps[axis] * position[axis] as isize;
            at_to -= block.to.steps[axis] * position[axis] as isize;
            position[axis] = 0;
        }
    }
}

fn copy_run<T: Copy>(from: &[T], at_from: isize, to: &mut [T], at_to: isize, run: usize) -> Option<()> {
    let source = from.get(usize::try_from(at_from).ok()?..)?.get(..run)?;
    let target = to.get_mut(usize::try_from(at_to).ok()?..)?.get_mut(..run)?;
    target.copy_from_slice(source);
    Some(())
}

fn copy_stepwise<T: Copy>(
    from: &[T],
    (mut at_from, from_step): (isize, isize),
    to: &mut [T],
    (mut at_to, to_step): (isize, isize),
    run: usize,
) -> Option<()> {
    for _ in 0..run {
        *to.get_mut(usize::try_from(at_to).ok()?)? = *from.get(usize::try_from(at_from).ok()?)?;
        at_from += from_step;
        at_to += to_step;
    }
    Some(())
}

/// A block with as few axes as its layouts allow, at least one.
struct Block {
    axes: usize,
    extents: [usize; MAX_AXES],
    from: Layout,
    to: Layout,
}

impl Block {
    /// Joins axes that both layouts walk as one, and drops those of extent 1.
    fn merged(extents: &[u32], from: &Layout, to: &Layout) -> Block {
        let mut block = Block {
            axes: 0,
            extents: [1; MAX_AXES],
            from: Layout::new(from.start, &[]),
            to: Layout::new(to.start, &[]),
        };
        for (axis, &extent) in extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let extent = extent as usize;
            let joins = block.axes > 0 && {
                let outer = block.axes - 1;
                block.from.steps[outer] == from.steps[axis].saturating_mul(extent as isize)
                    && block.to.steps[outer] == to.steps[axis].saturating_mul(extent as isize)
            };
            if !joins {
                block.axes += 1;
            }
            let last = block.axes - 1;
            block.extents[last] = if joins {
                block.extents[last] * extent
            } else {
                extent
            };
            block.from.steps[last] = from.steps[axis];
            block.to.steps[last] = to.steps[axis];
        }
        block.axes = block.axes.max(1);
        block
    }
}

/// Calls a function that is generic over the element with an unsigned integer of the element's size: for
/// kernels that move values and never look at them.
macro_rules! by_element_size {
    ($ty:expr, $function:ident($($argument:expr),*)) => {
        match $ty.element_size() {
            1 => $function::<u8>($($argument),*),
            2 => $function::<u16>($($argument),*),
            4 => $function::<u32>($($argument),*),
            _ => Err(super::blocks::not_movable($ty)),
        }
    };
}
pub(super) use by_element_size;

pub(super) fn not_movable(ty: OperandType) -> KernelError {
    OpError::input(0, format!("is {ty}, which has no elements to move")).into()
}

#[cfg(test)]
mod tests {
    use super::{Layout, copy_block, count_of, steps_of};

    #[test]
    fn blocks_keep_order_whatever_the_layouts() {
        let from: Vec<u32> = (0..24).collect();
        let mut to = vec![0; 24];
        // Axes 0 and 2 exchanged.
        copy_block(
            &[4, 3, 2],
            &from,
            &Layout::new(0, &[1, 4, 12]),
            &mut to,
            &Layout::whole(&[4, 3, 2]),
        )
        .unwrap();
        for (index, value) in to.iter().enumerate() {
            let (a, b, c) = (index / 6, index / 2 % 3, index % 2);
            assert_eq!(*value as usize, c * 12 + b * 4 + a);
        }
    }

    #[test]
    fn whole_arrays_are_copied_and_empty_blocks_are_not() {
        let mut to = [0; 6];
        let whole = Layout::whole(&[1, 2, 3]);
        copy_block(&[1, 2, 3], &[1, 2, 3, 4, 5, 6], &whole, &mut to, &whole).unwrap();
        assert_eq!(to, [1, 2, 3, 4, 5, 6]);
        copy_block(
            &[0, 2],
            &[],
            &Layout::new(-5, &[1, 1]),
            &mut to,
            &Layout::new(99, &[1, 1]),
        )
        .unwrap();
        copy_block(&[], &[9], &Layout::whole(&[]), &mut to, &Layout::whole(&[])).unwrap();
        assert_eq!(to[0], 9);
    }

    #[test]
    fn blocks_outside_their_array_give_an_error() {
        let mut to = [0; 4];
        let line = Layout::whole(&[4]);
        assert!(copy_block(&[4], &[1, 2, 3], &line, &mut to, &line).is_err());
        assert!(copy_block(&[2], &[1, 2, 3], &Layout::new(0, &[-1]), &mut to, &line).is_err());
        assert_eq!(steps_of(&[2, 3, 4])[..3], [12, 4, 1]);
    }
    #[test]
    fn an_extent_of_0_leaves_nothing_to_count() {
        assert_eq!(count_of(&[2, 3, 4]), 24);
        assert_eq!(count_of(&[]), 1);
        assert_eq!(count_of(&[u32::MAX, u32::MAX, u32::MAX, 0]), 0);
    }
}
