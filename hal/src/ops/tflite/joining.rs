//! CONCATENATION of every type and rank.

use crate::ops::concatenation::{check_axis, joined, one_quantization};
use crate::ops::context::{OpError, OperationContext};
use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::signature::{Form, Param, Ty};
use crate::{OperandType as T, tflite};

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::CONCATENATION,
    variants: MOVED,
    forms: &[Form::default(&[
        Param::new("inputs", Ty::Var(0)).repeated(),
        Param::scalar("axis", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(joined),
}];

/// Steps of 16 bits are only moved, so that all tensors of them must have one scale.
fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    check_axis(context)?;
    if context.required(0)?.ty() == T::TENSOR_QUANT16_SYMM {
        one_quantization(context)?;
    }
    Ok(())
}
