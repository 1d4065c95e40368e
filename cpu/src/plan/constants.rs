//! The constants of a graph while it is made ready.
//!
//! Constants are copied into aligned memory. Filters that are nothing but filters wait until it is known
//! whether the steps that packed them read them in their own form again; those that nothing reads are not
//! copied at all. What operations on constants alone compute is constant, too; where there is such, those
//! that only they read are let go.

use std::collections::BTreeMap;

use nnhal_hal::{ConstantPools, Model, Operation, Shape, Subgraph};
use nnhal_os::buffer::AlignedBuffer;

use super::error::ProgramError;
use super::kernel_set::KernelSet;
use crate::fast::{self, Packing, PlannedStep};
use crate::interrupt::Interrupt;
use crate::kernel::Constant;

/// Smaller filters are copied at once: they are no burden, and they may be parameters that shape rules look
/// at.
const LEAST_BYTES: usize = 4097;

/// Most bytes of what operations on the constants of a graph compute, for each of theirs, beside some. What
/// is beyond is computed in each execution, whose memory is given back: small constants can be repeated to
/// any size.
const MOST_FOLDED_PER_BYTE: usize = 4;
const SOME_FOLDED_BYTES: usize = 4096;

/// The constants of a graph, and the filters that wait.
pub(super) struct Constants<'a> {
    /// By operand. Filters that wait have their shapes, and no bytes.
    pub(super) values: Vec<Option<Constant>>,
    /// In the order of the operands.
    waiting: Vec<Waiting<'a>>,
    /// By operand, whether every operation that reads it takes it for its filter.
    only_filters: Vec<bool>,
    /// Results of operations on constants, by operand: whether executions read them.
    folded: BTreeMap<u32, bool>,
    /// How many bytes more those may have.
    room: usize,
}

struct Waiting<'a> {
    operand: u32,
    /// Not there if the model is restored without it.
    bytes: Option<&'a [u8]>,
    is_read: bool,
}

impl<'a> Constants<'a> {
    /// Copies what does not wait; `interrupt` is asked before each. Filters that wait may be missing only if
    /// they were packed before.
    pub(super) fn new(
        (model, graph): (&'a Model, &Subgraph),
        pools: &'a dyn ConstantPools,
        (kernels, packing): (KernelSet, &Packing),
        interrupt: &dyn Interrupt,
    ) -> Result<Constants<'a>, ProgramError> {
        let only_filters = match kernels {
            KernelSet::Reference => vec![false; graph.operands.len()],
            KernelSet::Fast => only_filters(graph),
        };
        let mut constants = Constants {
            values: Vec::with_capacity(graph.operands.len()),
            waiting: Vec::new(),
            only_filters,
            folded: BTreeMap::new(),
            room: SOME_FOLDED_BYTES,
        };
        for (at, operand) in graph.operands.iter().enumerate() {
            if !operand.lifetime.is_constant() {
                constants.values.push(None);
                continue;
            }
            let bytes = model.constant_bytes(operand, pools);
            let room = MOST_FOLDED_PER_BYTE.saturating_mul(operand.location.length as usize);
            constants.room = constants.room.saturating_add(room);
            let waits = constants.only_filters[at] && operand.location.length as usize >= LEAST_BYTES;
            let copied = if waits && (bytes.is_some() || matches!(packing, Packing::Kept(_))) {
                constants.waiting.push(Waiting {
                    operand: at as u32,
                    bytes,
                    is_read: false,
                });
                AlignedBuffer::new()
            } else {
                interrupt.check()?;
                AlignedBuffer::copy_of(bytes.ok_or(ProgramError::MissingConstant { operand: at })?)?
            };
            constants.values.push(Some(Constant {
                shape: Shape::new(&operand.dimensions).unwrap_or_default(),
                bytes: copied,
            }));
        }
        Ok(constants)
    }

    /// The bytes of a constant, wherever they are by now; none for what is no constant or is not there.
    pub(super) fn bytes(&self, operand: u32) -> &[u8] {
        if let Some(at) = self.position(operand) {
            return self.waiting[at].bytes.unwrap_or_default();
        }
        let constant = self.values.get(operand as usize).and_then(Option::as_ref);
        constant.map_or(&[], |constant| constant.bytes.bytes())
    }

    /// How many bytes results of operations on constants may have.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Adds what an operation on constants computes: constants from now on.
    pub(super) fn add_folded(&mut self, operation: &Operation, results: Vec<Constant>) {
        for (&operand, result) in operation.outputs.iter().zip(results) {
            if let Some(value) = self.values.get_mut(operand as usize) {
                self.room = self.room.saturating_sub(result.bytes.bytes().len());
                *value = Some(result);
                let is_filter = self.only_filters[operand as usize];
                self.folded.insert(operand, !is_filter);
            }
        }
    }

    /// Notes by what an operation is computed whose second input is `operand`.
    pub(super) fn note_reader(&mut self, operand: u32, step: Option<&dyn PlannedStep>) {
        let is_read = !step.is_some_and(PlannedStep::replaces_filter);
        if let Some(at) = self.position(operand) {
            self.waiting[at].is_read |= is_read;
        }
        if let Some(folded) = self.folded.get_mut(&operand) {
            *folded |= is_read;
        }
    }

    /// Where a filter is among those that wait.
    fn position(&self, operand: u32) -> Option<usize> {
        self.waiting
            .binary_search_by_key(&operand, |waiting| waiting.operand)
            .ok()
    }

    /// Copies the filters that are read after all, and lets go of what executions do not read, by `read` and
    /// what was noted. Returns all constants, and the operands of those that were replaced.
    pub(super) fn finish(
        mut self,
        read: impl Iterator<Item = u32>,
    ) -> Result<(Vec<Option<Constant>>, Vec<u32>), ProgramError> {
        let mut replaced = Vec::new();
        if !self.folded.is_empty() {
            let mut is_read = vec![false; self.values.len()];
            for operand in read {
                if let Some(is_read) = is_read.get_mut(operand as usize) {
                    *is_read = *self.folded.get(&operand).unwrap_or(&true);
                }
            }
            let unread = self
                .values
                .iter_mut()
                .zip(is_read)
                .filter(|(_, is_read)| !is_read);
            for constant in unread.filter_map(|(value, _)| value.as_mut()) {
                constant.bytes = AlignedBuffer::new();
            }
        }
        for waiting in self.waiting {
            if !waiting.is_read {
                replaced.push(waiting.operand);
                continue;
            }
            let operand = waiting.operand as usize;
            let bytes = waiting.bytes.ok_or(ProgramError::MissingConstant { operand })?;
            if let Some(Some(constant)) = self.values.get_mut(operand) {
                constant.bytes = AlignedBuffer::copy_of(bytes)?;
            }
        }
        Ok((self.values, replaced))
    }
}

/// By operand, whether every operation that reads it takes it for its filter.
fn only_filters(graph: &Subgraph) -> Vec<bool> {
    let mut filters = vec![true; graph.operands.len()];
    for operation in &graph.operations {
        let has_filter = fast::has_filter(operation.operation_type);
        for (number, &operand) in operation.inputs.iter().enumerate() {
            if let Some(is_filter) = filters.get_mut(operand as usize) {
                *is_filter &= has_filter && number == 1;
            }
        }
    }
    for &operand in &graph.output_indexes {
        if let Some(is_filter) = filters.get_mut(operand as usize) {
            *is_filter = false;
        }
    }
    filters
}
