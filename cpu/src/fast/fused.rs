//! Element-wise operations on 32-bit floats that follow each other, computed together: some elements at a
//! time pass through all of them, so that what is between the operations stays in the first-level cache and
//! is no tensor. PAD of rows, as where networks add to a tensor one with fewer channels, is one of them.

use std::ops::Range;

use super::candidate::Candidates;
use super::chain::{Extent, Function, Link, joined};
use super::elementwise::unary::Unary;
use super::pass::{Instruction, MOST_ELEMENTS, Pass, Place, ROWS, Results, SLOTS, SOURCES, Sources};
use super::simd::dispatch;
use super::{FusedStep, partition};
use crate::kernel::{KernelContext, KernelError};
use crate::plan::Declared;
use crate::plan::cost::MOST_FUSED;
use crate::threads::{Cost, Team};

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
        let cost = Cost::of_bytes(read + size_of_val(output));
        partition::for_each_part((team, cost), (output, self.block), |elements, output| {
            self.pass(&sources, elements, output);
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
            instructions: &self.instructions,
            rows: &self.rows,
            block: self.block,
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

/// The number of an item in a list that it is added to, unless it is there or there are `most`.
fn number_of<T: PartialEq>(list: &mut Vec<T>, item: T, most: usize) -> Option<usize> {
    let known = list.iter().position(|known| *known == item);
    if known.is_none() && list.len() < most {
        list.push(item);
        return Some(list.len() - 1);
    }
    known
}

#[cfg(test)]
#[path = "fused_tests.rs"]
mod tests;
