//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM. Float16 is computed in float32
//! throughout, states between steps included.

use nnhal_hal::OperationType;
use nnhal_hal::ops::lstm::{SEQUENCE_CELL, STEP_CELL, TWO_CELLS, linking};
use nnhal_hal::ops::lstm_cell::{CellInputs, Gate};
use nnhal_hal::ops::recurrent::SequenceShape;

use super::lstm_cell::{Cell, Pass, Settings, State};
use super::recurrent::{
    self, FloatInputs, Items, PreparedCell, PreparedCells, linked_inputs, store_given, store_numbered,
};
use crate::kernel::{Inputs, Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::LSTM, run),
    (OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM, run),
    (OperationType::BIDIRECTIONAL_SEQUENCE_LSTM, run),
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
        OperationType::LSTM => one_step(context, cells),
        OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => unidirectional(context, cells),
        _ => bidirectional(context, cells),
    }
}

/// LSTM is a sequence of one step. Its first output is room to compute in, which nothing needs here.
fn one_step(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let sequence = recurrent::one_step(&context.inputs)?;
    context.outputs.tensor(0)?.bytes.fill(0);
    single_cell(
        context,
        (&STEP_CELL, cells[0]),
        sequence,
        [Some(3), Some(1), Some(2)],
    )
}

fn unidirectional(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let sequence = SequenceShape::of(rules, 0, rules.bool(23)?)?;
    let with_states = context.outputs.len() > 1;
    let outputs = [Some(0), with_states.then_some(1), with_states.then_some(2)];
    single_cell(context, (&SEQUENCE_CELL, cells[0]), sequence, outputs)
}

/// Units and output values of a cell.
fn sizes(inputs: &Inputs<'_>, at: &CellInputs) -> Result<(usize, usize), KernelError> {
    let recurrent = inputs.tensor(at.recurrent_weights(Gate::Forget))?;
    Ok((recurrent.shape.dim(0) as usize, recurrent.shape.dim(1) as usize))
}

/// Runs the only cell; `numbers` are those of the output, the output state and the cell state, where given.
fn single_cell(
    context: &mut KernelContext<'_>,
    (at, prepared): (&CellInputs, Option<&dyn PreparedCell>),
    sequence: SequenceShape,
    numbers: [Option<usize>; 3],
) -> Result<(), KernelError> {
    let team = context.team;
    let inputs = context.inputs;
    let settings = Settings::new(&inputs, 20)?;
    let (units, values) = sizes(&inputs, at)?;
    let batches = sequence.batches as usize;
    let [memory, output, output_state, cell_state, gates] = context.scratch.carve::<f32, 5>([
        FloatInputs::memory(&inputs),
        sequence.steps as usize * batches * values,
        batches * values,
        batches * units,
        4 * units,
    ])?;
    let inputs = FloatInputs::new(inputs, memory)?;
    output_state.copy_from_slice(inputs.required(at.output_state)?);
    cell_state.copy_from_slice(inputs.required(at.cell_state)?);
    let mut state = State {
        output: &mut *output_state,
        cell: &mut *cell_state,
    };
    let mut pass = Pass {
        input: (
            inputs.required(0)?,
            Items::whole(sequence, sequence.values as usize),
        ),
        aux: None,
        backward: false,
        output: (&mut *output, Items::whole(sequence, values)),
        gates,
        pace: Pace::new(team),
    };
    Cell::new(&inputs, at, (settings, prepared))?.run(&mut state, &mut pass)?;
    store_numbered(&mut context.outputs, numbers, [output, output_state, cell_state])
}

