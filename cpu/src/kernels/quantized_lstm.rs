//! LSTM layers with signed 8-bit inputs and outputs and a 16-bit cell: one step as QUANTIZED_LSTM, a sequence
//! as the extension's UNIDIRECTIONAL_SEQUENCE_LSTM.

use nnhal_hal::ops::quantized_lstm::{CELL, TIME_MAJOR};
use nnhal_hal::ops::recurrent::SequenceShape;
use nnhal_hal::{OperationType, tflite};

use super::quantized_lstm_cell::{Cell, Rules};
use super::quantized_lstm_gates::{Item, Peepholes};
use super::recurrent::{self, Items};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::QUANTIZED_LSTM, one_step),
    (tflite::UNIDIRECTIONAL_SEQUENCE_LSTM, sequence),
];

fn one_step(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let sequence = recurrent::one_step(&context.inputs)?;
    run(context, sequence, Rules::Named)
}

fn sequence(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let sequence = SequenceShape::of(rules, 0, rules.bool(TIME_MAJOR)?)?;
    run(context, sequence, Rules::Tflite)
}

fn run(context: &mut KernelContext<'_>, sequence: SequenceShape, rules: Rules) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let cell = Cell::new(&inputs, rules)?;
    let mut pace = context.pace();
    let (last, cells) = (inputs.tensor(CELL.output_state)?, inputs.tensor(CELL.cell_state)?);
    let (values, outputs, units) = (
        sequence.values as usize,
        last.shape.dim(1) as usize,
        cells.shape.dim(1) as usize,
    );
    let [gates] = context.scratch.carve::<i16, 1>([4 * units])?;
    let [output_state, cell_state, output] = context.outputs.tensors([0, 1, 2])?;
    let (output_state, cell_state) = (output_state.into_data::<i8>()?, cell_state.into_data::<i16>()?);
    let output = output.into_data::<i8>()?;
    output_state.copy_from_slice(last.data()?);
    cell_state.copy_from_slice(cells.data()?);
    let input = inputs.data::<i8>(0)?;
    let (read, written) = (Items::whole(sequence, values), Items::whole(sequence, outputs));
    for step in 0..sequence.steps as usize {
        for batch in 0..sequence.batches as usize {
            pace.work(4 * units * (values + outputs))?;
            let state = &mut output_state[batch * outputs..][..outputs];
            let output = &mut output[written.range(step, batch)];
            let peepholes = match rules {
                Rules::Named => Peepholes::of_all(units),
                Rules::Tflite => peepholes(sequence, batch, (units, outputs)),
            };
            let item = Item {
                input: &input[read.range(step, batch)],
                last_output: state,
                peepholes,
            };
            cell.step(&item, &mut cell_state[batch * units..][..units], gates, output);
            state.copy_from_slice(output);
        }
    }
    Ok(())
}

