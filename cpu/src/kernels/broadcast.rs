//! Walks over element-wise operands whose shapes broadcast, and over the lanes of a tensor along one axis.
//!
//! Indices are never recomputed by division: neighbouring axes along which both operands move alike are
//! merged, and what is left is clamped into runs of consecutive output elements.

use std::ops::Range;

use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, Shape};

use super::blocks::count_of;
use super::element::Float;
use crate::kernel::{KernelContext, KernelError};

/// Consecutive output elements, and where their operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of elements.
    pub(crate) length: usize,
    /// Index of the first output element.
    pub(crate) output: usize,
    /// Index of the left operand's first element.
    pub(crate) left: usize,
    /// Index of the right operand's first element.
    pub(crate) right: usize,
    /// Whether the left operand moves with the output; otherwise one element serves the whole run.
    pub(crate) left_moves: bool,
    /// The same of the right operand.
    pub(crate) right_moves: bool,
}

/// One axis of a walk: its extent and how far a step along it moves in each operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    pub(crate) left: usize,
    pub(crate) right: usize,
}

impl Axis {
    /// Along which there is one place.
    const SINGLE: Axis = Axis {
        extent: 1,
        left: 0,
        right: 0,
    };
}

/// Most axes of a walk: those of a shape, and one of extent 1 behind them.
const MOST_AXES: usize = MAX_RANK + 1;

/// Some neighbouring steps of a walk along one axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Index of the first output element.
    pub(crate) output: usize,
    /// Index of the left operand's first element.
    pub(crate) left: usize,
    /// The same of the right operand.
    pub(crate) right: usize,
    /// How many steps.
    pub(crate) steps: usize,
}

/// How two operands move with an output that they broadcast to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Innermost first, those of extent 1 left out and neighbours merged where both operands allow; behind
    /// them single ones.
    axes: [Axis; MOST_AXES],
    count: usize,
    elements: usize,
}

impl Walk {
    /// A walk over `output`, to which `left` and `right` broadcast.
    pub(crate) fn new(output: &Shape, left: &Shape, right: &Shape) -> Result<Walk, OpError> {
        let mut walk = Walk {
            axes: [Axis::SINGLE; MOST_AXES],
            count: 0,
            elements: output
                .elements()
                .map_err(|error| OpError::operation(error.to_string()))?,
        };
        if walk.elements == 0 {
            // Beside an extent of 0 the others may be of any size, and their products, too.
            return Ok(walk);
        }
        let (mut left_stride, mut right_stride) = (1, 1);
        for from_last in 1..=output.rank() {
            let extent_in = |shape: &Shape| {
                shape
                    .rank()
                    .checked_sub(from_last)
                    .map_or(1, |axis| shape.dim(axis) as usize)
            };
            let (left_extent, right_extent) = (extent_in(left), extent_in(right));
            walk.add(Axis {
                extent: extent_in(output),
                left: if left_extent == 1 { 0 } else { left_stride },
                right: if right_extent == 1 { 0 } else { right_stride },
            });
            left_stride *= left_extent;
            right_stride *= right_extent;
        }
        Ok(walk)
    }

    /// Adds the next outer axis.
    fn add(&mut self, axis: Axis) {
        if axis.extent == 1 {
            return;
        }
        match self.axes[..self.count].last_mut() {
            Some(inner)
                if axis.left == inner.left * inner.extent && axis.right == inner.right * inner.extent =>
            {
                inner.extent *= axis.extent;
            }
            _ => {
                self.axes[self.count] = axis;
                self.count += 1;
            }
        }
    }

    /// How many axes are left.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// One of the axes, innermost first, or the single one behind them.
    pub(crate) fn axis(&self, level: usize) -> Axis {
        self.axes[level]
    }

    /// Stretches along the axis `level`, of at most `most` steps, that cover these output elements, as far as
    /// they are whole steps along it. Not a function that calls another: that would be compiled without the
    /// vector instructions of who calls it.
    #[inline(always)]
    pub(crate) fn stretches(&self, (level, most): (usize, usize), elements: Range<usize>) -> Stretches<'_> {
        let end = elements.end.min(self.elements);
        let unit: usize = self.axes[..level].iter().map(|axis| axis.extent).product();
        let axes = &self.axes[level..self.count.max(level + 1)];
        let (at, position) = if elements.start < end {
            self.place(axes, elements.start, unit)
        } else {
            // Behind the end, so that none comes.
            (
                Stretch {
                    output: end,
                    ..Stretch::default()
                },
                [0; MOST_AXES],
            )
        };
        Stretches {
            axes,
            unit,
            most,
            end,
            at,
            position,
        }
    }

    /// Where an output element is, and which step it is along each of `axes`.
    fn place(&self, axes: &[Axis], output: usize, unit: usize) -> (Stretch, [usize; MOST_AXES]) {
        let mut at = Stretch {
            output,
            left: 0,
            right: 0,
            steps: 0,
        };
        let mut position = [0; MOST_AXES];
        let mut rest = output / unit;
        for (axis, step) in axes.iter().zip(&mut position) {
            *step = rest % axis.extent;
            rest /= axis.extent;
            at.left += *step * axis.left;
            at.right += *step * axis.right;
        }
        (at, position)
    }
}

