//! What a profile tells of each operation.

use nnhal_cpu::{Peak, Program};
use nnhal_hal::{OperandType, Operation, Subgraph, SubgraphIndex};
use serde::Serialize;

use super::super::products::products;
use super::times::Medians;

/// What is in the names of kernels that multiply by tiles.
const BY_TILES: &str = "by tiles";

/// What is in the names of kernels that multiply floats which are integers as bytes.
const AS_BYTES: &str = "as bytes";

/// An operation.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) index: usize,
    pub(super) operation: String,
    /// None where kernels are not known: those of other vendors' devices.
    pub(super) kernel: Option<&'static str>,
    /// Median over the calls.
    pub(super) time_us: f64,
    /// As the plan expects it of one thread: [`nnhal_cpu::Program::expected_time`].
    pub(super) expected_us: Option<f64>,
    /// Of the time of all operations.
    pub(super) share: f64,
    /// Thousands of millions of operations on numbers in a second, a product and its sum being two, of all
    /// that are computed with this one; none for operations that are not made of products, and for those that
    /// are computed with one before. Of operations that were computed beforehand there is none either: they
    /// are in no execution.
    pub(super) giga_per_second: Option<f64>,
    /// Of the peak of as many threads, or of one if executions were faster without helpers: by tiles where
    /// the kernel's name says so, by vectors elsewhere, also where layers are computed together of which some
    /// are multiplied by tiles. None where threads or kernels are not known.
    pub(super) share_of_peak: Option<f64>,
    /// Read and written by all that are computed with this one: [`nnhal_cpu::Program::bytes_moved`].
    pub(super) bytes: Option<u64>,
}

/// What rows are made from.
pub(super) struct Table<'a> {
    pub(super) main: &'a Subgraph,
    pub(super) program: Option<&'a Program>,
    pub(super) medians: Medians,
    pub(super) peak: Peak,
    pub(super) total_us: f64,
    /// Whether as many threads computed as there are said to be.
    pub(super) knows_threads: bool,
}

impl Table<'_> {
    /// What is told of an operation of the graph.
    pub(super) fn row(&self, index: usize) -> Row {
        let (main, by) = (self.main, self.medians.threads);
        let (operation, time_us) = (&main.operations[index], self.medians.times[index]);
        // Without a program nobody knows of more than the operation itself.
        let with = |other| match self.program {
            Some(program) => program.computed_with(SubgraphIndex::Main, other, by),
            None => Some(other),
        };
        let together = (index..main.operations.len()).filter(|other| with(*other) == Some(index));
        let giga_per_second = together
            .filter_map(|other| products(main, &main.operations[other]))
            .reduce(u64::saturating_add)
            .map(|products| 2.0 * products as f64 / (time_us * 1000.0).max(1e-3));
        let kernel = self
            .program
            .map(|program| program.kernel_name(SubgraphIndex::Main, index, by));
        let most = kernel
            .filter(|_| self.knows_threads)
            .map(|kernel| self.most(operation, kernel));
        Row {
            index,
            operation: operation.operation_type.to_string(),
            kernel,
            time_us,
            expected_us: self
                .program
                .and_then(|program| program.expected_time(SubgraphIndex::Main, index, by))
                .map(|time| time.as_secs_f64() * 1e6),
            share: time_us / self.total_us.max(f64::MIN_POSITIVE),
            giga_per_second,
            share_of_peak: giga_per_second.zip(most).map(|(speed, most)| speed / most),
            bytes: self
                .program
                .and_then(|program| program.bytes_moved(SubgraphIndex::Main, index, by)),
        }
    }

    /// The peak of what this kernel computes an operation with.
    fn most(&self, operation: &Operation, kernel: &str) -> f64 {
        let takes_floats =
            first_type(self.main, operation).is_none_or(|ty| ty == OperandType::TENSOR_FLOAT32);
        let is_float = takes_floats && !kernel.contains(AS_BYTES);
        let most = match (is_float, kernel.contains(BY_TILES)) {
            (true, true) => self.peak.tiles,
            (true, false) => self.peak.float,
            (false, true) => self.peak.byte_tiles,
            (false, false) => self.peak.byte,
        };
        most * self.medians.threads as f64
    }
}

fn first_type(graph: &Subgraph, operation: &Operation) -> Option<OperandType> {
    let first = *operation.inputs.first()?;
    Some(graph.operands.get(first as usize)?.operand_type)
}
