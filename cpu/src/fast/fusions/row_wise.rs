//! Operations on floats that are computed row by row: element-wise ones, and means of rows. Layer
//! normalisation is made of them. What is between them is no tensor. That of ViT-tiny takes 0.74 of the time
//! of the operations one by one.

use std::ops::Range;

use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::reduction::reduced_axes;
use nnhal_hal::{OperandType, OperationType, Shape, tflite};

use crate::fast::candidate::{Candidate, Candidates};
use crate::fast::elementwise::Combine;
use crate::fast::elementwise::binary::{Binary, known_range, repeats_along_last_axis};
use crate::fast::elementwise::broadcast::Operand;
use crate::fast::elementwise::unary::{Apply, Unary};
use crate::fast::pass::{SOURCES, Sources};
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::fast::softmax::step::sum;
use crate::fast::{FusedStep, partition};
use crate::kernel::{KernelContext, KernelError};
use crate::plan::Declared;
use crate::plan::cost::MOST_FUSED;
use crate::threads::Cost;

/// Most results that wait to be read at a time: rows, and single values.
const SLOTS: usize = 4;

/// What is computed of a row, or of a value for it.
#[derive(Clone, Copy, Debug)]
enum Function {
    /// The mean of a row's elements.
    Mean,
    Unary(Unary),
    /// With what results are clamped to.
    Binary(Binary, (f32, f32)),
}

/// Which of an operand's elements serve a row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// A row of its own.
    Row,
    /// One element of its own.
    Single,
    /// A row that serves all.
    SameRow,
    /// One element that serves all.
    One,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Among the operands from outside.
    Source(usize, Extent),
    /// Among the rows that wait.
    Row(usize),
    /// Among the single values that wait.
    Single(usize),
}

/// One of the operations.
#[derive(Clone, Debug)]
struct Step {
    function: Function,
    inputs: Vec<Place>,
    /// Whether it computes a row, rather than one value.
    is_row: bool,
    /// Where its result waits, unless it is that of all.
    slot: usize,
}

/// An operation by the operands of its graph.
#[derive(Debug)]
struct Link {
    function: Function,
    inputs: Vec<(u32, Extent)>,
    output: u32,
    is_row: bool,
}

/// Operations that are computed row by row.
#[derive(Debug)]
pub(super) struct RowWise {
    steps: Vec<Step>,
    sources: Vec<(u32, Extent)>,
    rows: usize,
    columns: usize,
}

impl RowWise {
    /// As many of the first operations as can be computed row by row, if there is a mean among them; with how
    /// many these are.
    pub(super) fn longest(candidates: &Candidates<'_, '_>) -> Option<(RowWise, usize)> {
        let shape = shape_of_rows(candidates.all.first()?)?;
        let mut links: Vec<Link> = Vec::new();
        for candidate in candidates.all.iter().take(MOST_FUSED) {
            let computed = |operand| links.iter().find(|link| link.output == operand);
            match Link::of(candidate, &shape, |operand| {
                computed(operand).map(|link| link.is_row)
            }) {
                Some(link) => links.push(link),
                None => break,
            }
        }
        (2..=links.len()).rev().find_map(|count| {
            let (last, inner) = links[..count].split_last()?;
            let is_closed = inner
                .iter()
                .all(|link| candidates.ends_within(link.output, count));
            let has_mean = inner.iter().any(|link| matches!(link.function, Function::Mean));
            (is_closed && has_mean && last.is_row)
                .then(|| Some((RowWise::new(&links[..count], &shape)?, count)))
                .flatten()
        })
    }

    /// All of these; `None` if they need more slots or operands than there are.
    fn new(links: &[Link], shape: &Shape) -> Option<RowWise> {
        let columns = *shape.dims().last()? as usize;
        let mut row_wise = RowWise {
            steps: Vec::with_capacity(links.len()),
            sources: Vec::new(),
            rows: shape.elements().ok()? / columns,
            columns,
        };
        // By slot: whose result waits there.
        let (mut rows, mut singles) = ([None; SLOTS], [None; SLOTS]);
        for (number, link) in links.iter().enumerate() {
            let mut inputs = Vec::with_capacity(link.inputs.len());
            for source in &link.inputs {
                let waits = |slots: &[Option<u32>]| slots.iter().position(|slot| *slot == Some(source.0));
                inputs.push(match (waits(&rows), waits(&singles)) {
                    (Some(slot), _) => Place::Row(slot),
                    (_, Some(slot)) => Place::Single(slot),
                    _ => row_wise.source(*source)?,
                });
            }
            let is_read_from_here = |operand: u32| {
                let mut later = links[number..].iter().flat_map(|link| &link.inputs);
                later.any(|(input, _)| *input == operand)
            };
            // What this one reads last still stands while it is computed.
            let slots = if link.is_row { &mut rows } else { &mut singles };
            let is_free = |slot: &Option<u32>| slot.is_none_or(|operand| !is_read_from_here(operand));
            let slot = slots.iter().position(is_free)?;
            slots[slot] = Some(link.output);
            row_wise.steps.push(Step {
                function: link.function,
                inputs,
                is_row: link.is_row,
                slot,
            });
        }
        Some(row_wise)
    }

