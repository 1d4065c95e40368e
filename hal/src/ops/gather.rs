//! GATHER: slices of a tensor along an axis, picked by indices.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{resolve_axis, set, shape_of};
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::GATHER,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_INT32]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::scalar("axis", T::INT32),
        Param::new("indices", Ty::Is(T::TENSOR_INT32)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(gathered),
}];

/// The input's dimensions with those of the indices in place of the axis.
fn gathered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, indices) = (context.shape(0)?, context.shape(2)?);
    let axis = resolve_axis(1, context.i32(1)?, shape.rank())?;
    let rank = shape.rank() - 1 + indices.rank();
    let mut dims = [0_u32; MAX_RANK];
    let slots = dims.get_mut(..rank).ok_or_else(|| {
        OpError::operation(format!(
            "gives a tensor of rank {rank}, at most {MAX_RANK} are supported"
        ))
    })?;
    let extents = shape.dims()[..axis]
        .iter()
        .chain(indices.dims())
        .chain(&shape.dims()[axis + 1..]);
    for (slot, extent) in slots.iter_mut().zip(extents) {
        *slot = *extent;
    }
    // A tensor has at least one axis; one element picked by a scalar index is [1].
    let rank = if rank == 0 {
        dims[0] = 1;
        1
    } else {
        rank
    };
    set(outputs, 0, shape_of(&dims[..rank])?)
}
