//! Reductions over axes: MEAN and the REDUCE_* operations.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape, tflite};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

const INPUT: Param = Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4));
const AXES: Param = Param::new("axes", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1));

const MEAN_FORM: &[Form] = &[Form::default(&[
    INPUT,
    AXES,
    Param::scalar("keep_dims", T::INT32),
])];

const REDUCE_FORM: &[Form] = &[Form::default(&[INPUT, AXES, Param::scalar("keep_dims", T::BOOL)])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

/// MEAN, whose first version is that of the operation.
const MEAN_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const EXTREMUM_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const FLOAT_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

const BOOL_TYPES: &[Variant] = &[Variant::new(V1_2, &[T::TENSOR_BOOL8])];

const fn reduce(
    operation: OperationType,
    variants: &'static [Variant],
    check: fn(&dyn OperationContext) -> Result<(), OpError>,
) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: REDUCE_FORM,
        outputs: RESULT,
        outputs_repeat: false,
        check,
        shape: ShapeRule::Infer(reduced_shape),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::MEAN,
        variants: MEAN_TYPES,
        forms: MEAN_FORM,
        outputs: RESULT,
        outputs_repeat: false,
        check: same_quantization,
        shape: ShapeRule::Infer(reduced_shape),
    },
    reduce(OperationType::REDUCE_ALL, BOOL_TYPES, no_further_rule),
    reduce(OperationType::REDUCE_ANY, BOOL_TYPES, no_further_rule),
    reduce(OperationType::REDUCE_MAX, EXTREMUM_TYPES, same_quantization),
    reduce(OperationType::REDUCE_MIN, EXTREMUM_TYPES, same_quantization),
    reduce(OperationType::REDUCE_PROD, FLOAT_TYPES, no_further_rule),
    reduce(OperationType::REDUCE_SUM, FLOAT_TYPES, no_further_rule),
];

fn same_quantization(context: &dyn OperationContext) -> Result<(), OpError> {
    context.check_same_quantization(0, 0)
}

/// Which axes of input 0 a reduction removes: for each axis, whether input 1 names it. Axes may be negative
/// and may repeat; an empty list names none.
pub fn reduced_axes(context: &dyn OperationContext) -> Result<[bool; MAX_RANK], ShapeIssue> {
    let rank = context.shape(0)?.rank();
    let mut reduced = [false; MAX_RANK];
    for &axis in context.i32s(1)? {
        reduced[shapes::resolve_axis(1, axis, rank)?] = true;
    }
    Ok(reduced)
}

/// The input's dimensions without the reduced ones, which stay with extent 1 if asked for. What is left of a
/// tensor reduced along every axis is one dimension of 1.
fn reduced_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let reduced = reduced_axes(context)?;
    let keep = match context.required(2)?.ty() {
        T::BOOL => context.bool(2)?,
        _ => context.i32(2)? > 0,
    };
    let mut dims = [1; MAX_RANK];
    let mut rank = 0;
    for (axis, &extent) in shape.dims().iter().enumerate() {
        if !reduced[axis] || keep {
            dims[rank] = if reduced[axis] { 1 } else { extent };
            rank += 1;
        }
    }
    let result = shapes::shape_of(&dims[..rank.max(1)])?;
    let needs_elements = matches!(
        context.operation(),
        OperationType::MEAN
            | OperationType::REDUCE_MAX
            | OperationType::REDUCE_MIN
            | tflite::MEAN
            | tflite::REDUCE_MAX
            | tflite::REDUCE_MIN
    );
    if needs_elements && shape.dims().contains(&0) && !result.dims().contains(&0) {
        let message = format!("with dimensions {shape:?} has no element along the reduced axes");
        return Err(OpError::input(0, message).into());
    }
    shapes::set(outputs, 0, result)
}
