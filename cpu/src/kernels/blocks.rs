//! Moving blocks of elements between arrays of different layouts; what PAD, SLICE, TRANSPOSE, TILE and their
//! like have in common.

use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, OperandType};

use crate::kernel::KernelError;

/// Most axes that a block can have: tiling gives two to each axis of a tensor.
const MAX_AXES: usize = 2 * MAX_RANK;

/// A walk over elements of an array: where it starts, and how far a step along each axis moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    start: isize,
    steps: [isize; MAX_AXES],
}

impl Layout {
    /// A walk from element `start` with these steps.
    pub(crate) fn new(start: isize, steps: &[isize]) -> Layout {
        let mut all = [0; MAX_AXES];
        all[..steps.len()].copy_from_slice(steps);
        Layout { start, steps: all }
    }

    /// All elements of an array with these dimensions, in order.
    pub(crate) fn whole(dims: &[u32]) -> Layout {
        let steps = steps_of(dims);
        Layout::new(0, &steps[..dims.len()])
    }
}

/// How far a step along each axis moves in a row-major array with these dimensions.
pub(crate) fn steps_of(dims: &[u32]) -> [isize; MAX_AXES] {
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
    BlockCopy::new(extents, from_layout, to_layout).copy(from, to)
}

/// A copy of a block from one layout to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockCopy {
    /// `None` if there is nothing to copy.
    axes: Option<CopyAxes>,
}

#[derive(Clone, Copy, Debug)]
struct CopyAxes {
    outer: Block,
    inner: Axis,
}

impl BlockCopy {
    /// That of a block with these extents.
    pub(crate) fn new(extents: &[u32], from: &Layout, to: &Layout) -> BlockCopy {
        let axes = (!extents.contains(&0)).then(|| {
            let mut outer = Block::merged(extents, from, to);
            let inner = outer.take_inner();
            CopyAxes { outer, inner }
        });
        BlockCopy { axes }
    }

    /// Copies the block, element by element in row-major order.
    ///
    /// # Errors
    /// The block reaches outside one of the arrays. Callers have proven that it does not.
    pub(crate) fn copy<T: Copy>(&self, from: &[T], to: &mut [T]) -> Result<(), KernelError> {
        let Some(CopyAxes { outer, inner }) = &self.axes else {
            return Ok(());
        };
        outer.for_each_start(|start| {
            let copied = if inner.from == 1 && inner.to == 1 {
                copy_run(from, to, start, inner.extent)
            } else {
                copy_stepwise(from, to, start, *inner)
            };
            copied.ok_or_else(|| OpError::operation("a block reaches outside its operand").into())
        })
    }
}

fn copy_run<T: Copy>(from: &[T], to: &mut [T], start: Start, run: usize) -> Option<()> {
    let source = from.get(usize::try_from(start.from).ok()?..)?.get(..run)?;
    let target = to.get_mut(usize::try_from(start.to).ok()?..)?.get_mut(..run)?;
    target.copy_from_slice(source);
    Some(())
}

fn copy_stepwise<T: Copy>(from: &[T], to: &mut [T], start: Start, axis: Axis) -> Option<()> {
    let mut at = start;
    for _ in 0..axis.extent {
        *to.get_mut(usize::try_from(at.to).ok()?)? = *from.get(usize::try_from(at.from).ok()?)?;
        at = axis.step(at, 1);
    }
    Some(())
}

/// Where a walk is in both arrays.
#[derive(Clone, Copy, Debug)]
struct Start {
    from: isize,
    to: isize,
}

/// An axis of a block: how far a step along it moves in both arrays.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: usize,
    from: isize,
    to: isize,
}

impl Axis {
    /// The place some steps further.
    fn step(self, at: Start, steps: usize) -> Start {
        Start {
            from: at.from + self.from * steps as isize,
            to: at.to + self.to * steps as isize,
        }
    }
}

/// A block with as few axes as its layouts allow.
#[derive(Clone, Copy, Debug)]
struct Block {
    count: usize,
    axes: [Axis; MAX_AXES],
    start: Start,
}

impl Block {
    /// Joins axes that both layouts walk as one, and drops those of extent 1.
    fn merged(extents: &[u32], from: &Layout, to: &Layout) -> Block {
        let none = Axis {
            extent: 1,
            from: 0,
            to: 0,
        };
        let mut block = Block {
            count: 0,
            axes: [none; MAX_AXES],
            start: Start {
                from: from.start,
                to: to.start,
            },
        };
        for (number, &extent) in extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let axis = Axis {
                extent: extent as usize,
                from: from.steps[number],
                to: to.steps[number],
            };
            let continues = |outer: isize, inner: isize| outer == inner.saturating_mul(extent as isize);
            match block.axes[..block.count].last_mut() {
                Some(outer) if continues(outer.from, axis.from) && continues(outer.to, axis.to) => {
                    let extent = outer.extent * axis.extent;
                    *outer = Axis { extent, ..axis };
                }
                _ => {
                    block.axes[block.count] = axis;
                    block.count += 1;
                }
            }
        }
        block
    }

    /// Takes the last axis out of the block.
    fn take_inner(&mut self) -> Axis {
        self.count = self.count.saturating_sub(1);
        self.axes[self.count]
    }

    /// Calls `each` with the places where the walks along the axes begin.
    fn for_each_start(
        &self,
        mut each: impl FnMut(Start) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        if self.count == 0 {
            return each(self.start);
        }
        let axes = &self.axes[..self.count];
        let mut position = [0_usize; MAX_AXES];
        let mut at = self.start;
        loop {
            each(at)?;
            let mut number = axes.len();
            loop {
                if number == 0 {
                    return Ok(());
                }
                number -= 1;
                let axis = axes[number];
                position[number] += 1;
                if position[number] < axis.extent {
                    at = axis.step(at, 1);
                    break;
                }
                let back = axis.extent - 1;
                at.from -= axis.from * back as isize;
                at.to -= axis.to * back as isize;
                position[number] = 0;
            }
        }
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
            8 => $function::<u64>($($argument),*),
            _ => Err($crate::kernels::blocks::not_movable($ty)),
        }
    };
}
pub(crate) use by_element_size;

pub(crate) fn not_movable(ty: OperandType) -> KernelError {
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
    fn matrices_are_transposed_whatever_their_sides() {
        for (rows, columns) in [(1, 5), (16, 16), (17, 3), (2, 40), (33, 35)] {
            let from: Vec<u16> = (0..2 * rows * columns).map(|value| value as u16).collect();
            let mut to = vec![0; from.len()];
            let (rows, columns) = (rows as isize, columns as isize);
            let dims = [2, columns as u32, rows as u32];
            let turned = Layout::new(0, &[rows * columns, 1, columns]);
            copy_block(&dims, &from, &turned, &mut to, &Layout::whole(&dims)).unwrap();
            for (index, value) in (0..).zip(&to) {
                let (matrix, column, row) = (index / rows / columns, index / rows % columns, index % rows);
                assert_eq!(
                    isize::try_from(*value),
                    Ok((matrix * rows + row) * columns + column)
                );
            }
            let short = &from[..from.len() - 1];
            assert!(copy_block(&dims, short, &turned, &mut to, &Layout::whole(&dims)).is_err());
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
