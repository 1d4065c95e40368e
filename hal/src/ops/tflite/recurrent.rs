//! UNIDIRECTIONAL_SEQUENCE_LSTM of signed bytes: the cell of QUANTIZED_LSTM over a sequence.

use crate::ops::context::{OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::quantized_lstm::{self, TIME_MAJOR, set_states};
use crate::ops::recurrent::{SequenceShape, join};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank};
use crate::{OperandType as T, Shape, tflite};

/// The inputs of QUANTIZED_LSTM, and the order of a sequence's items.
const SEQUENCE_INPUTS: [Param; TIME_MAJOR + 1] = {
    let mut inputs = join(&[&quantized_lstm::INPUTS, &[Param::scalar("time_major", T::BOOL)]]);
    inputs[0] = quantized_lstm::INPUTS[0].late_rank(Rank::Is(3));
    inputs
};

/// The outputs of QUANTIZED_LSTM, of which the last is a sequence.
const SEQUENCE_OUTPUTS: [Param; 3] = {
    let mut outputs = quantized_lstm::OUTPUTS;
    outputs[2] = outputs[2].late_rank(Rank::Is(3));
    outputs
};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::UNIDIRECTIONAL_SEQUENCE_LSTM,
    variants: &[],
    forms: &[Form::default(&SEQUENCE_INPUTS)],
    outputs: &SEQUENCE_OUTPUTS,
    outputs_repeat: false,
    check: quantized_lstm::check,
    shape: ShapeRule::Infer(sequence),
}];

fn sequence(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = SequenceShape::of(context, 0, context.bool(TIME_MAJOR)?)?;
    let values = set_states(context, (input.batches, input.values), outputs)?;
    set(outputs, 2, shape_of(&input.dims(values))?)
}