    /// The place of an operand from outside.
    fn source(&mut self, source: (u32, Extent)) -> Option<Place> {
        let known = self.sources.iter().position(|known| *known == source);
        let number = known.unwrap_or(self.sources.len());
        if known.is_none() {
            self.sources.push(source);
        }
        (number < SOURCES).then_some(Place::Source(number, source.1))
    }

    /// How many elements of an operand there are.
    fn elements(&self, extent: Extent) -> usize {
        match extent {
            Extent::Row => self.rows * self.columns,
            Extent::Single => self.rows,
            Extent::SameRow => self.columns,
            Extent::One => 1,
        }
    }
}

impl FusedStep for RowWise {
    fn name(&self) -> &'static str {
        "f32 row by row, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let mut sources = [&[][..]; SOURCES];
        for (values, &(operand, extent)) in sources.iter_mut().zip(&self.sources) {
            let bytes = context.inputs.operand(operand);
            match bytes.and_then(|bytes| bytemuck::try_cast_slice::<_, f32>(bytes).ok()) {
                Some(found) if found.len() == self.elements(extent) => *values = found,
                _ => return Ok(false),
            }
        }
        let output = context.outputs.bytes(0);
        let Some(output) = output.and_then(|bytes| bytemuck::try_cast_slice_mut::<_, f32>(bytes).ok()) else {
            return Ok(false);
        };
        if output.len() != self.rows * self.columns {
            return Ok(false);
        }
        let read: usize = sources.iter().map(|source| source.len()).sum();
        let cost = Cost {
            multiply_adds: (self.steps.len() * output.len()) as u64,
            bytes: ((read + output.len()) * size_of::<f32>()) as u64,
        };
        let parts = context.team.parts_for(cost);
        let grid = partition::rows(parts, self.rows, self.columns);
        let threads = grid.most_threads(parts.threads);
        let memory = context.scratch.shares::<f32>(threads, SLOTS * self.columns)?;
        context
            .team
            .for_each_block(threads, &grid, (output, memory), |mut block, memory| {
                dispatch(Rows {
                    row_wise: self,
                    sources: &sources,
                    first: block.first_row(),
                    memory,
                    output: block.all(),
                });
            });
        Ok(true)
    }
}

/// The shape of the rows of which an operation is one of the first: that of its first input that has most
/// elements.
fn shape_of_rows(candidate: &Candidate<'_>) -> Option<Shape> {
    let declared = &candidate.declared;
    let count = declared.operation.inputs.len();
    let shapes = (0..count).filter_map(|number| shape_of(declared, number));
    let shape = shapes.max_by_key(|shape| shape.elements().unwrap_or(0))?;
    (shape.rank() > 1 && *shape.dims().last()? > 1 && shape.elements().ok()? > 0).then_some(shape)
}

/// The shape of an input of floats, if it is known.
fn shape_of(declared: &Declared<'_>, number: usize) -> Option<Shape> {
    let input = declared.input(number)?;
    (input.ty() == OperandType::TENSOR_FLOAT32 && input.shape_known).then_some(input.shape)
}

/// The shape of single values for rows.
fn singles(shape: &Shape) -> Shape {
    let mut singles = *shape;
    if let Some(last) = singles.dims_mut().last_mut() {
        *last = 1;
    }
    singles
}

impl Link {
    /// An operation, if it computes rows of a shape or single values for these. `is_row` says which of the
    /// two an operand is that one of these has computed.
    fn of(candidate: &Candidate<'_>, shape: &Shape, is_row: impl Fn(u32) -> Option<bool>) -> Option<Link> {
        let declared = &candidate.declared;
        let kind = declared.operation.operation_type;
        let (function, count) = if kind == OperationType::MEAN || kind == tflite::MEAN {
            (mean_of_rows(declared)?, 1)
        } else if let Some(unary) = Unary::of(declared) {
            (Function::Unary(unary), 1)
        } else {
            let binary = Binary::of(kind)?;
            (Function::Binary(binary, known_range(binary, declared)?), 2)
        };
        let mut inputs = Vec::with_capacity(count);
        for number in 0..count {
            let operand = *declared.operation.inputs.get(number)?;
            let extent = match is_row(operand) {
                Some(true) => Extent::Row,
                Some(false) => Extent::Single,
                None => extent_in(&shape_of(declared, number)?, shape)?,
            };
            inputs.push((operand, extent));
        }
        let takes = |extent| inputs.iter().any(|(_, input)| *input == extent);
        let is_row = !matches!(function, Function::Mean) && (takes(Extent::Row) || takes(Extent::SameRow));
        let has_own = takes(Extent::Row) || takes(Extent::Single);
        let fits = match function {
            Function::Mean => takes(Extent::Row),
            _ => has_own,
        };
        let results = if is_row { *shape } else { singles(shape) };
        let is_it = fits && candidate.elements == results.elements().ok();
        is_it.then_some(Link {
            function,
            inputs,
            output: candidate.output()?,
            is_row,
        })
    }
}

