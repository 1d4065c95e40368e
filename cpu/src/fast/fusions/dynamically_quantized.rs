//! Layers of floats whose weights are 8-bit integers and whose input was rounded to integers just before, as
//! networks have them that were given small weights and nothing else: what rounds, the layer, and what scales
//! its result are computed together, and bytes are multiplied in place of floats.
//!
//! Whether the values that come out of the element-wise operations are integers that fit bytes is looked at
//! in each execution. Where they are not, it is computed operation by operation. Sums of bytes are exact;
//! those of floats are as long as none is beyond 2^24, and then the results are the same bits.

use std::sync::Arc;

use nnhal_os::buffer::OutOfMemory;

use crate::fast::FusedStep;
use crate::fast::candidate::{Candidate, Candidates};
use crate::fast::chain::{Extent, Function, Link};
use crate::fast::elementwise::binary::Binary;
use crate::fast::fused::Fused;
use crate::fast::layer::Layer;
use crate::fast::matmul::integers::Finish;
use crate::fast::pass::{MOST_ELEMENTS, Results};
use crate::fast::rounding::low_bits;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::scratch::Scratch;
use crate::threads::Team;

/// Operations that are computed together.
#[derive(Debug)]
pub(super) struct DynamicallyQuantized {
    /// What gives the values.
    head: Fused,
    /// How many of these there are.
    inputs: usize,
    layer: Arc<Layer>,
    /// What its result is multiplied with.
    scale: Option<u32>,
    /// What is then added.
    addend: Option<u32>,
    /// What results are then clamped to.
    range: (f32, f32),
}

impl DynamicallyQuantized {
    /// The operations that `head` computes, the first of some, which make integers, with some of those behind
    /// them; and which these are.
    pub(super) fn new(
        head: &Fused,
        candidates: &Candidates<'_, '_>,
    ) -> Option<(DynamicallyQuantized, Vec<usize>)> {
        let mut search = Search {
            candidates,
            found: (0..head.operations()).collect(),
        };
        let (number, layer) = search.layer(head.output())?;
        let integers = layer.integer_layer()?;
        let [rows, columns] = integers.outputs();
        let sizes = (rows * columns, columns);
        let sums = candidates.all[number].output()?;
        let scale = search.binary(Binary::Mul, sums, sizes);
        let scaled = scale.map_or(sums, |(_, output, _)| output);
        let addend = search.binary(Binary::Add, scaled, sizes);
        let dynamically_quantized = DynamicallyQuantized {
            head: head.clone(),
            inputs: integers.inputs(),
            layer: Arc::clone(layer),
            scale: scale.map(|(scale, ..)| scale),
            addend: addend.map(|(addend, ..)| addend),
            range: addend.map_or(Activation::None.range(), |(.., range)| range),
        };
        Some((dynamically_quantized, search.found))
    }

    /// Computes the result out of the operands from outside; says whether it did, which it does if everything
    /// is there and the values are integers that fit bytes.
    fn compute<'v>(
        &self,
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
        output: &mut [u8],
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<bool, OutOfMemory> {
        let Some(layer) = self.layer.integer_layer() else {
            return Ok(false);
        };
        let [rows, columns] = layer.outputs();
        let row = |operand: Option<u32>| match operand {
            None => Some(None),
            Some(operand) => {
                let row: &[f32] = bytemuck::try_cast_slice(bytes(operand)?).ok()?;
                (row.len() == 1 || row.len() == columns).then_some(Some(row))
            }
        };
        let (Some(sources), Some(scale), Some(addend), Ok(output)) = (
            self.head.sources(&bytes, None),
            row(self.scale),
            row(self.addend),
            bytemuck::try_cast_slice_mut::<_, f32>(output),
        ) else {
            return Ok(false);
        };
        if output.len() != rows * columns || self.inputs != layer.inputs() {
            return Ok(false);
        }
        let parted = layer.parted(team);
        let lanes = layer.weights().lanes();
        // In words, of which there are more than enough.
        let [words, values, copies, start, scales, addends] = scratch.carve::<i32, 6>([
            self.inputs.div_ceil(2),
            self.inputs.div_ceil(4),
            parted.copies().div_ceil(4),
            lanes,
            lanes,
            lanes,
        ])?;
        let words: &mut [i16] = &mut bytemuck::cast_slice_mut(words)[..self.inputs];
        let values: &mut [u8] = &mut bytemuck::cast_slice_mut(values)[..self.inputs];
        let mut integers = Integers::new(&mut *words);
        self.head.pass(&sources, 0..self.inputs, &mut integers);
        let Some(zero) = integers.zero_point() else {
            return Ok(false);
        };
        dispatch(Unsigned { words, zero, values });
        layer.weights().start(zero, start);
        let (scales, addends) = (
            bytemuck::cast_slice_mut(scales),
            bytemuck::cast_slice_mut(addends),
        );
        repeat(scale.unwrap_or(&[1.0]), &mut *scales);
        // Which changes nothing, not even -0.
        repeat(addend.unwrap_or(&[-0.0]), &mut *addends);
        let finish = Finish {
            start,
            scale: scales,
            addend: addends,
            range: self.range,
        };
        let copies = bytemuck::cast_slice_mut(copies);
        layer.run(&parted, (values, zero), (output, finish), (copies, team));
        Ok(true)
    }
}

