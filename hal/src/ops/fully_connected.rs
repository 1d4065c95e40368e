//! FULLY_CONNECTED: a matrix times the input.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::filters::{self, BIAS};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_error, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::{self, ACTIVATION};

use HalVersion::{V1_0, V1_2, V1_3};

const TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32; 3]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16; 3]),
    filters::QUANT8_BEFORE_1_2,
    Variant::new(V1_2, filters::QUANT8),
    Variant::new(V1_3, filters::SIGNED),
];

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::FULLY_CONNECTED,
    variants: TYPES,
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)).rank(Rank::Between(2, 4)),
        Param::new("weights", Ty::Var(1)).rank(Rank::Is(2)),
        BIAS,
        ACTIVATION,
    ])],
    outputs: &[Param::new("output", Ty::Var(0)).rank(Rank::Is(2))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(infer),
}];

/// The weights are `[units, input size]`; the input is taken as `[batch, input size]` whatever its rank.
fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let weights = context.shape_of_rank(1, 2)?;
    let (units, size) = (weights.dim(0), weights.dim(1));
    if units == 0 || size == 0 {
        let message = format!("(weights) has dimensions {weights:?}, neither may be 0");
        return Err(OpError::input(1, message).into());
    }
    filters::check_bias_length(context, units)?;
    let input = context.shape(0)?;
    let elements = input.elements().map_err(shape_error)?;
    if elements % size as usize != 0 {
        let message = format!(
            "(input) has {elements} elements, must have a multiple of {size}, the second dimension of the weights"
        );
        return Err(OpError::input(0, message).into());
    }
    // At most the element count, which fits.
    set(outputs, 0, shape_of(&[(elements / size as usize) as u32, units])?)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    filters::check_quantization(context)?;
    windows::check_activation(context, 3)
}