/// How an operand of a shape serves rows of one.
fn extent_in(operand: &Shape, shape: &Shape) -> Option<Extent> {
    if operand == shape {
        return Some(Extent::Row);
    }
    if operand.elements() == Ok(1) {
        return Some(Extent::One);
    }
    if *operand == singles(shape) {
        return Some(Extent::Single);
    }
    repeats_along_last_axis(shape, shape, operand).then_some(Extent::SameRow)
}

/// [`Function::Mean`], if an operation is the mean along the last axis alone, which is kept.
fn mean_of_rows(declared: &Declared<'_>) -> Option<Function> {
    let context: &dyn OperationContext = declared;
    let rank = shape_of(declared, 0)?.rank();
    let reduced = reduced_axes(context).ok()?;
    let axes = reduced.into_iter().take(rank).enumerate();
    let is_last = axes.fold(true, |is_so, (axis, reduced)| {
        is_so && reduced == (axis + 1 == rank)
    });
    (is_last && context.i32(2).ok()? > 0).then_some(Function::Mean)
}

/// Computes some rows of the result.
struct Rows<'a> {
    row_wise: &'a RowWise,
    sources: &'a Sources<'a>,
    /// Which the first is of all.
    first: usize,
    /// Where rows wait.
    memory: &'a mut [f32],
    output: &'a mut [f32],
}

/// Results that wait to be read.
struct Waiting<'a> {
    rows: [&'a mut [f32]; SLOTS],
    singles: [f32; SLOTS],
}

impl Work for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let columns = self.row_wise.columns;
        let mut memory = self.memory.chunks_exact_mut(columns);
        let mut waiting = Waiting {
            rows: std::array::from_fn(|_| memory.next().unwrap_or_default()),
            singles: [0.0; SLOTS],
        };
        let last = self.row_wise.steps.len() - 1;
        for (row, output) in (self.first..).zip(self.output.chunks_exact_mut(columns)) {
            let elements = row * columns..(row + 1) * columns;
            for (number, step) in self.row_wise.steps.iter().enumerate() {
                let (mut single, mut row) = ([0.0], <&mut [f32]>::default());
                // One call for all three: it is much code.
                let result = match (number == last, step.is_row) {
                    (true, _) => &mut *output,
                    (false, true) => {
                        row = std::mem::take(&mut waiting.rows[step.slot]);
                        &mut *row
                    }
                    (false, false) => &mut single,
                };
                step.compute(simd, self.sources, &waiting, &elements, result);
                match (number == last, step.is_row) {
                    (true, _) => {}
                    (false, true) => waiting.rows[step.slot] = row,
                    (false, false) => waiting.singles[step.slot] = single[0],
                }
            }
        }
    }
}

impl Step {
    /// Computes it for a row, which has these of all elements.
    #[inline(always)]
    fn compute<S: Instructions>(
        &self,
        simd: S,
        sources: &Sources<'_>,
        waiting: &Waiting<'_>,
        elements: &Range<usize>,
        output: &mut [f32],
    ) {
        let operand = |number: usize| match self.inputs[number] {
            Place::Source(source, Extent::Row) => Operand::Each(&sources[source][elements.clone()]),
            Place::Source(source, Extent::SameRow) => Operand::Each(sources[source]),
            Place::Source(source, Extent::Single) => {
                Operand::One(sources[source][elements.start / elements.len()])
            }
            Place::Source(source, Extent::One) => Operand::One(sources[source][0]),
            Place::Row(slot) => Operand::Each(&*waiting.rows[slot]),
            Place::Single(slot) => Operand::One(waiting.singles[slot]),
        };
        let first = operand(0);
        let value;
        let values = match first {
            Operand::Each(values) => values,
            Operand::One(one) => {
                value = [one];
                &value
            }
        };
        match self.function {
            Function::Mean => output[0] = sum(values) / values.len() as f32,
            Function::Unary(unary) => Apply {
                unary,
                input: values,
                output,
            }
            .run(simd),
            Function::Binary(binary, range) => Combine {
                binary,
                left: first,
                right: operand(1),
                output,
                range,
            }
            .run(simd),
        }
    }
}

#[cfg(test)]
#[path = "row_wise_tests.rs"]
mod tests;
