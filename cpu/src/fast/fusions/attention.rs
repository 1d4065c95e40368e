//! Attention of floats: BATCH_MATMUL of queries and keys, element-wise operations, SOFTMAX, and BATCH_MATMUL
//! with values. Some rows of the scores at a time pass through all of them, so that the scores, the largest
//! tensor of such networks, are none. With 1500 places (Whisper-tiny) it takes 0.7 of the time of the
//! operations one by one, which is a fifth of the model's; with 200 about the same time.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::batch_matmul::BatchMatMul;
use nnhal_hal::{OperandType, OperationType};

use crate::fast::FusedStep;
use crate::fast::batch_matmul::is_batch_matmul;
use crate::fast::batch_matmul::parts::{Extents, Rows, cost, for_each_product};
use crate::fast::candidate::{Candidate, Candidates};
use crate::fast::epilogue::Clamp;
use crate::fast::fused::Fused;
use crate::fast::matmul::floats::{MatrixF32, Unpacked};
use crate::fast::matmul::lines::Lines;
use crate::fast::matmul::tile::rows_per_block;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::fast::softmax::step::{exponentials, is_along_last};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::plan::Declared;
use crate::threads::Block;

/// These operations, by the operands of their graph.
#[derive(Debug)]
pub(super) struct Attention {
    query: u32,
    key: u32,
    value: u32,
    /// Queries and keys, which give the scores.
    of_keys: BatchMatMul,
    scores: u32,
    /// What becomes of the scores before they are weights.
    between: Option<Fused>,
    beta: f32,
    /// Weights and values.
    of_values: BatchMatMul,
}

impl Attention {
    /// The first of some operations, with the others that make it attention, and which these are.
    pub(super) fn of(candidates: &Candidates<'_, '_>) -> Option<(Attention, Vec<usize>)> {
        let (query, key, of_keys) = product(&candidates.all.first()?.declared)?;
        if of_keys.transpose_left {
            return None;
        }
        let mut search = Search {
            candidates,
            found: vec![0],
        };
        let scores = candidates.all[0].output()?;
        let between = search.element_wise()?;
        let last = between.as_ref().map_or(scores, Fused::output);
        let softmax = search.reader(last)?;
        let beta = softmax_beta(&softmax.declared)?;
        let weights = softmax.output()?;
        let (left, value, of_values) = product(&search.reader(weights)?.declared)?;
        let fits = left == weights
            && value != weights
            && !of_values.transpose_left
            && of_values.batches == of_keys.batches
            && of_values.rows == of_keys.rows
            && of_values.inner == of_keys.columns;
        let attention = Attention {
            query,
            key,
            value,
            of_keys,
            scores,
            between,
            beta,
            of_values,
        };
        fits.then_some((attention, search.found))
    }

    /// Computes the result out of the operands from outside; says whether it did, which it does if everything
    /// is there.
    fn compute(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let inputs = &context.inputs;
        let floats = |operand: u32, count: usize| {
            let values: &[f32] = bytemuck::try_cast_slice(inputs.operand(operand)?).ok()?;
            (values.len() == count).then_some(values)
        };
        let (keys, values) = (&self.of_keys, &self.of_values);
        let (batches, rows) = (keys.batches, keys.rows);
        let sources = match &self.between {
            Some(between) => between
                .sources(|operand| inputs.operand(operand), Some(self.scores))
                .map(Some),
            None => Some(None),
        };
        let (Some(query), Some(key), Some(value), Some(sources), Some(output)) = (
            floats(self.query, batches * rows * keys.inner),
            floats(self.key, batches * keys.inner * keys.columns),
            floats(self.value, batches * values.inner * values.columns),
            sources,
            context.outputs.bytes(0),
        ) else {
            return Ok(false);
        };
        let Ok(output) = bytemuck::try_cast_slice_mut::<_, f32>(output) else {
            return Ok(false);
        };
        if output.len() != batches * rows * values.columns {
            return Ok(false);
        }
        let extents = Extents {
            batches,
            rows,
            columns: values.columns,
        };
        let products = batches * rows * keys.columns * (keys.inner + values.columns);
        let cost = cost::<f32>(products, query.len() + key.len() + value.len() + output.len());
        let [key_panels, key_biases] = MatrixF32::lengths((keys.columns, keys.inner));
        let [value_panels, value_biases] = MatrixF32::lengths((values.columns, values.inner));
        let most = rows_per_block(keys.columns * size_of::<f32>()).min(rows);
        let lengths = [
            key_panels,
            key_biases,
            value_panels,
            value_biases,
            most * keys.columns,
            most * keys.columns,
            most,
        ];
        let memory = (&mut *context.scratch, lengths.iter().sum::<usize>(), context.team);
        for_each_product((extents, cost), output, memory, |part: Rows<'_, f32>, memory| {
            let mut rest = memory;
            let [
                key_panels,
                key_biases,
                value_panels,
                value_biases,
                scores,
                others,
                shares,
            ] = lengths.map(|length| {
                let (these, behind) = std::mem::take(&mut rest).split_at_mut(length);
                rest = behind;
                these
            });
            let key = right_of(keys, key, part.batch);
            let key = MatrixF32::pack(key, (keys.columns, keys.inner), key_panels, key_biases);
            let value = right_of(values, value, part.batch);
            let value = MatrixF32::pack(value, (values.columns, values.inner), value_panels, value_biases);
            let clamp = Clamp(Activation::None.range());
            let mut first = part.batch * rows + part.first;
            for output in part.output.chunks_mut(most * values.columns) {
                let count = output.len() / values.columns;
                let query = Lines::of_rows(&query[first * keys.inner..], count, (keys.inner, keys.inner));
                let scores = &mut scores[..count * keys.columns];
                key.multiply(query, Block::whole(scores, keys.columns), clamp);
                let scores = match (&self.between, &sources) {
                    (Some(between), Some(sources)) => {
                        let results = &mut others[..scores.len()];
                        let coming = (self.scores, &*scores);
                        between.run_part(sources, coming, (first * keys.columns, &mut *results));
                        results
                    }
                    _ => scores,
                };
                let shares = &mut shares[..count];
                dispatch(Exponentials {
                    beta: self.beta,
                    rows: &mut *scores,
                    shares: &mut *shares,
                });
                let weights = Lines::of_rows(scores, count, (values.inner, values.inner));
                value.multiply(weights, Block::whole(&mut *output, values.columns), clamp);
                for (row, share) in output.chunks_exact_mut(values.columns).zip(shares) {
                    row.iter_mut().for_each(|result| *result *= *share);
                }
                first += count;
            }
        })?;
        Ok(true)
    }
}

