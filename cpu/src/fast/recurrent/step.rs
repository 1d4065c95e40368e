//! LSTM and RNN operations of 32-bit floats with constant weights: the weights of all gates are one matrix
//! for the input and one for the last output, so that a step is two products with a vector. Large ones are
//! parted among threads, which is worth it since weights come as fast as one processor can fetch them.

use nnhal_hal::ops::lstm_cell::{CellInputs, Gate};
use nnhal_hal::ops::rnn::RnnCell;
use nnhal_hal::ops::{lstm, rnn};
use nnhal_hal::{OperandType, OperationType};
use nnhal_os::buffer::{ALIGNMENT, AlignedSlice};

use super::cell::{PackedCell, Product, is_omitted};
use super::lstm_step::LstmStep;
use super::rnn_step::RnnStep;
use crate::fast::PlannedStep;
use crate::fast::matmul::matrix_vector::PackedMatrix;
use crate::fast::matmul::stored_weights::{Precision, Stored};
use crate::fast::packing::{Packing, PackingError};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels;
use crate::kernels::recurrent::{PreparedCell, PreparedCells};
use crate::plan::Declared;

/// The constant matrices of a gate each, to be stacked: all of the same extents.
#[derive(Debug)]
struct Stack<'a> {
    rows: usize,
    columns: usize,
    matrices: Vec<&'a [f32]>,
}

impl<'a> Stack<'a> {
    /// Those of the given inputs; `None` if one is not a constant matrix of floats as large as the others.
    fn of(declared: &Declared<'a>, inputs: impl Iterator<Item = usize>) -> Option<Stack<'a>> {
        let mut stack = Stack {
            rows: 0,
            columns: 0,
            matrices: Vec::new(),
        };
        for input in inputs {
            let at = *declared.operation.inputs.get(input)? as usize;
            let constant = declared.constants.get(at)?.as_ref()?;
            let is_float = declared.operands.get(at)?.operand_type == OperandType::TENSOR_FLOAT32;
            if !is_float || constant.shape.rank() != 2 {
                return None;
            }
            let extents = (constant.shape.dim(0) as usize, constant.shape.dim(1) as usize);
            if !stack.matrices.is_empty() && extents != (stack.rows, stack.columns) {
                return None;
            }
            (stack.rows, stack.columns) = extents;
            stack.matrices.push(bytemuck::cast_slice(constant.bytes.bytes()));
        }
        (stack.rows > 0).then_some(stack)
    }

    fn matrix(&self, precision: Precision) -> PackedMatrix {
        PackedMatrix::new(self.rows * self.matrices.len(), self.columns, precision)
    }

    fn pack(&self, matrix: &PackedMatrix, packed: &mut [u8]) {
        let weight = |row: usize, column: usize| {
            self.matrices[row / self.rows][row % self.rows * self.columns + column]
        };
        matrix.pack(weight, packed);
    }
}

/// The constant weights of a cell.
struct Weights<'a> {
    input: Stack<'a>,
    recurrent: Stack<'a>,
    aux: Option<Stack<'a>>,
    projection: Option<Stack<'a>>,
}

impl<'a> Weights<'a> {
    fn of_lstm(declared: &Declared<'a>, at: &CellInputs) -> Option<Weights<'a>> {
        let gates = || {
            let is_coupled = is_omitted(declared, at.input_weights(Gate::Input));
            Gate::ALL.into_iter().skip(usize::from(is_coupled))
        };
        Weights {
            input: Stack::of(declared, gates().map(|gate| at.input_weights(gate)))?,
            recurrent: Stack::of(declared, gates().map(|gate| at.recurrent_weights(gate)))?,
            aux: match at.aux(Gate::Forget) {
                Some(first) if !is_omitted(declared, first) => {
                    Some(Stack::of(declared, gates().filter_map(|gate| at.aux(gate)))?)
                }
                _ => None,
            },
            projection: if is_omitted(declared, at.projection()) {
                None
            } else {
                Some(Stack::of(declared, std::iter::once(at.projection()))?)
            },
        }
        .that_fit()
    }

    fn of_rnn(declared: &Declared<'a>, at: &RnnCell) -> Option<Weights<'a>> {
        let one = |input| Stack::of(declared, std::iter::once(input));
        Weights {
            input: one(at.first)?,
            recurrent: one(at.first + 1)?,
            aux: match at.aux_weights {
                Some(input) if !is_omitted(declared, input) => Some(one(input)?),
                _ => None,
            },
            projection: None,
        }
        .that_fit()
    }

    /// These weights, if each gate has as many rows everywhere.
    fn that_fit(self) -> Option<Weights<'a>> {
        let is_alike = |stack: &Stack<'_>| {
            (stack.rows, stack.matrices.len()) == (self.input.rows, self.input.matrices.len())
        };
        let fits = is_alike(&self.recurrent) && self.aux.as_ref().is_none_or(is_alike);
        fits.then_some(self)
    }

