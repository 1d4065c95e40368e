//! TOPK_V2: the largest elements along the last axis and where they are.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::TOPK_V2,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_INT32]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::scalar("k", T::INT32),
    ])],
    outputs: &[
        Param::new("values", Ty::Var(0)),
        Param::new("indices", Ty::Is(T::TENSOR_INT32)),
    ],
    outputs_repeat: false,
    check: same_quantization,
    shape: ShapeRule::Infer(topk_shape),
}];

fn same_quantization(context: &dyn OperationContext) -> Result<(), OpError> {
    context.check_same_quantization(0, 0)
}

/// The input's dimensions with k as the last.
fn topk_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let wrong = |k: i32, most: &str| OpError::input(1, format!("(k) is {k}, must be from 1 to {most}"));
    if let Some(k) = unless_unknown(context.i32(1))?
        && k < 1
    {
        return Err(wrong(k, "the last dimension of the input").into());
    }
    let mut shape = context.shape(0)?;
    let k = context.i32(1)?;
    let Some(last) = shape.dims_mut().last_mut() else {
        return Err(OpError::input(0, "has rank 0, must have rank 1 or more").into());
    };
    *last = u32::try_from(k)
        .ok()
        .filter(|k| (1..=*last).contains(k))
        .ok_or_else(|| wrong(k, &last.to_string()))?;
    shapes::set(outputs, 0, shape)?;
    shapes::set(outputs, 1, shape)
}
