//! BITCAST: the bits of a tensor as elements of another type.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{chained, set};
use crate::ops::signature::{Form, Param, Ty};
use crate::{HalVersion, OperandType as T, Shape, tflite};

use HalVersion::{V1_2, V1_3};

/// Those whose elements may have any bits.
const ANY_BITS: Ty = Ty::AnyOf(&[
    (T::TENSOR_FLOAT32, V1_2),
    (T::TENSOR_FLOAT16, V1_2),
    (T::TENSOR_INT32, V1_2),
    (tflite::TENSOR_INT64, V1_2),
    (T::TENSOR_QUANT8_ASYMM, V1_2),
    (T::TENSOR_QUANT8_ASYMM_SIGNED, V1_3),
    (T::TENSOR_QUANT16_SYMM, V1_2),
]);

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::BITCAST,
    variants: &[],
    forms: &[Form::default(&[Param::new("input", ANY_BITS)])],
    outputs: &[Param::new("output", ANY_BITS)],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(recut),
}];

/// Smaller elements have one more axis, along which those of one larger element lie; larger ones have one
/// less.
fn recut(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let from = context.required(0)?.ty().element_size();
    let to = context.required_output(0)?.ty().element_size();
    if from >= to {
        let parts = (from / to.max(1)) as u32;
        let more = if parts > 1 { &[parts][..] } else { &[] };
        return set(outputs, 0, chained(&[shape.dims(), more])?);
    }
    let parts = (to / from.max(1)) as u32;
    match shape.dims().split_last() {
        Some((last, front)) if *last == parts => set(outputs, 0, chained(&[front])?),
        _ => {
            let message = format!(
                "(input) has dimensions {shape:?}, the last must be {parts}: so many elements make one of {to} bytes"
            );
            Err(OpError::input(0, message).into())
        }
    }
}
