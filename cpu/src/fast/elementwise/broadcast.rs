//! Element-wise operations on two operands whose shapes broadcast, in long loops by all threads.
//!
//! Neighbouring axes along which both operands move alike are one. Where the innermost one is long, it is
//! computed for each step of the others, with an operand that does not move along it as a single value. Where
//! it is short, as of images with three channels, several rows of it are computed at once: what is repeated
//! or stretched along them is laid out first.

use bytemuck::Pod;

use crate::fast::matmul::tile::COLUMNS;
use crate::fast::partition;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::kernels::broadcast::Walk;
use crate::threads::{Cost, Team};

/// From this many elements on, a row is computed by itself.
const LONG: usize = 128;

/// Elements that are laid out at a time.
const ROOM: usize = 4 * LONG;

/// An operand of neighbouring elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) enum Operand<'a, T> {
    /// Each has its own.
    Each(&'a [T]),
    /// One serves all.
    One(T),
}

/// What is computed of two elements.
pub(in crate::fast) trait Pairwise<T>: Sync {
    /// Computes neighbouring elements; to be marked `#[inline(always)]`.
    fn compute<S: Instructions>(&self, simd: S, operands: (Operand<'_, T>, Operand<'_, T>), output: &mut [T]);
}

/// Computes all elements of an output, each of which takes about as long as moving so many `bytes`.
pub(in crate::fast) fn run<T: Pod + Send + Sync>(
    pairwise: &impl Pairwise<T>,
    walk: &Walk,
    (left, right): (&[T], &[T]),
    output: &mut [T],
    (team, bytes): (&Team<'_>, usize),
) {
    if output.is_empty() {
        return;
    }
    let cost = Cost::of_bytes(bytes * output.len());
    let unit = if has_short_rows(walk) {
        walk.axis(0).extent
    } else {
        COLUMNS
    };
    partition::for_each_part((team, cost), (output, unit), |elements, output| {
        dispatch(Part {
            pairwise,
            walk,
            left,
            right,
            first: elements.start,
            output,
        });
    });
}

/// Whether several rows are to be computed at once.
fn has_short_rows(walk: &Walk) -> bool {
    walk.count() > 1 && walk.axis(0).extent < LONG
}

/// Some neighbouring elements of an output: whole rows, if these are short.
struct Part<'a, T, P> {
    pairwise: &'a P,
    walk: &'a Walk,
    left: &'a [T],
    right: &'a [T],
    /// Which of the output's elements is the first.
    first: usize,
    output: &'a mut [T],
}

impl<T: Pod, P: Pairwise<T>> Work for Part<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let inner = self.walk.axis(0);
        // A step is an element, or a row of some.
        let (level, step, most) = if has_short_rows(self.walk) {
            (1, inner.extent, ROOM / inner.extent)
        } else {
            (0, 1, usize::MAX)
        };
        let outer = self.walk.axis(level);
        let mut left = Laid::new(self.left, step, [inner.left, outer.left]);
        let mut right = Laid::new(self.right, step, [inner.right, outer.right]);
        let elements = self.first..self.first + self.output.len();
        for stretch in self.walk.stretches((level, most), elements) {
            let operands = (
                left.steps(stretch.left, stretch.steps),
                right.steps(stretch.right, stretch.steps),
            );
            let output = &mut self.output[stretch.output - self.first..];
            self.pairwise
                .compute(simd, operands, &mut output[..stretch.steps * step]);
        }
    }
}

/// How an operand serves the elements of neighbouring steps.
#[derive(Clone, Copy)]
enum Form {
    Each,
    One,
    /// The same row serves every step.
    Repeated,
    /// One element serves a whole step, the next one the next.
    Stretched,
}

/// An operand with room to lay it out as it serves several steps.
struct Laid<'a, T> {
    data: &'a [T],
    /// Elements of a step.
    step: usize,
    form: Form,
    room: [T; ROOM],
    /// Where the row begins that the room repeats, and how often.
    repeated: Option<(usize, usize)>,
}

impl<'a, T: Pod> Laid<'a, T> {
    /// An operand that moves so far with each element of a step, and with each step.
    #[inline(always)]
    fn new(data: &'a [T], step: usize, moves: [usize; 2]) -> Laid<'a, T> {
        Laid {
            data,
            step,
            form: match moves.map(|by| by > 0) {
                [true, true] => Form::Each,
                [false, false] => Form::One,
                [true, false] => Form::Repeated,
                // By one: it has no axes further in.
                [false, true] => Form::Stretched,
            },
            room: [T::zeroed(); ROOM],
            repeated: None,
        }
    }

    /// What serves the elements of so many steps, from `at` on.
    #[inline(always)]
    fn steps(&mut self, at: usize, count: usize) -> Operand<'_, T> {
        let elements = count * self.step;
        match self.form {
            Form::Each => return Operand::Each(&self.data[at..][..elements]),
            Form::One => return Operand::One(self.data[at]),
            Form::Repeated => self.repeat(at, count),
            Form::Stretched => {
                let rows = self.room.chunks_exact_mut(self.step);
                for (row, value) in rows.zip(&self.data[at..][..count]) {
                    row.fill(*value);
                }
            }
        }
        Operand::Each(&self.room[..elements])
    }

    /// Has the room repeat a row, unless it does.
    #[inline(always)]
    fn repeat(&mut self, at: usize, count: usize) {
        if self
            .repeated
            .is_some_and(|(held, times)| held == at && times >= count)
        {
            return;
        }
        let row = &self.data[at..][..self.step];
        for copy in self.room.chunks_exact_mut(self.step).take(count) {
            copy.copy_from_slice(row);
        }
        self.repeated = Some((at, count));
    }
}

#[cfg(test)]
#[path = "broadcast_tests.rs"]
mod tests;