/// The peepholes of a batch as TFLite's kernel has them: where a projection leaves fewer outputs than units,
/// it takes only as many weights, for consecutive units of all batches of a step.
fn peepholes(sequence: SequenceShape, batch: usize, (units, outputs): (usize, usize)) -> Peepholes {
    if outputs >= units {
        return Peepholes::of_all(units);
    }
    // Of batch-major sequences it computes one batch after the other.
    let (batch, batches) = if sequence.time_major {
        (batch, sequence.batches as usize)
    } else {
        (0, 1)
    };
    Peepholes {
        first: batch * units,
        count: batches * outputs,
        period: outputs,
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use super::{SequenceShape, peepholes};
    use crate::kernels::testing::{Computed, OneOperation};

    struct Case {
        cell_scale: f32,
        intermediate_scale: f32,
        hidden: (i32, f32),
        cell_clip: f32,
        /// Columns of the output state.
        outputs: u32,
        time_major: bool,
    }

    const CASE: Case = Case {
        cell_scale: 1.0 / 32768.0,
        intermediate_scale: 1.0 / 4096.0,
        hidden: (0, 1.0 / 128.0),
        cell_clip: 0.0,
        outputs: 1,
        time_major: false,
    };

    /// One unit without projection, peephole or normalisation; the input's gates see 0, the cell is at one
    /// half.
    fn step(case: &Case) -> Result<Vec<Computed>, String> {
        let zero = case.hidden.0.clamp(-128, 127) as i8;
        run(case, OperationType::QUANTIZED_LSTM, &[1, 1], &[zero], 1)
    }

    /// An operation of this cell on an input of these dimensions, with a state for each batch.
    fn run(
        case: &Case,
        operation: OperationType,
        dims: &[u32],
        input: &[i8],
        batches: usize,
    ) -> Result<Vec<Computed>, String> {
        let weights = Operand::new(T::TENSOR_QUANT8_SYMM, &[1, 1]).with_quantization(1.0 / 128.0, 0);
        let state = |dims: &[u32]| {
            Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims)
                .with_quantization(1.0 / 128.0, case.hidden.0.clamp(-128, 127))
        };
        let cell =
            Operand::new(T::TENSOR_QUANT16_SYMM, &[batches as u32, 1]).with_quantization(case.cell_scale, 0);
        let zero = case.hidden.0.clamp(-128, 127) as i8;
        let is_sequence = operation == tflite::UNIDIRECTIONAL_SEQUENCE_LSTM;
        let mut operation = OneOperation::new(operation).operand(state(dims), input);
        for _ in 0..8 {
            operation = operation.operand(weights.clone(), &[64_i8]);
        }
        for _ in 0..3 {
            operation = operation
                .omitted_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[0]).with_quantization(1.0, 0));
        }
        for _ in 0..4 {
            operation = operation.tensor(T::TENSOR_INT32, &[1], &[0_i32]);
        }
        operation = operation
            .omitted_operand(Operand::new(T::TENSOR_QUANT8_SYMM, &[0]).with_quantization(1.0, 0))
            .omitted(T::TENSOR_INT32)
            .operand(
                state(&[batches as u32, case.outputs]),
                &vec![zero; batches * case.outputs as usize],
            )
            .operand(cell.clone(), &vec![16384_i16; batches]);
        for _ in 0..4 {
            operation = operation
                .omitted_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[0]).with_quantization(1.0, 0));
        }
        operation = operation.f32(case.cell_clip).f32(0.0);
        for _ in 0..4 {
            operation = operation.f32(case.intermediate_scale);
        }
        operation = operation.i32(case.hidden.0).f32(case.hidden.1);
        if is_sequence {
            operation = operation.tensor(T::BOOL, &[], &[u8::from(case.time_major)]);
        }
        operation
            .output_operand(state(&[0, 0]))
            .output_operand(cell)
            .output_operand(state(&vec![0; dims.len()]))
            .run()
    }

    #[test]
    fn gates_that_see_nothing_keep_half_of_the_cell() {
        let outputs = step(&CASE).unwrap();
        assert_eq!(outputs[1].data::<i16>(), [8192]);
        // tanh(0.25) / 2 = 0.1225, in steps of 1/128.
        assert_eq!(outputs[0].data::<i8>(), [16]);
        assert_eq!(outputs[2].data::<i8>(), [16]);
    }

    #[test]
    fn outputs_without_projection_have_the_hidden_zero_point() {
        let case = Case {
            hidden: (-20, 1.0 / 128.0),
            ..CASE
        };
        assert_eq!(step(&case).unwrap()[2].data::<i8>(), [-4]);
    }

    #[test]
    fn clip_bounds_the_cell() {
        let case = Case {
            cell_clip: 0.125,
            ..CASE
        };
        assert_eq!(step(&case).unwrap()[1].data::<i16>(), [4096]);
    }

    #[test]
    fn scales_zero_points_and_dimensions_that_do_not_fit_give_an_error() {
        let refused = |case: Case| step(&case).unwrap_err();
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let case = Case {
                intermediate_scale: scale,
                ..CASE
            };
            assert!(refused(case).contains("input 26"), "{scale}");
        }
        for (hidden, place) in [((300, 1.0), "input 30"), ((0, 0.0), "input 31")] {
            assert!(refused(Case { hidden, ..CASE }).contains(place));
        }
        for cell_scale in [1.0 / 65536.0, 1.0 / 256.0, 0.001] {
            assert!(refused(Case { cell_scale, ..CASE }).contains("input 19"));
        }
        let case = Case { outputs: 2, ..CASE };
        assert!(refused(case).contains("must be [1, 1]"));
    }

    fn sequence(case: &Case, dims: [u32; 3], input: &[i8], batches: usize) -> Result<Vec<Computed>, String> {
        run(case, tflite::UNIDIRECTIONAL_SEQUENCE_LSTM, &dims, input, batches)
    }

    #[test]
    fn a_sequence_is_steps_that_hand_on_their_state() {
        let outputs = sequence(&CASE, [1, 2, 1], &[0, 0], 1).unwrap();
        let [first, second] = outputs[2].data::<i8>()[..] else {
            panic!("one value for each step")
        };
        let once = step(&CASE).unwrap();
        assert_eq!(first, once[2].data::<i8>()[0]);
        assert_eq!(outputs[0].data::<i8>(), [second]);
        // What the first step gave out makes the gates open a little: more than half of the half is left.
        assert!(outputs[1].data::<i16>()[0] > 4096);
        assert_eq!(outputs[2].dims, [1, 2, 1]);
    }

    #[test]
    fn batches_come_before_or_after_time() {
        let batch_major = sequence(&CASE, [2, 3, 1], &[1, 2, 3, 40, 50, 60], 2).unwrap();
        let case = Case {
            time_major: true,
            ..CASE
        };
        let time_major = sequence(&case, [3, 2, 1], &[1, 40, 2, 50, 3, 60], 2).unwrap();
        for state in 0..2 {
            assert_eq!(batch_major[state].bytes, time_major[state].bytes);
        }
        let transposed: Vec<i8> = [0, 2, 4, 1, 3, 5]
            .map(|at: usize| time_major[2].data::<i8>()[at])
            .to_vec();
        assert_eq!(batch_major[2].data::<i8>(), transposed);
        assert_ne!(transposed[..3], transposed[3..]);
    }

    #[test]
    fn sequences_of_other_dimensions_give_an_error() {
        let error = sequence(&CASE, [1, 1, 2], &[0, 0], 1).unwrap_err();
        assert!(error.contains("input 1:"), "{error}");
        let error = sequence(&CASE, [2, 1, 1], &[0, 0], 1).unwrap_err();
        assert!(error.contains("input 18"), "{error}");
        let case = Case {
            intermediate_scale: 0.0,
            ..CASE
        };
        assert!(
            sequence(&case, [1, 1, 1], &[0], 1)
                .unwrap_err()
                .contains("input 26")
        );
    }

    #[test]
    fn a_projection_to_fewer_outputs_leaves_as_many_peepholes() {
        let sequence = SequenceShape {
            steps: 1,
            batches: 2,
            values: 1,
            time_major: true,
        };
        let weights = |sequence, batch, outputs| {
            let peepholes = peepholes(sequence, batch, (3, outputs));
            [0, 1, 2].map(|unit| peepholes.weight(unit))
        };
        assert_eq!(weights(sequence, 0, 2), [Some(0), Some(1), Some(0)]);
        assert_eq!(weights(sequence, 1, 2), [Some(1), None, None]);
        assert_eq!(weights(sequence, 1, 0), [None; 3]);
        assert_eq!(weights(sequence, 1, 3), [Some(0), Some(1), Some(2)]);
        let batch_major = SequenceShape {
            time_major: false,
            ..sequence
        };
        assert_eq!(weights(batch_major, 1, 2), [Some(0), Some(1), None]);
    }
}