impl FusedStep for DynamicallyQuantized {
    fn name(&self) -> &'static str {
        "integers of floats as bytes, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let inputs = &context.inputs;
        let Some(output) = context.outputs.bytes(0) else {
            return Ok(false);
        };
        let memory = (&mut *context.scratch, context.team);
        Ok(self.compute(|at| inputs.operand(at), output, memory)?)
    }
}

/// Writes a row, or one value for all columns, and leaves what is behind it.
fn repeat(row: &[f32], to: &mut [f32]) {
    match row {
        [one] => to.fill(*one),
        _ => to[..row.len()].copy_from_slice(row),
    }
}

/// Finds what follows.
struct Search<'s, 'd> {
    candidates: &'s Candidates<'s, 'd>,
    /// The operations that belong to these, in ascending order.
    found: Vec<usize>,
}

impl<'s, 'd> Search<'s, 'd> {
    /// The next operation that reads `operand`, and no other does.
    fn reader(&self, operand: u32) -> Option<(usize, &'s Candidate<'d>)> {
        let from = self.found.last().map_or(0, |last| last + 1);
        self.candidates.reader(operand, from)
    }

    /// The layer that takes `operand` for its input.
    fn layer(&mut self, operand: u32) -> Option<(usize, &'s Arc<Layer>)> {
        let (number, following) = self.reader(operand)?;
        let [input, rest @ ..] = &following.declared.operation.inputs[..] else {
            return None;
        };
        let is_input = *input == operand && !rest.contains(&operand);
        let layer = following.layer.as_ref().filter(|_| is_input)?;
        let [rows, columns] = layer.integer_layer()?.outputs();
        if following.elements != rows.checked_mul(columns) {
            return None;
        }
        self.found.push(number);
        Some((number, layer))
    }

    /// The operation that combines `operand`, of so many elements in rows of so many columns, with a row or
    /// one element: the other operand, the result and what that is clamped to.
    fn binary(
        &mut self,
        binary: Binary,
        operand: u32,
        (elements, columns): (usize, usize),
    ) -> Option<(u32, u32, (f32, f32))> {
        let (number, following) = self.reader(operand)?;
        if following.elements != Some(elements) {
            return None;
        }
        let link = Link::of(&following.declared, elements)?;
        let Function::Binary(found, range) = link.function else {
            return None;
        };
        let [(left, _), (right, _)] = link.inputs[..] else {
            return None;
        };
        let (other, extent) = link.inputs[usize::from(left == operand)];
        let is_row = match extent {
            Extent::One => true,
            Extent::Row(length) => length == columns,
            Extent::Each => elements == columns,
            Extent::Shorter(_) => false,
        };
        // Only the last one clamps its results.
        let is_last = binary == Binary::Add || range == Activation::None.range();
        let is_it = found == binary && left != right && is_row && is_last;
        is_it.then(|| {
            self.found.push(number);
            (other, link.output, range)
        })
    }
}

/// Takes values that are integers.
struct Integers<'a> {
    /// Those that are written next.
    floats: [f32; MOST_ELEMENTS],
    /// Where the integers go that have not been written.
    rest: &'a mut [i16],
    least: i32,
    most: i32,
    /// How many were no integers, in any bits.
    others: u32,
}

impl<'a> Integers<'a> {
    fn new(integers: &'a mut [i16]) -> Integers<'a> {
        Integers {
            floats: [0.0; MOST_ELEMENTS],
            rest: integers,
            least: 0,
            most: 0,
            others: 0,
        }
    }

    /// What 0 is if the least value is the byte 0, or 0 if all are positive; `None` if they do not fit bytes
    /// then, or are no integers.
    fn zero_point(&self) -> Option<u8> {
        let spread = self.most.checked_sub(self.least)?;
        let fits = self.others == 0 && spread <= i32::from(u8::MAX);
        u8::try_from(self.least.checked_neg()?).ok().filter(|_| fits)
    }
}

impl Results for &mut Integers<'_> {
    #[inline(always)]
    fn next(&mut self, count: usize) -> &mut [f32] {
        &mut self.floats[..count]
    }

    #[inline(always)]
    fn are_written(&mut self, count: usize) {
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(count);
        self.rest = rest;
        let (mut least, mut most, mut others) = (self.least, self.most, self.others);
        for (to, value) in to.iter_mut().zip(&self.floats) {
            // Of what is no small integer these are bits that make no integer of it again, or one that is far
            // from 0.
            let integer = low_bits(*value);
            others |= u32::from(integer as f32 != *value);
            least = least.min(integer);
            most = most.max(integer);
            *to = integer as i16;
        }
        (self.least, self.most, self.others) = (least, most, others);
    }
}

/// Makes integers bytes.
struct Unsigned<'a> {
    words: &'a [i16],
    zero: u8,
    values: &'a mut [u8],
}

impl Work for Unsigned<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let zero = i16::from(self.zero);
        for (value, word) in self.values.iter_mut().zip(self.words) {
            *value = (word + zero) as u8;
        }
    }
}

#[cfg(test)]
#[path = "dynamically_quantized_tests.rs"]
mod tests;
