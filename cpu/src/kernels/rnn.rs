//! Basic recurrent layers: RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN.
//!
//! A step is `state = activation(weights * input + recurrent_weights * state + bias)`, with the auxiliary
//! input's product added where there is one; the output is the new state. Float16 is computed in float32
//! throughout, states between steps included.

use nnhal_hal::OperationType;
use nnhal_hal::ops::recurrent::SequenceShape;
use nnhal_hal::ops::rnn::{ONE_CELL, RnnCell, TWO_CELLS, linking};

use super::cell_activation::{CellActivation, EXACT};
use super::recurrent::{
    self, FloatInputs, Items, PreparedCell, PreparedCells, add_product, linked_inputs, steps, store_given,
    store_numbered,
};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RNN, run),
    (OperationType::UNIDIRECTIONAL_SEQUENCE_RNN, run),
    (OperationType::BIDIRECTIONAL_SEQUENCE_RNN, run),
];

fn run(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    run_prepared(context, [None, None])
}

/// Computes one of these operations with prepared cells.
pub(crate) fn run_prepared(
    context: &mut KernelContext<'_>,
    cells: PreparedCells<'_>,
) -> Result<(), KernelError> {
    match context.inputs.rules().operation() {
        OperationType::RNN => one_step(context, cells),
        OperationType::UNIDIRECTIONAL_SEQUENCE_RNN => unidirectional(context, cells),
        _ => bidirectional(context, cells),
    }
}

/// A cell with its weights.
struct Cell<'a> {
    weights: &'a [f32],
    recurrent_weights: &'a [f32],
    bias: &'a [f32],
    aux_weights: Option<&'a [f32]>,
    activation: CellActivation,
    /// What computes with the weights in their place.
    prepared: Option<&'a dyn PreparedCell>,
}

impl<'a> Cell<'a> {
    fn new(
        inputs: &FloatInputs<'a>,
        at: &RnnCell,
        (activation, prepared): (CellActivation, Option<&'a dyn PreparedCell>),
    ) -> Result<Cell<'a>, KernelError> {
        Ok(Cell {
            weights: inputs.required(at.first)?,
            recurrent_weights: inputs.required(at.first + 1)?,
            bias: inputs.required(at.first + 2)?,
            aux_weights: match at.aux_weights {
                Some(weights) => inputs.optional(weights)?,
                None => None,
            },
            activation,
            prepared,
        })
    }

    fn units(&self) -> usize {
        self.bias.len()
    }

    /// One step of one batch. `sums` has room for the new state.
    fn step(&self, input: &[f32], aux: Option<&[f32]>, state: &mut [f32], sums: &mut [f32]) {
        sums.copy_from_slice(self.bias);
        if let Some(prepared) = self.prepared {
            prepared.add_to_gates(input, aux, state, sums);
        } else {
            add_product(sums, self.weights, input);
            if let (Some(weights), Some(aux)) = (self.aux_weights, aux) {
                add_product(sums, weights, aux);
            }
            add_product(sums, self.recurrent_weights, state);
        }
        state.copy_from_slice(sums);
        let functions = self.prepared.map_or(&EXACT, PreparedCell::functions);
        self.activation.apply(functions, state);
    }

    /// Every step of every batch; `state` goes from the initial to the final one.
    ///
    /// # Errors
    /// The execution has been interrupted.
    fn run(
        &self,
        input: (&[f32], Items),
        aux: Option<(&[f32], Items)>,
        state: &mut [f32],
        pass: &mut Pass<'_>,
    ) -> Result<(), KernelError> {
        let shape = input.1.shape;
        let units = self.units();
        for step in steps(shape.steps, pass.backward) {
            for batch in 0..shape.batches as usize {
                pass.pace.work(units * (input.1.values + units))?;
                let state = &mut state[batch * units..][..units];
                let aux = aux.map(|(data, items)| &data[items.range(step, batch)]);
                self.step(&input.0[input.1.range(step, batch)], aux, state, pass.sums);
                pass.output[pass.items.range(step, batch)].copy_from_slice(state);
            }
        }
        Ok(())
    }
}

/// Where a pass over a sequence puts its results, and its direction.
struct Pass<'a> {
    backward: bool,
    output: &'a mut [f32],
    items: Items,
    sums: &'a mut [f32],
    pace: Pace<'a>,
}

