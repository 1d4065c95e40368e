//! Has elements of a result pass through several element-wise operations, some at a time: what is between the
//! operations stays in the first-level cache.

use std::ops::Range;

use super::chain::Function;
use super::elementwise::Combine;
use super::elementwise::broadcast::Operand;
use super::elementwise::unary::Apply;
use super::elementwise::values::clamp;
use super::padded_row::PaddedRow;
use super::simd::{Instructions, Work};

/// Most elements that pass through at a time.
pub(super) const MOST_ELEMENTS: usize = 512;

/// Most results that are waiting to be read at a time.
pub(super) const SLOTS: usize = 4;

/// Most operands that come from outside.
pub(super) const SOURCES: usize = 8;

/// Most operands among those whose elements are a row.
pub(super) const ROWS: usize = 2;

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Among the results that are waiting.
    Slot(usize),
    /// An operand from outside with as many elements as the result.
    Each(usize),
    /// An operand from outside with one element.
    One(usize),
    /// Among the rows.
    Row(usize),
    /// An operand from outside whose rows are shorter than the result's.
    Shorter(usize, PaddedRow),
}

/// One of the operations, or some that one function computes. The last one's result is that of all.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub(super) function: Function,
    pub(super) inputs: Vec<Place>,
    /// Where its result waits.
    pub(super) slot: usize,
}

/// The operands from outside, by their numbers.
pub(super) type Sources<'a> = [&'a [f32]; SOURCES];

/// Takes the elements of a result, some at a time.
pub(super) trait Results {
    /// Where the next ones, so many, are to be written.
    fn next(&mut self, count: usize) -> &mut [f32];
    /// They are there.
    fn are_written(&mut self, count: usize);
}

/// Keeps them where they are written.
impl Results for &mut [f32] {
    #[inline(always)]
    fn next(&mut self, count: usize) -> &mut [f32] {
        &mut self[..count]
    }

    #[inline(always)]
    fn are_written(&mut self, count: usize) {
        if let Some(rest) = std::mem::take(self).get_mut(count..) {
            *self = rest;
        }
    }
}

/// Has elements pass through the operations.
pub(super) struct Pass<'a, R> {
    pub(super) instructions: &'a [Instruction],
    /// Which of the operands from outside are rows.
    pub(super) rows: &'a [usize],
    /// How many elements pass through at a time.
    pub(super) block: usize,
    pub(super) sources: &'a Sources<'a>,
    /// Which elements of the result. Rows begin with the first.
    pub(super) elements: Range<usize>,
    pub(super) results: R,
}

/// Elements that are together in a pass, at the start of a line, so that no vector lies across two.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Elements([f32; MOST_ELEMENTS]);

impl Elements {
    const ZERO: Elements = Elements([0.0; MOST_ELEMENTS]);
}

/// What is where when some elements pass.
struct Stand<'a> {
    sources: &'a Sources<'a>,
    /// Rows repeated as often as they are needed.
    rows: &'a [Elements; ROWS],
    /// The slots before the one that is written, and those behind it.
    slots: (&'a [Elements], &'a [Elements]),
    /// Which elements of the result pass.
    passing: Range<usize>,
}

impl<'a> Stand<'a> {
    /// The elements of an operand that serve those that pass, or the one that does.
    #[inline(always)]
    fn operand(&self, place: Place) -> Result<&'a [f32], f32> {
        let elements = match place {
            Place::Each(source) => return Ok(&self.sources[source][self.passing.clone()]),
            Place::One(source) => return Err(self.sources[source][0]),
            Place::Shorter(source, row) => {
                let [start, end] =
                    [self.passing.start, self.passing.end].map(|at| at / row.padded * row.length);
                return Ok(&self.sources[source][start..end]);
            }
            Place::Row(row) => &self.rows[row],
            Place::Slot(slot) => {
                let (before, behind) = self.slots;
                match slot.checked_sub(before.len()) {
                    None => &before[slot],
                    Some(distance) => &behind[distance - 1],
                }
            }
        };
        Ok(&elements.0[..self.passing.len()])
    }

    #[inline(always)]
    fn compute<S: Instructions>(&self, simd: S, instruction: &Instruction, output: &mut [f32]) {
        let left = self.operand(instruction.inputs[0]);
        match instruction.function {
            Function::Unary(unary) => Apply {
                unary,
                input: left.unwrap_or_default(),
                output,
            }
            .run(simd),
            Function::FloorOfSum(range) => {
                let value = left.unwrap_or_default();
                let right = self.operand(instruction.inputs[1]);
                floor_of_sum(value, right, range, output);
            }
            Function::Round => {
                let one = |number: usize| {
                    let place = instruction.inputs.get(number)?;
                    self.operand(*place).err()
                };
                let addends = [1, 2].map(|number| one(number).unwrap_or_default());
                round(left.unwrap_or_default(), (one(3).unwrap_or(1.0), addends), output);
            }
            Function::Pad(row) => pad(left.unwrap_or_default(), row, output),
            Function::Binary(binary, range) => Combine {
                binary,
                left: left.map_or_else(Operand::One, Operand::Each),
                right: self
                    .operand(instruction.inputs[1])
                    .map_or_else(Operand::One, Operand::Each),
                output,
                range,
            }
            .run(simd),
        }
    }
}