/// See [`Walk::stretches`].
pub(crate) struct Stretches<'a> {
    axes: &'a [Axis],
    /// Elements of a step.
    unit: usize,
    most: usize,
    /// Behind the last element.
    end: usize,
    /// Where the next one begins.
    at: Stretch,
    position: [usize; MOST_AXES],
}

impl Iterator for Stretches<'_> {
    type Item = Stretch;

    #[inline(always)]
    fn next(&mut self) -> Option<Stretch> {
        let at = &mut self.at;
        if at.output + self.unit > self.end {
            return None;
        }
        at.steps = (self.axes[0].extent - self.position[0])
            .min((self.end - at.output) / self.unit)
            .min(self.most);
        let stretch = *at;
        at.output += at.steps * self.unit;
        advance(self.axes, &mut self.position, at);
        Some(stretch)
    }
}

/// Moves the operands of a stretch behind it.
#[inline(always)]
fn advance(axes: &[Axis], position: &mut [usize; MOST_AXES], at: &mut Stretch) {
    let mut steps = at.steps;
    for (axis, position) in axes.iter().zip(position) {
        *position += steps;
        at.left += steps * axis.left;
        at.right += steps * axis.right;
        if *position < axis.extent {
            break;
        }
        at.left -= axis.extent * axis.left;
        at.right -= axis.extent * axis.right;
        *position = 0;
        steps = 1;
    }
}

/// Calls `each` for runs that cover `output`, to which `left` and `right` broadcast.
pub(crate) fn for_each_run(
    output: &Shape,
    left: &Shape,
    right: &Shape,
    mut each: impl FnMut(Run),
) -> Result<(), OpError> {
    let walk = Walk::new(output, left, right)?;
    let inner = walk.axis(0);
    for stretch in walk.stretches((0, usize::MAX), 0..walk.elements) {
        each(Run {
            length: stretch.steps,
            output: stretch.output,
            left: stretch.left,
            right: stretch.right,
            left_moves: inner.left != 0,
            right_moves: inner.right != 0,
        });
    }
    Ok(())
}

/// Applies `compute` to every pair of elements of inputs 0 and 1, broadcast, into output 0.
pub(super) fn binary<T: bytemuck::Pod, U: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(T, T) -> U,
) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let (left_data, right_data) = (left.data::<T>()?, right.data::<T>()?);
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let data = output.into_data::<U>()?;
    if left.shape == right.shape {
        for ((result, left), right) in data.iter_mut().zip(left_data).zip(right_data) {
            *result = compute(*left, *right);
        }
        return Ok(());
    }
    for_each_run(&shape, &left.shape, &right.shape, |run| {
        let results = data[run.output..][..run.length].iter_mut();
        match (run.left_moves, run.right_moves) {
            (true, true) => {
                let (lefts, rights) = (&left_data[run.left..], &right_data[run.right..]);
                for ((result, left), right) in results.zip(lefts).zip(rights) {
                    *result = compute(*left, *right);
                }
            }
            (true, false) => {
                let right = right_data[run.right];
                for (result, left) in results.zip(&left_data[run.left..]) {
                    *result = compute(*left, right);
                }
            }
            (false, true) => {
                let left = left_data[run.left];
                for (result, right) in results.zip(&right_data[run.right..]) {
                    *result = compute(left, *right);
                }
            }
            (false, false) => {
                let value = compute(left_data[run.left], right_data[run.right]);
                results.for_each(|result| *result = value);
            }
        }
    })?;
    Ok(())
}

/// The same for a function of floats.
pub(super) fn binary_float<T: Float>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(f32, f32) -> f32,
) -> Result<(), KernelError> {
    binary::<T, T>(context, |left, right| {
        T::from_f32(compute(left.to_f32(), right.to_f32()))
    })
}

/// Applies `compute` to every element of input 0, into output 0.
pub(super) fn unary<T: bytemuck::Pod, U: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(T) -> U,
) -> Result<(), KernelError> {
    let input = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<U>(0)?;
    for (result, value) in output.iter_mut().zip(input) {
        *result = compute(*value);
    }
    Ok(())
}

/// The same for a function of floats.
pub(super) fn unary_float<T: Float>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(f32) -> f32,
) -> Result<(), KernelError> {
    unary::<T, T>(context, |value| T::from_f32(compute(value.to_f32())))
}

/// The lanes of a tensor along one axis: the elements of a lane are `inner` apart, `extent` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Product of the extents before the axis.
    pub(super) outer: usize,
    /// The extent of the axis.
    pub(super) extent: usize,
    /// Product of the extents after the axis.
    pub(super) inner: usize,
}