/// RNN is a sequence of one step. Its outputs are the state and the output, which are the same.
fn one_step(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let sequence = recurrent::one_step(&context.inputs)?;
    let activation = CellActivation::from_code(5, context.inputs.i32(5)?)?;
    single_cell(context, sequence, (activation, cells[0]), [Some(1), Some(0)])
}

fn unidirectional(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let time_major = context.inputs.i32(6)? != 0;
    let sequence = SequenceShape::of(context.inputs.rules(), 0, time_major)?;
    let activation = CellActivation::from_code(5, context.inputs.i32(5)?)?;
    let state = (context.outputs.len() > 1).then_some(1);
    single_cell(context, sequence, (activation, cells[0]), [Some(0), state])
}

/// Runs the only cell; `outputs` are the numbers of the output and of the state, where the operation gives
/// them.
fn single_cell(
    context: &mut KernelContext<'_>,
    sequence: SequenceShape,
    (activation, prepared): (CellActivation, Option<&dyn PreparedCell>),
    outputs: [Option<usize>; 2],
) -> Result<(), KernelError> {
    let team = context.team;
    let inputs = context.inputs;
    let units = inputs.tensor(ONE_CELL.first)?.shape.dim(0) as usize;
    let state_length = sequence.batches as usize * units;
    let memory = FloatInputs::memory(&inputs);
    let lengths = [
        memory,
        state_length,
        state_length * sequence.steps as usize,
        units,
    ];
    let [memory, state, output, sums] = context.scratch.carve::<f32, 4>(lengths)?;
    let inputs = FloatInputs::new(inputs, memory)?;
    let cell = Cell::new(&inputs, &ONE_CELL, (activation, prepared))?;
    state.copy_from_slice(inputs.required(ONE_CELL.first + 3)?);
    let mut pass = Pass {
        backward: false,
        items: Items::whole(sequence, units),
        output: &mut *output,
        sums,
        pace: Pace::new(team),
    };
    let items = Items::whole(sequence, sequence.values as usize);
    cell.run((inputs.required(0)?, items), None, state, &mut pass)?;
    store_numbered(&mut context.outputs, outputs, [output, state])
}

