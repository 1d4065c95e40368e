//! Recurrent layers of signed bytes: the cell of QUANTIZED_LSTM over a sequence, and SVDF.

use crate::ops::context::{OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::quantized_lstm::{self, TIME_MAJOR, set_states, tensor};
use crate::ops::recurrent::{SequenceShape, check_code};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank, join};
use crate::ops::svdf;
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

/// The state of SVDF.
const fn state(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT16_SYMM, 2)
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::SVDF,
        variants: &[],
        forms: &[Form::default(&[
            tensor("input", T::TENSOR_QUANT8_ASYMM_SIGNED, 2),
            tensor("weights_feature", T::TENSOR_QUANT8_SYMM, 2),
            tensor("weights_time", T::TENSOR_QUANT16_SYMM, 2),
            tensor("bias", T::TENSOR_INT32, 1).omissible(),
            state("state_in"),
            Param::scalar("rank", T::INT32),
            Param::scalar("activation", T::INT32),
        ])],
        outputs: &[
            state("state_out"),
            tensor("output", T::TENSOR_QUANT8_ASYMM_SIGNED, 2),
        ],
        outputs_repeat: false,
        check: |context| {
            check_code(context, 6, "activation", &[1])?;
            context.check_same_quantization(4, 0)
        },
        shape: ShapeRule::Infer(svdf::filtered),
    },
    OperationEntry {
        operation: tflite::UNIDIRECTIONAL_SEQUENCE_LSTM,
        variants: &[],
        forms: &[Form::default(&SEQUENCE_INPUTS)],
        outputs: &SEQUENCE_OUTPUTS,
        outputs_repeat: false,
        check: quantized_lstm::check,
        shape: ShapeRule::Infer(sequence),
    },
];

fn sequence(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = SequenceShape::of(context, 0, context.bool(TIME_MAJOR)?)?;
    let values = set_states(context, (input.batches, input.values), outputs)?;
    set(outputs, 2, shape_of(&input.dims(values))?)
}
