//! RANDOM_MULTINOMIAL: classes drawn by their log-probabilities.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::V1_2;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::RANDOM_MULTINOMIAL,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    ],
    forms: &[Form::default(&[
        Param::new("logits", Ty::Var(0)).rank(Rank::Is(2)),
        Param::scalar("sample_count", T::INT32),
        Param::new("seeds", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ])],
    outputs: &[Param::new("output", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2))],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(sampled),
}];

/// As many samples as asked for, for each batch.
fn sampled(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let samples = context.i32(1)?;
    let logits = context.shape_of_rank(0, 2)?;
    let seeds = context.shape_of_rank(2, 1)?;
    if seeds.dims() != [2] {
        return Err(OpError::input(2, format!("(seeds) has dimensions {seeds:?}, must be [2]")).into());
    }
    if logits.dim(1) == 0 {
        return Err(OpError::input(0, "(logits) has no classes to draw from").into());
    }
    let samples = u32::try_from(samples)
        .map_err(|_| OpError::input(1, format!("(sample_count) is {samples}, must be 0 or above")))?;
    set(outputs, 0, shape_of(&[logits.dim(0), samples])?)
}