    fn stacks(&self) -> impl Iterator<Item = &Stack<'a>> {
        [&self.input, &self.recurrent]
            .into_iter()
            .chain(&self.aux)
            .chain(&self.projection)
    }

    /// All of them.
    fn values(&self) -> impl Iterator<Item = f32> {
        let matrices = self.stacks().flat_map(|stack| &stack.matrices);
        matrices.flat_map(|matrix| matrix.iter().copied())
    }

    /// How many bytes they take when packed: each matrix whole lines.
    fn size(&self, precision: Precision) -> usize {
        self.stacks()
            .map(|stack| stack.matrix(precision).size().next_multiple_of(ALIGNMENT))
            .sum()
    }

    /// Packs them into memory of that size.
    fn pack(&self, precision: Precision, mut packed: &mut [u8]) {
        for stack in self.stacks() {
            let matrix = stack.matrix(precision);
            let (these, rest) = packed.split_at_mut(matrix.size().next_multiple_of(ALIGNMENT));
            stack.pack(&matrix, &mut these[..matrix.size()]);
            packed = rest;
        }
    }

    /// The cell whose weights were packed from `start` on.
    fn cell(&self, weights: &AlignedSlice, (mut start, precision): (usize, Precision)) -> PackedCell {
        let mut product = |stack: &Stack<'_>| {
            let matrix = stack.matrix(precision);
            let product = Product { matrix, start };
            start += matrix.size().next_multiple_of(ALIGNMENT);
            product
        };
        PackedCell {
            weights: weights.clone(),
            input: product(&self.input),
            recurrent: product(&self.recurrent),
            aux: self.aux.as_ref().map(&mut product),
            projection: self.projection.as_ref().map(&mut product),
        }
    }
}

/// Computes an operation with prepared cells.
type Run = fn(&mut KernelContext<'_>, PreparedCells<'_>) -> Result<(), KernelError>;

/// An LSTM or RNN operation.
#[derive(Debug)]
pub(in crate::fast) struct RecurrentStep {
    run: Run,
    /// For an operation of the usual form.
    usual: Option<Usual>,
    cells: Vec<PackedCell>,
    stored: Stored,
    packed: AlignedSlice,
}

/// An operation of which all but its input and its states is constant.
#[derive(Debug)]
enum Usual {
    Lstm(LstmStep),
    Rnn(RnnStep),
}

impl Usual {
    fn of(declared: &Declared<'_>) -> Option<Usual> {
        let lstm = LstmStep::of(declared).map(Usual::Lstm);
        lstm.or_else(|| RnnStep::of(declared).map(Usual::Rnn))
    }
}

impl RecurrentStep {
    /// The step for an operation of this family whose weights are all constant floats.
    pub(in crate::fast) fn new(
        declared: &Declared<'_>,
        (packing, is_relaxed): (&mut Packing, bool),
    ) -> Result<Option<RecurrentStep>, PackingError> {
        let Some((run, cells)) = weights(declared) else {
            return Ok(None);
        };
        let stored = Stored::choose(is_relaxed, packing, || cells.iter().flat_map(Weights::values))?;
        let precision = stored.precision;
        let size: usize = cells.iter().map(|cell| cell.size(precision)).sum();
        let packed = packing.part(size, |mut rest| {
            for cell in &cells {
                let (these, after) = rest.split_at_mut(cell.size(precision));
                cell.pack(precision, these);
                rest = after;
            }
        })?;
        let mut start = 0;
        let cells = cells.iter().map(|cell| {
            let made = cell.cell(&packed, (start, precision));
            start += cell.size(precision);
            made
        });
        Ok(Some(RecurrentStep {
            run,
            usual: Usual::of(declared),
            cells: cells.collect(),
            stored,
            packed: packed.clone(),
        }))
    }
}

/// Whether operations of this type have cells, whose weights are packed.
pub(in crate::fast) fn has_cells(operation: OperationType) -> bool {
    matches!(
        operation,
        OperationType::LSTM
            | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM
            | OperationType::BIDIRECTIONAL_SEQUENCE_LSTM
            | OperationType::RNN
            | OperationType::UNIDIRECTIONAL_SEQUENCE_RNN
            | OperationType::BIDIRECTIONAL_SEQUENCE_RNN
    )
}

/// The weights of an operation's cells, and what computes with them.
fn weights<'a>(declared: &Declared<'a>) -> Option<(Run, Vec<Weights<'a>>)> {
    let lstm_cells: &[CellInputs] = match declared.operation.operation_type {
        OperationType::LSTM => &[lstm::STEP_CELL],
        OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => &[lstm::SEQUENCE_CELL],
        OperationType::BIDIRECTIONAL_SEQUENCE_LSTM => &lstm::TWO_CELLS,
        OperationType::RNN | OperationType::UNIDIRECTIONAL_SEQUENCE_RNN => {
            let cell = Weights::of_rnn(declared, &rnn::ONE_CELL)?;
            return Some((kernels::rnn::run_prepared, vec![cell]));
        }
        OperationType::BIDIRECTIONAL_SEQUENCE_RNN => {
            let cells = rnn::TWO_CELLS.iter().map(|at| Weights::of_rnn(declared, at));
            return Some((kernels::rnn::run_prepared, cells.collect::<Option<_>>()?));
        }
        _ => return None,
    };
    let cells = lstm_cells.iter().map(|at| Weights::of_lstm(declared, at));
    Some((kernels::lstm::run_prepared, cells.collect::<Option<_>>()?))
}

