//! Element-wise operations on 32-bit floats that follow each other, computed together: some elements at a
//! time pass through all of them, so that what is between the operations stays in the first-level cache and
//! is no tensor. PAD of rows, as where networks add to a tensor one with fewer channels, is one of them.

use std::ops::Range;

use super::broadcast::Operand;
use super::candidate::Candidates;
use super::chain::{Extent, Function, Link, joined};
use super::elementwise::Combine;
use super::padded_row::PaddedRow;
use super::simd::{Instructions, Work, dispatch};
use super::unary::{Apply, Unary};
use super::values::clamp;
use super::{FusedStep, partition};
use crate::kernel::{KernelContext, KernelError};
use crate::plan::Declared;
use crate::plan::cost::MOST_FUSED;
use crate::threads::{Cost, Team};

/// Most elements that pass through at a time.
pub(super) const MOST_ELEMENTS: usize = 512;

/// Most results that are waiting to be read at a time.
const SLOTS: usize = 4;

/// Most operands that come from outside.
const SOURCES: usize = 8;

/// Most operands among those whose elements are a row.
const ROWS: usize = 2;

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
enum Place {
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
struct Instruction {
    function: Function,
    inputs: Vec<Place>,
    /// Where its result waits.
    slot: usize,
}

/// An operand from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    operand: u32,
    /// How many elements it has.
    length: usize,
    extent: Extent,
}

impl Source {
    /// Which of its elements serve some of the result's.
    fn serving(&self, results: Range<usize>) -> Range<usize> {
        match self.extent {
            Extent::Each => results,
            Extent::One | Extent::Row(_) => 0..self.length,
            Extent::Shorter(row) => {
                results.start / row.padded * row.length..results.end / row.padded * row.length
            }
        }
    }
}

/// Operations that are computed together.
#[derive(Clone, Debug)]
pub(super) struct Fused {
    instructions: Vec<Instruction>,
    /// How many operations they are.
    operations: usize,
    sources: Vec<Source>,
    /// Which of them are rows.
    rows: Vec<usize>,
    output: u32,
    /// How many elements pass through at a time: whole rows, if a row is repeated or padded.
    block: usize,
}

impl Fused {
    /// As many of the first operations as can be computed together, at least two.
    pub(super) fn of(candidates: &Candidates<'_, '_>) -> Option<Fused> {
        let elements = candidates.all.first()?.elements?;
        let all = candidates.all.iter();
        let alike = all.take_while(|candidate| candidate.elements == Some(elements));
        let declared = alike.map(|candidate| candidate.declared);
        Fused::longest(declared, (elements, 2), |operand, count| {
            candidates.ends_within(operand, count)
        })
    }

    /// As many of the first of `operations` as can be computed together, at least `least`. Each is known to
    /// give `elements` elements; `ends_within(operand, count)` says whether no other than the first `count`
    /// read an operand.
    pub(super) fn longest<'d>(
        operations: impl Iterator<Item = Declared<'d>>,
        (elements, least): (usize, usize),
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<Fused> {
        let links = operations.take(MOST_FUSED);
        let links = links.map_while(|operation| Link::of(&operation, elements));
        let links: Vec<Link> = links.collect();
        (least..=links.len()).rev().find_map(|count| {
            let inner = &links[..count - 1];
            let is_closed = inner.iter().all(|link| ends_within(link.output, count));
            is_closed.then(|| Fused::new(&links[..count], elements)).flatten()
        })
    }

    /// All of these; `None` if they need more slots or operands than there are.
    fn new(links: &[Link], elements: usize) -> Option<Fused> {
        let operations = links.len();
        let links = joined(links);
        let mut fused = Fused {
            instructions: Vec::with_capacity(links.len()),
            operations,
            sources: Vec::new(),
            rows: Vec::new(),
            output: links.last()?.output,
            block: MOST_ELEMENTS,
        };
        let mut row = None;
        // By slot: whose result waits there.
        let mut waiting = [None; SLOTS];
        for (
            number,
            Link {
                function,
                inputs,
                output,
            },
        ) in links.iter().enumerate()
        {
            let mut places = Vec::with_capacity(inputs.len());
            for &(operand, extent) in inputs {
                if let Some(length) = extent.row()
                    && *row.get_or_insert(length) != length
                {
                    return None;
                }
                let slot = waiting.iter().position(|waiting| *waiting == Some(operand));
                places.push(match slot {
                    Some(slot) => Place::Slot(slot),
                    None => fused.place(operand, extent, elements)?,
                });
            }
            let is_read_from = |from: usize, operand: u32| {
                let mut later = links[from..].iter().flat_map(|link| &link.inputs);
                later.any(|(input, _)| *input == operand)
            };
            // What this one reads last still stands while it is computed.
            let slot = waiting
                .iter()
                .position(|waiting| waiting.is_none_or(|operand| !is_read_from(number, operand)))?;
            waiting[slot] = Some(*output);
            fused.instructions.push(Instruction {
                function: *function,
                inputs: places,
                slot,
            });
        }
        if let Some(row) = row {
            fused.block = MOST_ELEMENTS / row * row;
        }
        (fused.block > 0).then_some(fused)
    }

