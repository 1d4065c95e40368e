//! MATRIX_DIAG and MATRIX_SET_DIAG: the diagonals of matrices, which are the last two axes.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{chained, set};
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::{MAX_RANK, Shape, tflite};

use super::types::MOVED;

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::MATRIX_DIAG,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("diagonal", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK - 1))
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(diagonal_matrices),
    },
    OperationEntry {
        operation: tflite::MATRIX_SET_DIAG,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)).rank(Rank::Between(2, MAX_RANK)),
            Param::new("diagonal", Ty::Var(0)),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| {
            context.check_same_quantization(0, 0)?;
            context.check_same_quantization(1, 0)
        },
        shape: ShapeRule::Infer(with_diagonal),
    },
];

/// The dimensions of the diagonals with the last one twice.
fn diagonal_matrices(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let last = shape.dims().last().copied().unwrap_or(1);
    set(outputs, 0, chained(&[shape.dims(), &[last]])?)
}

/// The shape of the matrices, whose diagonals must have the shape that input 1 has.
fn with_diagonal(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, diagonal) = (context.shape(0)?, context.shape(1)?);
    let [batches @ .., rows, columns] = shape.dims() else {
        let message = format!("(input) has rank {}, must have rank 2 or more", shape.rank());
        return Err(OpError::input(0, message).into());
    };
    let expected = chained(&[batches, &[*rows.min(columns)]])?;
    if diagonal != expected {
        let message = format!("(diagonal) has dimensions {diagonal:?}, must have {expected:?}");
        return Err(OpError::input(1, message).into());
    }
    set(outputs, 0, shape)
}