impl PlannedStep for RecurrentStep {
    fn name(&self, _: OperandType) -> &'static str {
        match self.stored.precision {
            Precision::Single => "packed recurrent cell",
            Precision::Half => "packed recurrent cell, f16 weights",
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        match (&self.usual, &self.cells[..]) {
            (Some(Usual::Lstm(lstm)), [cell]) => lstm.run(context, cell),
            (Some(Usual::Rnn(rnn)), [cell]) => rnn.run(context, cell),
            _ => {
                let team = context.team;
                let cells = [0, 1].map(|at| self.cells.get(at).map(|cell| cell.with(team)));
                let cells = cells.each_ref().map(Option::as_ref);
                (self.run)(
                    context,
                    cells.map(|cell| cell.map(|cell| cell as &dyn PreparedCell)),
                )
            }
        }
    }

    fn packed(&self) -> Vec<&AlignedSlice> {
        self.stored.packed(&self.packed)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    fn ramp(count: u32, seed: u32) -> Vec<f32> {
        (0..count)
            .map(|at| ((at * 7 + seed * 3) % 23) as f32 / 23.0 - 0.4)
            .collect()
    }

    fn matrix(operation: OneOperation, dims: &[u32], seed: u32) -> OneOperation {
        operation.tensor(T::TENSOR_FLOAT32, dims, &ramp(dims.iter().product(), seed))
    }

    /// What the operation of constant weights gives by both sets of kernels.
    fn assert_alike(make: impl Fn() -> OneOperation) {
        let compute = |kernels| {
            make()
                .with_constants()
                .run_by(kernels, &RunOptions::default())
                .unwrap()
        };
        let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
        assert_eq!(found.len(), exact.len());
        for (found, exact) in found.iter().zip(&exact) {
            assert_eq!(found.dims, exact.dims);
            let values = found.data::<f32>().into_iter().zip(exact.data::<f32>());
            values.for_each(|(found, exact)| assert!((found - exact).abs() < 1e-5, "{found} {exact}"));
        }
    }

    const VALUES: u32 = 9;
    const UNITS: u32 = 11;

    /// What sorts of LSTM there are.
    #[derive(Clone, Copy, Debug)]
    struct Form {
        is_coupled: bool,
        has_peephole: bool,
        /// Of the projection, if there is one.
        outputs: Option<u32>,
        has_projection_bias: bool,
        activation: i32,
        clips: [f32; 2],
    }

    fn lstm(form: Form) -> OneOperation {
        let (coupled, outputs) = (form.is_coupled, form.outputs);
        let given = outputs.unwrap_or(UNITS);
        let operation = matrix(OneOperation::new(OperationType::LSTM), &[2, VALUES], 1);
        let operation = (0..17).fold(operation, |operation, number| {
            let is_omitted = match number {
                8 => coupled || !form.has_peephole,
                0 | 4 | 11 => coupled,
                9 | 10 => !form.has_peephole,
                15 => outputs.is_none(),
                16 => outputs.is_none() || !form.has_projection_bias,
                _ => false,
            };
            let dims: &[u32] = match number {
                0..=3 => &[UNITS, VALUES],
                4..=7 => &[UNITS, given],
                15 => &[given, UNITS],
                16 => &[given],
                _ => &[UNITS],
            };
            if is_omitted {
                operation.omitted(T::TENSOR_FLOAT32)
            } else {
                matrix(operation, dims, number)
            }
        });
        let operation = matrix(matrix(operation, &[2, given], 5), &[2, UNITS], 8);
        operation
            .i32(form.activation)
            .f32(form.clips[0])
            .f32(form.clips[1])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
    }

    #[test]
    fn lstm_with_packed_weights_is_that_of_the_reference() {
        for number in 0..64 {
            let is = |bit: u32| number & (1 << bit) != 0;
            assert_alike(|| {
                lstm(Form {
                    is_coupled: is(0),
                    has_peephole: is(1),
                    outputs: is(2).then_some(5),
                    // Logistic is computed operand by operand.
                    activation: if is(3) { 6 } else { 4 },
                    has_projection_bias: is(4),
                    clips: if is(5) { [0.45, 0.7] } else { [0.0; 2] },
                })
            });
        }
    }

    #[test]
    fn rnn_with_packed_weights_is_that_of_the_reference() {
        for activation in [0, 1, 2, 3, 4, 6] {
            assert_alike(|| {
                let operation = matrix(OneOperation::new(OperationType::RNN), &[3, VALUES], 1);
                let operation = matrix(operation, &[UNITS, VALUES], 2);
                let operation = matrix(operation, &[UNITS, UNITS], 3);
                let operation = matrix(matrix(operation, &[UNITS], 4), &[3, UNITS], 5);
                operation
                    .i32(activation)
                    .output(T::TENSOR_FLOAT32, &[0, 0])
                    .output(T::TENSOR_FLOAT32, &[0, 0])
            });
        }
    }
}