fn bidirectional(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let team = context.team;
    let inputs = context.inputs;
    let rules = inputs.rules();
    let (time_major, merged) = (rules.bool(13)?, rules.bool(14)?);
    let linking = linking(rules)?;
    let activation = CellActivation::from_code(12, inputs.i32(12)?)?;
    let sequence = SequenceShape::of(rules, 0, time_major)?;
    let [forward_units, backward_units] = [0, 1].map(|at| match inputs.optional(TWO_CELLS[at].first) {
        Some(weights) => weights.shape.dim(0) as usize,
        None => 0,
    });
    let batches = sequence.batches as usize;
    let items = batches * sequence.steps as usize;
    let [
        memory,
        forward_state,
        backward_state,
        forward_output,
        backward_output,
        sums,
    ] = context.scratch.carve::<f32, 6>([
        FloatInputs::memory(&inputs),
        batches * forward_units,
        batches * backward_units,
        items
            * if merged {
                forward_units + backward_units
            } else {
                forward_units
            },
        if merged { 0 } else { items * backward_units },
        forward_units.max(backward_units),
    ])?;
    let inputs = FloatInputs::new(inputs, memory)?;
    let (input, aux) = linked_inputs(&inputs, sequence, (9, linking))?;
    for (at, state) in [&mut *forward_state, &mut *backward_state]
        .into_iter()
        .enumerate()
    {
        let backward = at == 1;
        let prepared = cells[at];
        let cell = Cell::new(&inputs, &TWO_CELLS[at], (activation, prepared))?;
        state.copy_from_slice(inputs.required(TWO_CELLS[at].first + 3)?);
        let mut pass = Pass {
            backward,
            output: if backward && !merged {
                &mut *backward_output
            } else {
                &mut *forward_output
            },
            items: Items::of_cell(sequence, [forward_units, backward_units], merged, at),
            sums: &mut sums[..cell.units()],
            pace: Pace::new(team),
        };
        cell.run(input[at], aux, state, &mut pass)?;
    }
    let results: [&[f32]; 4] = [forward_output, backward_output, forward_state, backward_state];
    store_given(&mut context.outputs, &results, merged)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    fn with_cell(operation: OneOperation, state: f32) -> OneOperation {
        operation
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[2_f32])
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[10_f32])
            .tensor(T::TENSOR_FLOAT32, &[1], &[1_f32])
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[state])
    }

    fn sequence(time_major: i32, activation: i32) -> Result<Vec<Computed>, String> {
        let operation = OneOperation::new(OperationType::UNIDIRECTIONAL_SEQUENCE_RNN).tensor(
            T::TENSOR_FLOAT32,
            &[1, 2, 1],
            &[1_f32, 2.0],
        );
        with_cell(operation, 0.0)
            .i32(activation)
            .i32(time_major)
            .output(T::TENSOR_FLOAT32, &[0, 0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .run()
    }

    #[test]
    fn steps_feed_their_state_to_the_next() {
        let outputs = sequence(0, 0).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [3.0, 35.0]);
        assert_eq!(outputs[1].data::<f32>(), [35.0]);
        assert_eq!(sequence(0, 3).unwrap()[0].data::<f32>(), [3.0, 6.0]);
    }

    /// Weights of 0.1 in place of 10 keep the sums where the functions are not flat.
    fn gentle_sequence(activation: i32) -> Vec<f32> {
        let outputs = OneOperation::new(OperationType::UNIDIRECTIONAL_SEQUENCE_RNN)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 1], &[1_f32, 2.0])
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[0.1_f32])
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[0.5_f32])
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.25_f32])
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[0_f32])
            .i32(activation)
            .i32(0)
            .output(T::TENSOR_FLOAT32, &[0, 0, 0])
            .run();
        outputs.unwrap()[0].data()
    }

    #[test]
    fn tanh_and_logistic_are_activations() {
        let of_each = |function: fn(f32) -> f32| {
            let first = function(0.25 + 0.1);
            [first, function(0.25 + 0.2 + 0.5 * first)]
        };
        let near = |found: Vec<f32>, expected: [f32; 2]| {
            found.len() == 2 && (0..2).all(|at| (found[at] - expected[at]).abs() < 1e-6)
        };
        assert!(near(gentle_sequence(4), of_each(f32::tanh)));
        let logistic = |value: f32| 1.0 / (1.0 + (-value).exp());
        assert!(near(gentle_sequence(6), of_each(logistic)));
    }

    #[test]
    fn batches_that_do_not_fit_the_state_give_an_error() {
        // Time-major, the same input is two batches.
        assert!(sequence(1, 0).unwrap_err().contains("input 4"));
        assert!(sequence(0, 9).unwrap_err().contains("(activation) is 9"));
    }

    /// Input 1, 2; auxiliary input 5, 7 with or without weights.
    fn bidirectional(aux: bool, weights: bool) -> Result<Vec<Computed>, String> {
        let operation = OneOperation::new(OperationType::BIDIRECTIONAL_SEQUENCE_RNN).tensor(
            T::TENSOR_FLOAT32,
            &[2, 1, 1],
            &[1_f32, 2.0],
        );
        let mut operation = with_cell(with_cell(operation, 0.0), 0.0);
        operation = if aux {
            operation.tensor(T::TENSOR_FLOAT32, &[2, 1, 1], &[5_f32, 7.0])
        } else {
            operation.omitted(T::TENSOR_FLOAT32)
        };
        for _ in 0..2 {
            operation = if weights {
                operation.tensor(T::TENSOR_FLOAT32, &[1, 1], &[100_f32])
            } else {
                operation.omitted(T::TENSOR_FLOAT32)
            };
        }
        operation
            .i32(0)
            .tensor(T::BOOL, &[], &[1_u8])
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_FLOAT32, &[0, 0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0, 0])
            .run()
    }

    #[test]
    fn auxiliary_input_links_the_directions_by_its_weights_or_replaces_the_backward_input() {
        let values = |outputs: &[Computed]| (outputs[0].data::<f32>(), outputs[1].data::<f32>());
        assert_eq!(
            values(&bidirectional(false, false).unwrap()),
            (vec![3.0, 35.0], vec![53.0, 5.0])
        );
        assert_eq!(
            values(&bidirectional(true, true).unwrap()),
            (vec![503.0, 5735.0], vec![7553.0, 705.0])
        );
        assert_eq!(
            values(&bidirectional(true, false).unwrap()),
            (vec![3.0, 35.0], vec![161.0, 15.0])
        );
        assert!(bidirectional(false, true).unwrap_err().contains("input 9"));
    }
}