impl Lanes {
    /// The lanes of `shape` along `axis`, which is inside its rank.
    pub(super) fn along(shape: &Shape, axis: usize) -> Lanes {
        let dims = shape.dims();
        Lanes {
            outer: count_of(&dims[..axis.min(dims.len())]),
            extent: shape.dim(axis) as usize,
            inner: count_of(dims.get(axis + 1..).unwrap_or_default()),
        }
    }

    /// The index of the first element of every lane, in order; nothing if there are no elements.
    pub(super) fn starts(self) -> impl Iterator<Item = usize> {
        let outer = if self.extent == 0 || self.inner == 0 {
            0
        } else {
            self.outer
        };
        let block = self.extent.saturating_mul(self.inner);
        (0..outer).flat_map(move |at| (0..self.inner).map(move |inner| at * block + inner))
    }

    /// The elements of the lane that starts at `start`.
    pub(super) fn lane<T>(self, data: &[T], start: usize) -> impl Iterator<Item = &T> {
        data[start..].iter().step_by(self.inner.max(1)).take(self.extent)
    }

    /// The elements of the lane that starts at `start`, to write.
    pub(super) fn lane_mut<T>(self, data: &mut [T], start: usize) -> impl Iterator<Item = &mut T> {
        data[start..]
            .iter_mut()
            .step_by(self.inner.max(1))
            .take(self.extent)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::Shape;

    use super::{Lanes, Run, Walk, for_each_run};

    fn shape(dims: &[u32]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn runs(output: &[u32], left: &[u32], right: &[u32]) -> Vec<Run> {
        let mut runs = Vec::new();
        for_each_run(&shape(output), &shape(left), &shape(right), |run| runs.push(run)).unwrap();
        runs
    }

    #[test]
    fn equal_shapes_are_one_run() {
        let found = runs(&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].length, 24);
        assert!(found[0].left_moves && found[0].right_moves);
    }

    #[test]
    fn a_vector_over_the_last_axis_is_a_run_for_each_row() {
        let found = runs(&[2, 3, 4], &[2, 3, 4], &[4]);
        assert_eq!(found.len(), 6);
        assert_eq!(
            found[5],
            Run {
                length: 4,
                output: 20,
                left: 20,
                right: 0,
                left_moves: true,
                right_moves: true
            }
        );
    }

    #[test]
    fn single_elements_on_both_sides_cover_everything() {
        assert_eq!(runs(&[1, 1], &[1], &[1, 1]).len(), 1);
        assert_eq!(runs(&[], &[], &[]).len(), 1);
        assert_eq!(runs(&[0, 3], &[0, 3], &[3]), []);
        let crossed = runs(&[2, 3], &[2, 1], &[3]);
        assert_eq!((crossed.len(), crossed[1].left, crossed[1].right), (2, 1, 0));
        assert!(!crossed[1].left_moves && crossed[1].right_moves);
    }

    #[test]
    fn extents_beside_a_zero_may_be_of_any_size() {
        let largest = i32::MAX as u32;
        let none = [0, largest, largest, largest];
        assert_eq!(runs(&none, &none, &none), []);
        assert_eq!(runs(&none, &none, &[1]), []);
        assert_eq!(runs(&none, &[largest, 1], &none), []);
    }

    #[test]
    fn a_walk_can_begin_and_end_anywhere() {
        let output = shape(&[2, 3, 4, 5]);
        let walk = Walk::new(&output, &shape(&[2, 1, 4, 1]), &shape(&[3, 1, 5])).unwrap();
        let places = |level, unit, elements| {
            let mut places = Vec::new();
            let (axis, mut next) = (walk.axis(level), std::ops::Range::<usize>::clone(&elements).start);
            for stretch in walk.stretches((level, 4), elements) {
                assert_eq!(stretch.output, next);
                next += stretch.steps * unit;
                places.extend(
                    (0..stretch.steps)
                        .map(|step| (stretch.left + step * axis.left, stretch.right + step * axis.right)),
                );
            }
            places
        };
        let all = places(0, 1, 0..120);
        assert_eq!((all.len(), all[119], all[66]), (120, (7, 14), (5, 1)));
        for start in 0..120 {
            assert_eq!(places(0, 1, start..120), all[start..]);
            assert_eq!(places(0, 1, 0..start), all[..start]);
        }
        let rows = places(1, 5, 0..120);
        assert!(all.iter().step_by(5).eq(&rows));
        assert_eq!(places(1, 5, 15..100), rows[3..20]);
    }

    #[test]
    fn lanes_start_at_every_combination_of_the_other_axes() {
        let lanes = Lanes::along(&shape(&[2, 3, 2]), 1);
        assert_eq!(lanes.starts().collect::<Vec<_>>(), [0, 1, 6, 7]);
        let data: Vec<u32> = (0..12).collect();
        assert_eq!(lanes.lane(&data, 7).copied().collect::<Vec<_>>(), [7, 9, 11]);
        assert_eq!(Lanes::along(&shape(&[2, 0]), 1).starts().count(), 0);
        assert_eq!(Lanes::along(&shape(&[4, 0, 3]), 0).starts().count(), 0);
    }
}
