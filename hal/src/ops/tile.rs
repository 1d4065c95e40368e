//! TILE: a tensor repeated along its axes.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::TILE,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_INT32]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::new("multiples", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(tiled),
}];

/// Each extent times its element of input 1.
fn tiled(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut shape = context.shape(0)?;
    let multiples = context.i32s(1)?;
    if multiples.len() != shape.rank() {
        let message = format!(
            "(multiples) has {} elements, must have {} as input 0 has axes",
            multiples.len(),
            shape.rank()
        );
        return Err(OpError::input(1, message).into());
    }
    for (extent, &multiple) in shape.dims_mut().iter_mut().zip(multiples) {
        *extent = u32::try_from(multiple)
            .ok()
            .and_then(|multiple| extent.checked_mul(multiple))
            .ok_or_else(|| {
                let message = format!(
                    "(multiples) is {multiple} for an extent of {extent}, must not be negative, nor the product beyond \
                     32 bits"
                );
                OpError::input(1, message)
            })?;
    }
    set(outputs, 0, shape_of(shape.dims())?)
}
