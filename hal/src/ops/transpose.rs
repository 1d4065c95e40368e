//! TRANSPOSE: a tensor with its axes in another order.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_1, V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::TRANSPOSE,
    variants: &[
        Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4)),
        Param::new("permutation", Ty::Is(T::TENSOR_INT32))
            .rank(Rank::Is(1))
            .omissible(),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(transposed),
}];

/// For each axis of the output of TRANSPOSE, the axis of its input 0, which has rank `rank`. Without input 1
/// the order is reversed (HAL text; the HAL's reference knows this for rank 2 only).
pub fn permutation(context: &dyn OperationContext, rank: usize) -> Result<[usize; MAX_RANK], ShapeIssue> {
    let mut axes = [0; MAX_RANK];
    if context.input(1).is_none() {
        for (at, axis) in axes[..rank].iter_mut().enumerate() {
            *axis = rank - 1 - at;
        }
        return Ok(axes);
    }
    let given = context.i32s(1)?;
    let mut seen = [false; MAX_RANK];
    let mut fits = given.len() == rank;
    for (axis, &from) in axes[..rank].iter_mut().zip(given) {
        let from = usize::try_from(from).ok().filter(|from| *from < rank);
        fits &= from.is_some_and(|from| !std::mem::replace(&mut seen[from], true));
        *axis = from.unwrap_or(0);
    }
    if fits {
        return Ok(axes);
    }
    let message = format!("(permutation) is {given:?}, must hold each of the {rank} axes of input 0 once");
    Err(OpError::input(1, message).into())
}

fn transposed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let axes = permutation(context, shape.rank())?;
    let dims = axes.map(|axis| shape.dim(axis));
    set(outputs, 0, shape_of(&dims[..shape.rank()])?)
}
