//! Operations that give the same values another shape: RESHAPE, SQUEEZE and EXPAND_DIMS.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{resolve_axis, set, shape_error, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{Level6, V1_0, V1_1, V1_2, V1_3};

const RESHAPE_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(Level6, &[T::TENSOR_INT32]),
];

const SQUEEZE_TYPES: &[Variant] = &[
    Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const EXPAND_DIMS_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const INPUT: Param = Param::new("input", Ty::Var(0));
const INPUT_UP_TO_4: Param = INPUT.rank(Rank::Between(1, 4));
const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

const fn entry(
    operation: OperationType,
    variants: &'static [Variant],
    forms: &'static [Form],
    shape: fn(&dyn OperationContext, &mut [Shape]) -> Result<(), ShapeIssue>,
) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms,
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(shape),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(
        OperationType::RESHAPE,
        RESHAPE_TYPES,
        &[Form::default(&[
            INPUT_UP_TO_4,
            Param::new("shape", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
        ])],
        reshaped,
    ),
    entry(
        OperationType::SQUEEZE,
        SQUEEZE_TYPES,
        &[Form::default(&[
            INPUT_UP_TO_4,
            Param::new("axes", Ty::Is(T::TENSOR_INT32))
                .rank(Rank::Is(1))
                .omissible(),
        ])],
        squeezed,
    ),
    entry(
        OperationType::EXPAND_DIMS,
        EXPAND_DIMS_TYPES,
        &[Form::default(&[INPUT, Param::scalar("axis", T::INT32)])],
        expanded,
    ),
];

/// The dimensions of input 1, of which at most one may be -1: it takes what the others leave of the elements.
fn reshaped(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let wanted = context.i32s(1)?;
    let invalid = |message: String| ShapeIssue::Invalid(OpError::input(1, format!("(shape) {message}")));
    if wanted.is_empty() || wanted.len() > MAX_RANK {
        return Err(invalid(format!(
            "has {} entries, must have 1 to {MAX_RANK}",
            wanted.len()
        )));
    }
    let mut dims = [0_u32; MAX_RANK];
    let mut open = None;
    for (axis, &extent) in wanted.iter().enumerate() {
        match (u32::try_from(extent), open) {
            (Ok(extent), _) => dims[axis] = extent,
            (Err(_), None) if extent == -1 => {
                open = Some(axis);
                dims[axis] = 1;
            }
            _ => {
                return Err(invalid(format!(
                    "is {wanted:?}, must hold extents, at most one of them -1 for what is left"
                )));
            }
        }
    }
    let elements = context.shape(0)?.elements().map_err(shape_error)?;
    let listed = shape_of(&dims[..wanted.len()])?.elements().map_err(shape_error)?;
    let left = elements.checked_div(listed).unwrap_or(0);
    if let Some(axis) = open {
        // An extent never exceeds the element count, which fits 32 bits.
        dims[axis] = left as u32;
    }
    let shape = shape_of(&dims[..wanted.len()])?;
    if shape.elements().map_err(shape_error)? != elements {
        return Err(invalid(format!(
            "is {wanted:?}, must hold the {elements} elements of input 0"
        )));
    }
    set(outputs, 0, shape)
}

/// The dimensions without the listed axes, or without every axis of extent 1; [1] if none is left.
fn squeezed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let mut dropped = [false; MAX_RANK];
    if context.input(1).is_some() {
        for &axis in context.i32s(1)? {
            let axis = resolve_axis(1, axis, shape.rank())?;
            if shape.dim(axis) != 1 {
                let message = format!(
                    "(axes) names axis {axis}, whose extent is {}, must be 1",
                    shape.dim(axis)
                );
                return Err(OpError::input(1, message).into());
            }
            dropped[axis] = true;
        }
    } else {
        for (dropped, &extent) in dropped.iter_mut().zip(shape.dims()) {
            *dropped = extent == 1;
        }
    }
    let mut dims = [1_u32; MAX_RANK];
    let mut rank = 0;
    for (&extent, _) in shape.dims().iter().zip(dropped).filter(|(_, dropped)| !dropped) {
        dims[rank] = extent;
        rank += 1;
    }
    set(outputs, 0, shape_of(&dims[..rank.max(1)])?)
}

/// The dimensions with an axis of extent 1 more.
fn expanded(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let axis = context.i32(1)?;
    let shape = context.shape(0)?;
    let axis = resolve_axis(1, axis, shape.rank() + 1)?;
    let mut dims = [1_u32; MAX_RANK + 1];
    dims[..axis].copy_from_slice(&shape.dims()[..axis]);
    dims[axis + 1..=shape.rank()].copy_from_slice(&shape.dims()[axis..]);
    set(outputs, 0, shape_of(&dims[..=shape.rank()])?)
}