/// Computes [`Function::FloorOfSum`].
#[inline(always)]
fn floor_of_sum(values: &[f32], right: Result<&[f32], f32>, (low, high): (f32, f32), output: &mut [f32]) {
    let results = output.iter_mut().zip(values);
    match right {
        Ok(each) => {
            for ((result, value), addend) in results.zip(each) {
                *result = (clamp(*value, low, high) + addend).floor();
            }
        }
        Err(one) => {
            for (result, value) in results {
                *result = (clamp(*value, low, high) + one).floor();
            }
        }
    }
}

/// Computes [`Function::Round`].
#[inline(always)]
fn round(values: &[f32], (scale, [addend, of_negative]): (f32, [f32; 2]), output: &mut [f32]) {
    let results = output.iter_mut().zip(values);
    if addend == of_negative && (0.0..1.0).contains(&addend) && addend.is_sign_positive() {
        // Of an element and its negative the one that is not positive becomes 0. Adding 0 makes -0 what a
        // difference is.
        for (result, value) in results {
            let value = value * scale;
            *result = (value.abs() + addend).floor().copysign(value) + 0.0;
        }
        return;
    }
    for (result, value) in results {
        let value = value * scale;
        let floor = |value: f32, addend: f32| (clamp(value, 0.0, f32::INFINITY) + addend).floor();
        *result = floor(value, addend) - floor(-value, of_negative);
    }
}

/// Computes [`Function::Pad`].
#[inline(always)]
fn pad(values: &[f32], row: PaddedRow, output: &mut [f32]) {
    let rows = values.chunks_exact(row.length);
    // All at once: what fills the few that are around each row is a call.
    output.fill(0.0);
    for (values, output) in rows.zip(output.chunks_exact_mut(row.padded)) {
        let middle = &mut output[row.before..][..row.length];
        // A loop of its own, which has no call for a few vectors.
        for (to, value) in middle.iter_mut().zip(values) {
            *to = *value;
        }
    }
}

impl<R> Pass<'_, R> {
    /// The rows, as often as fits the elements that pass together.
    #[inline(always)]
    fn rows(&self) -> [Elements; ROWS] {
        let mut rows = [Elements::ZERO; ROWS];
        for (repeated, source) in rows.iter_mut().zip(self.rows) {
            let row = self.sources[*source];
            let needed = self.block.min(self.elements.len());
            for part in repeated.0[..needed].chunks_mut(row.len()) {
                part.copy_from_slice(&row[..part.len()]);
            }
        }
        rows
    }
}

impl<R: Results> Work for Pass<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, simd: S) {
        let Some((last, before)) = self.instructions.split_last() else {
            return;
        };
        let rows = self.rows();
        let mut slots = [Elements::ZERO; SLOTS];
        for first in self.elements.clone().step_by(self.block) {
            let passing = first..self.elements.end.min(first + self.block);
            let count = passing.len();
            for instruction in before {
                let (earlier, rest) = slots.split_at_mut(instruction.slot);
                if let Some((slot, behind)) = rest.split_first_mut() {
                    let written = &mut slot.0[..count];
                    Stand {
                        sources: self.sources,
                        rows: &rows,
                        slots: (earlier, behind),
                        passing: passing.clone(),
                    }
                    .compute(simd, instruction, written);
                }
            }
            // It writes to no slot: all of them are before that one.
            Stand {
                sources: self.sources,
                rows: &rows,
                slots: (&slots, &[]),
                passing,
            }
            .compute(simd, last, self.results.next(count));
            self.results.are_written(count);
        }
    }
}