impl FusedStep for Attention {
    fn name(&self) -> &'static str {
        "f32 attention row by row, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        self.compute(context)
    }
}

/// The right matrix of one of some products.
fn right_of<'a>(product: &BatchMatMul, right: &'a [f32], batch: usize) -> Unpacked<'a, f32> {
    Unpacked {
        values: &right[batch * product.inner * product.columns..],
        apart: if product.transpose_right {
            product.inner
        } else {
            product.columns
        },
        by_columns: product.transpose_right,
    }
}

/// Both operands of an operation and its extents, if it is BATCH_MATMUL of floats of which these are known.
fn product(declared: &Declared<'_>) -> Option<(u32, u32, BatchMatMul)> {
    let operation = declared.operation;
    let is_it =
        is_batch_matmul(operation.operation_type) && declared.input(0)?.ty() == OperandType::TENSOR_FLOAT32;
    let [left, right, ..] = operation.inputs[..] else {
        return None;
    };
    let product = BatchMatMul::new(declared).ok().filter(|_| is_it)?;
    (product.batches > 0).then_some((left, right, product))
}

/// What an operation scales its values with, if it is SOFTMAX along the last axis.
fn softmax_beta(declared: &Declared<'_>) -> Option<f32> {
    let is_it = declared.operation.operation_type == OperationType::SOFTMAX;
    let is_it = is_it && is_along_last(declared) == Ok(true);
    (declared as &dyn OperationContext).f32(1).ok().filter(|_| is_it)
}

/// Finds what follows.
struct Search<'s, 'd> {
    candidates: &'s Candidates<'s, 'd>,
    /// The operations that belong to these, in ascending order.
    found: Vec<usize>,
}

impl<'s, 'd> Search<'s, 'd> {
    /// The element-wise operations right behind the last one, if there are any that can be computed together;
    /// `None` if it is one of several that read what that computes.
    fn element_wise(&mut self) -> Option<Option<Fused>> {
        let start = self.found.len();
        let scores = self.candidates.all[start - 1].output()?;
        let elements = self.candidates.all[start - 1].elements?;
        let behind = self.candidates.all[start..].iter();
        let alike = behind.take_while(|candidate| candidate.elements == Some(elements));
        let declared = alike
            .map(|candidate| candidate.declared)
            .take_while(|declared| declared.operation.operation_type != OperationType::SOFTMAX);
        let ends_within = |operand, count| self.candidates.ends_within(operand, start + count);
        let fused = Fused::longest(declared, (elements, 1), ends_within);
        let fused = fused.filter(|fused| fused.passes(scores));
        let count = fused.as_ref().map_or(0, Fused::operations);
        self.found.extend(start..start + count);
        (count == 0 || ends_within(scores, count)).then_some(fused)
    }

    /// The next operation that reads `operand` as its first input, and no other does.
    fn reader(&mut self, operand: u32) -> Option<&'s Candidate<'d>> {
        let from = self.found.last().map_or(0, |last| last + 1);
        let (number, reader) = self.candidates.reader(operand, from)?;
        self.found.push(number);
        (reader.declared.operation.inputs.first() == Some(&operand)).then_some(reader)
    }
}

/// Puts in place of the values of rows exponentials that are in proportion to their shares of a row.
struct Exponentials<'a> {
    beta: f32,
    rows: &'a mut [f32],
    /// What those of each row are to be multiplied with.
    shares: &'a mut [f32],
}

impl Work for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let length = self.rows.len() / self.shares.len();
        for (row, share) in self.rows.chunks_exact_mut(length).zip(self.shares) {
            *share = exponentials::<S>(self.beta, row);
        }
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
