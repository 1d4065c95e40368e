//! Rows of a table: EMBEDDING_LOOKUP by index, HASHTABLE_LOOKUP by key.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

const OUTPUT: Param = Param::new("output", Ty::Var(0));

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::EMBEDDING_LOOKUP,
        variants: &[
            Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_3, &[T::TENSOR_FLOAT16]),
            Variant::new(V1_2, &[T::TENSOR_INT32]),
            Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        forms: &[Form::default(&[
            Param::integers("lookups"),
            Param::new("values", Ty::Var(0)).rank(Rank::Between(2, crate::MAX_RANK)),
        ])],
        outputs: &[OUTPUT],
        outputs_repeat: false,
        check: |context| context.check_same_quantization(1, 0),
        shape: ShapeRule::Infer(embeddings),
    },
    OperationEntry {
        operation: OperationType::HASHTABLE_LOOKUP,
        variants: &[
            Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_0, &[T::TENSOR_INT32]),
            Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
        ],
        forms: &[Form::default(&[
            Param::integers("lookups"),
            Param::integers("keys"),
            // The HAL text asks for rank 2 and above, its reference also takes single values.
            Param::new("values", Ty::Var(0)),
        ])],
        outputs: &[
            OUTPUT,
            Param::new("hits", Ty::Is(T::TENSOR_QUANT8_ASYMM)).rank(Rank::Is(1)),
        ],
        outputs_repeat: false,
        check: check_hashtable,
        shape: ShapeRule::Infer(hashtable),
    },
];

fn check_hashtable(context: &dyn OperationContext) -> Result<(), OpError> {
    context.check_same_quantization(2, 0)?;
    context.check_output_quantization(1, 1.0, 0)
}

/// One row of the table in input `table` for each element of input 0.
fn rows(context: &dyn OperationContext, table: usize) -> Result<Shape, ShapeIssue> {
    let count = context.shape_of_rank(0, 1)?.dim(0);
    let mut shape = context.shape(table)?;
    match shape.dims_mut().first_mut() {
        Some(extent) => *extent = count,
        None => return Err(OpError::input(table, "(values) is a scalar, must have rows").into()),
    }
    Ok(shape_of(shape.dims())?)
}

fn embeddings(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 0, rows(context, 1)?)
}

fn hashtable(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (lookups, keys, values) = (context.shape(0)?, context.shape(1)?, context.shape(2)?);
    if keys.dim(0) != values.dim(0) {
        let message = format!("(values) has {} rows for {} keys", values.dim(0), keys.dim(0));
        return Err(OpError::input(2, message).into());
    }
    set(outputs, 0, rows(context, 2)?)?;
    set(outputs, 1, lookups)
}