fn bidirectional(context: &mut KernelContext<'_>, cells: PreparedCells<'_>) -> Result<(), KernelError> {
    let team = context.team;
    let inputs = context.inputs;
    let rules = inputs.rules();
    let settings = Settings::new(&inputs, 48)?;
    let (merged, time_major) = (rules.bool(51)?, rules.bool(52)?);
    let linking = linking(rules)?;
    let sequence = SequenceShape::of(rules, 0, time_major)?;
    let sizes = [sizes(&inputs, &TWO_CELLS[0])?, sizes(&inputs, &TWO_CELLS[1])?];
    let [(forward_units, forward_values), (backward_units, backward_values)] = sizes;
    let batches = sequence.batches as usize;
    let items = batches * sequence.steps as usize;
    let [
        memory,
        forward,
        backward,
        forward_output,
        forward_cell,
        backward_output,
        backward_cell,
        gates,
    ] = context.scratch.carve::<f32, 8>([
        FloatInputs::memory(&inputs),
        items * (forward_values + if merged { backward_values } else { 0 }),
        if merged { 0 } else { items * backward_values },
        batches * forward_values,
        batches * forward_units,
        batches * backward_values,
        batches * backward_units,
        4 * forward_units.max(backward_units),
    ])?;
    let inputs = FloatInputs::new(inputs, memory)?;
    let (input, aux) = linked_inputs(&inputs, sequence, (39, linking))?;
    let mut states = [
        State {
            output: &mut *forward_output,
            cell: &mut *forward_cell,
        },
        State {
            output: &mut *backward_output,
            cell: &mut *backward_cell,
        },
    ];
    for (direction, state) in states.iter_mut().enumerate() {
        let at = &TWO_CELLS[direction];
        let is_backward = direction == 1;
        state.output.copy_from_slice(inputs.required(at.output_state)?);
        state.cell.copy_from_slice(inputs.required(at.cell_state)?);
        let mut pass = Pass {
            input: input[direction],
            aux,
            backward: is_backward,
            output: (
                if is_backward && !merged {
                    &mut *backward
                } else {
                    &mut *forward
                },
                Items::of_cell(sequence, [forward_values, backward_values], merged, direction),
            ),
            gates: &mut gates[..4 * sizes[direction].0],
            pace: Pace::new(team),
        };
        let prepared = cells[direction];
        Cell::new(&inputs, at, (settings, prepared))?.run(state, &mut pass)?;
    }
    let results: [&[f32]; 6] = [
        forward,
        backward,
        forward_output,
        forward_cell,
        backward_output,
        backward_cell,
    ];
    store_given(&mut context.outputs, &results, merged)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    const UNITS: u32 = 2;

    /// Weights that are all different.
    fn ramp(count: u32, seed: u32) -> Vec<f32> {
        (0..count)
            .map(|index| ((index * 7 + seed * 3) % 11) as f32 / 11.0 - 0.4)
            .collect()
    }

    /// The 17 weights of a cell on inputs of `values`, with or without an input gate of its own.
    fn with_cell(operation: OneOperation, values: u32, coupled: bool) -> OneOperation {
        (0..17).fold(operation, |operation, number| {
            let omitted = match number {
                0 | 4 | 11 => coupled,
                8..=10 | 15 | 16 => true,
                _ => false,
            };
            let dims: &[u32] = match number {
                0..=3 => &[UNITS, values],
                4..=7 => &[UNITS, UNITS],
                _ => &[UNITS],
            };
            if omitted {
                operation.omitted(T::TENSOR_FLOAT32)
            } else {
                operation.tensor(T::TENSOR_FLOAT32, dims, &ramp(dims.iter().product(), number))
            }
        })
    }

    fn with_settings(operation: OneOperation, activation: i32, clip: f32) -> OneOperation {
        operation.i32(activation).f32(clip).f32(0.0)
    }

    fn step(
        input: &[f32; 3],
        states: [&[f32]; 2],
        coupled: bool,
        settings: (i32, f32),
    ) -> Result<Vec<Computed>, String> {
        let operation = OneOperation::new(OperationType::LSTM).tensor(T::TENSOR_FLOAT32, &[1, 3], input);
        let operation = states
            .iter()
            .fold(with_cell(operation, 3, coupled), |operation, state| {
                operation.tensor(T::TENSOR_FLOAT32, &[1, state.len() as u32], state)
            });
        (0..4)
            .fold(
                with_settings(operation, settings.0, settings.1),
                |operation, _| operation.output(T::TENSOR_FLOAT32, &[0, 0]),
            )
            .run()
    }

    fn sequence(input: &[[f32; 3]], time_major: bool) -> Result<Vec<Computed>, String> {
        let steps = input.len() as u32;
        let dims = if time_major { [steps, 1, 3] } else { [1, steps, 3] };
        let operation = OneOperation::new(OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM).tensor(
            T::TENSOR_FLOAT32,
            &dims,
            input.as_flattened(),
        );
        let operation = with_cell(operation, 3, false)
            .tensor(T::TENSOR_FLOAT32, &[1, UNITS], &[0.0_f32; 2])
            .tensor(T::TENSOR_FLOAT32, &[1, UNITS], &[0.0_f32; 2]);
        let operation = with_settings(operation, 4, 0.0).tensor(T::BOOL, &[], &[u8::from(time_major)]);
        (0..4)
            .fold(operation, |operation, _| operation.omitted(T::TENSOR_FLOAT32))
            .output(T::TENSOR_FLOAT32, &[0, 0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .run()
    }

    const ITEMS: [[f32; 3]; 3] = [[0.5, -1.0, 2.0], [1.0, 0.25, -0.5], [-2.0, 1.5, 0.75]];

    #[test]
    fn sequence_is_as_many_steps() {
        let all = sequence(&ITEMS, true).unwrap();
        assert_eq!(all[0].dims, [3, 1, UNITS]);
        let mut states = [vec![0.0; 2], vec![0.0; 2]];
        for (number, item) in ITEMS.iter().enumerate() {
            let outputs = step(item, [&states[0], &states[1]], false, (4, 0.0)).unwrap();
            assert_eq!(outputs[3].data::<f32>(), all[0].data::<f32>()[number * 2..][..2]);
            states = [outputs[1].data(), outputs[2].data()];
        }
        assert_eq!(all[1].data::<f32>(), states[0]);
        assert_eq!(all[2].data::<f32>(), states[1]);
        assert_eq!(
            sequence(&ITEMS, false).unwrap()[0].data::<f32>(),
            all[0].data::<f32>()
        );
    }

    fn bidirectional(merged: bool, outputs: usize) -> Result<Vec<Computed>, String> {
        let operation = OneOperation::new(OperationType::BIDIRECTIONAL_SEQUENCE_LSTM).tensor(
            T::TENSOR_FLOAT32,
            &[3, 1, 3],
            ITEMS.as_flattened(),
        );
        let mut operation = with_cell(with_cell(operation, 3, false), 3, true);
        for _ in 0..4 {
            operation = operation.tensor(T::TENSOR_FLOAT32, &[1, UNITS], &[0.1_f32; 2]);
        }
        for _ in 0..9 {
            operation = operation.omitted(T::TENSOR_FLOAT32);
        }
        operation = with_settings(operation, 4, 0.0)
            .tensor(T::BOOL, &[], &[u8::from(merged)])
            .tensor(T::BOOL, &[], &[1_u8]);
        for _ in 0..8 {
            operation = operation.omitted(T::TENSOR_FLOAT32);
        }
        (0..outputs)
            .fold(operation, |operation, _| operation.output(T::TENSOR_FLOAT32, &[]))
            .run()
    }

    #[test]
    fn merged_outputs_hold_both_directions_side_by_side() {
        let apart = bidirectional(false, 6).unwrap();
        let merged = bidirectional(true, 5).unwrap();
        assert_eq!(merged[0].dims, [3, 1, 2 * UNITS]);
        let (forward, backward) = (apart[0].data::<f32>(), apart[1].data::<f32>());
        for (step, values) in merged[0].data::<f32>().chunks_exact(4).enumerate() {
            assert_eq!(values[..2], forward[step * 2..][..2]);
            assert_eq!(values[2..], backward[step * 2..][..2]);
        }
        // The backward direction ends at the first item.
        assert_eq!(apart[4].data::<f32>(), backward[..2]);
        assert_eq!(merged[3].data::<f32>(), backward[..2]);
    }

    #[test]
    fn output_counts_that_do_not_fit_the_merge_flag_give_an_error() {
        assert!(
            bidirectional(true, 2)
                .unwrap_err()
                .contains("has 2 outputs, gives 1 or 5")
        );
        assert!(bidirectional(false, 5).is_err());
    }

    #[test]
    fn coupled_gates_take_three_parts_of_scratch() {
        let zero: &[f32] = &[0.0; 2];
        assert_eq!(
            step(&ITEMS[0], [zero; 2], true, (4, 0.0)).unwrap()[0].dims,
            [1, 3 * UNITS]
        );
        assert_eq!(
            step(&ITEMS[0], [zero; 2], false, (4, 0.0)).unwrap()[0].dims,
            [1, 4 * UNITS]
        );
    }

    #[test]
    fn clips_bound_the_cell_and_bad_ones_give_an_error() {
        let large: &[f32] = &[9.0; 2];
        let outputs = step(&ITEMS[0], [large; 2], false, (0, 0.5)).unwrap();
        assert!(outputs[2].data::<f32>().iter().all(|value| value.abs() <= 0.5));
        for clip in [-1.0, f32::NAN] {
            assert!(
                step(&ITEMS[0], [large; 2], false, (0, clip))
                    .unwrap_err()
                    .contains("input 21")
            );
        }
    }

    #[test]
    fn codes_and_states_that_do_not_fit_give_an_error() {
        let zero: &[f32] = &[0.0; 2];
        assert!(
            step(&ITEMS[0], [zero; 2], false, (5, 0.0))
                .unwrap_err()
                .contains("(activation) is 5")
        );
        let error = step(&ITEMS[0], [zero, &[0.0; 3]], false, (4, 0.0)).unwrap_err();
        assert!(
            error.contains("input 19: has dimensions [1, 3], must be [1, 2]"),
            "{error}"
        );
    }
}