    /// The place of an operand from outside.
    fn place(&mut self, operand: u32, extent: Extent, elements: usize) -> Option<Place> {
        let source = Source {
            operand,
            length: match extent {
                Extent::Each => elements,
                Extent::One => 1,
                Extent::Shorter(row) => elements / row.padded * row.length,
                Extent::Row(length) => length,
            },
            extent,
        };
        let number = number_of(&mut self.sources, source, SOURCES)?;
        match extent {
            Extent::Each => Some(Place::Each(number)),
            Extent::One => Some(Place::One(number)),
            Extent::Shorter(row) => Some(Place::Shorter(number, row)),
            Extent::Row(_) => number_of(&mut self.rows, number, ROWS).map(Place::Row),
        }
    }

    /// Whether each element of the result has its own of this operand from outside.
    pub(super) fn passes(&self, operand: u32) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.operand == operand && source.extent == Extent::Each)
    }

    /// Whether one of the operations makes integers.
    pub(super) fn rounds(&self) -> bool {
        let mut functions = self.instructions.iter().map(|instruction| instruction.function);
        functions.any(|function| {
            matches!(
                function,
                Function::Round | Function::FloorOfSum(_) | Function::Unary(Unary::Floor)
            )
        })
    }

    /// How many operations these are.
    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    /// The operand that they compute.
    pub(super) fn output(&self) -> u32 {
        self.output
    }

    /// Computes the result out of the operands from outside; says whether they were there.
    fn compute<'v>(
        &self,
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
        output: &mut [u8],
        team: &Team<'_>,
    ) -> bool {
        let (Some(sources), Ok(output)) = (self.sources(bytes, None), bytemuck::try_cast_slice_mut(output))
        else {
            return false;
        };
        let read: usize = self
            .sources
            .iter()
            .map(|source| source.length * size_of::<f32>())
            .sum();
        let threads = team.threads_for(Cost::of_bytes(read + size_of_val(output)));
        let grid = partition::elements(threads, output.len(), self.block);
        let none: &mut [u8] = &mut [];
        team.for_each_block(threads, &grid, (output, none), |mut block, _| {
            self.pass(&sources, block.columns(), block.all());
        });
        true
    }

    /// The operands from outside, but for one that is to come with each part of the result.
    pub(super) fn sources<'v>(
        &self,
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
        coming: Option<u32>,
    ) -> Option<Sources<'v>> {
        let mut sources = [&[][..]; SOURCES];
        for (elements, source) in sources.iter_mut().zip(&self.sources) {
            if coming == Some(source.operand) {
                continue;
            }
            *elements = bytemuck::try_cast_slice(bytes(source.operand)?).ok()?;
            if elements.len() != source.length {
                return None;
            }
        }
        Some(sources)
    }

    /// Computes the elements of the result from `first` on, where a row begins, out of as many of the operand
    /// that was to come.
    pub(super) fn run_part(
        &self,
        sources: &Sources<'_>,
        (coming, values): (u32, &[f32]),
        (first, output): (usize, &mut [f32]),
    ) {
        let mut parts = [&[][..]; SOURCES];
        for ((part, elements), source) in parts.iter_mut().zip(sources).zip(&self.sources) {
            *part = if source.operand == coming {
                values
            } else {
                &elements[source.serving(first..first + output.len())]
            };
        }
        self.pass(&parts, 0..output.len(), output);
    }

    /// Computes elements of the result, where the first begins a row, out of the operands from outside.
    #[inline(always)]
    pub(super) fn pass(&self, sources: &Sources<'_>, elements: Range<usize>, results: impl Results) {
        dispatch(Pass {
            fused: self,
            sources,
            elements,
            results,
        });
    }
}

impl FusedStep for Fused {
    fn name(&self) -> &'static str {
        "f32 element-wise, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let inputs = &context.inputs;
        let output = context.outputs.bytes(0);
        Ok(output.is_some_and(|output| self.compute(|at| inputs.operand(at), output, context.team)))
    }
}

/// The operands from outside, by their numbers.
pub(super) type Sources<'a> = [&'a [f32]; SOURCES];

/// The number of an item in a list that it is added to, unless it is there or there are `most`.
fn number_of<T: PartialEq>(list: &mut Vec<T>, item: T, most: usize) -> Option<usize> {
    let known = list.iter().position(|known| *known == item);
    if known.is_none() && list.len() < most {
        list.push(item);
        return Some(list.len() - 1);
    }
    known
}

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
struct Pass<'a, R> {
    fused: &'a Fused,
    sources: &'a Sources<'a>,
    /// Which elements of the result. Rows begin with the first.
    elements: Range<usize>,
    results: R,
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
        for (repeated, source) in rows.iter_mut().zip(&self.fused.rows) {
            let row = self.sources[*source];
            let needed = self.fused.block.min(self.elements.len());
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
        let Some((last, before)) = self.fused.instructions.split_last() else {
            return;
        };
        let rows = self.rows();
        let mut slots = [Elements::ZERO; SLOTS];
        for first in self.elements.clone().step_by(self.fused.block) {
            let passing = first..self.elements.end.min(first + self.fused.block);
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

#[cfg(test)]
#[path = "fused_tests.rs"]
mod tests;
