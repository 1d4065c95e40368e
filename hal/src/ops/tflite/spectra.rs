//! RFFT2D and COMPLEX_ABS. A complex number is two floats along the last axis: real and imaginary part.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{chained, set};
use crate::ops::signature::{Form, Param, Rank, Ty, Variant};
use crate::{HalVersion, MAX_RANK, OperandType as T, Shape, tflite};

const FLOATS: &[Variant] = &[Variant::new(HalVersion::V1_2, &[T::TENSOR_FLOAT32])];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::RFFT2D,
        variants: FLOATS,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)).rank(Rank::Between(2, MAX_RANK - 1)),
            Param::integers("lengths"),
        ])],
        outputs: &[Param::new("output", Ty::Var(0))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(transformed),
    },
    OperationEntry {
        operation: tflite::COMPLEX_ABS,
        variants: FLOATS,
        forms: &[Form::default(&[Param::new("complex", Ty::Var(0))])],
        outputs: &[Param::new("output", Ty::Var(0))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(magnitudes),
    },
];

/// How many rows and columns RFFT2D transforms.
pub fn lengths(context: &dyn OperationContext) -> Result<[u32; 2], ShapeIssue> {
    let wanted = context.i32s(1)?;
    let length = |value: i32| {
        u32::try_from(value)
            .ok()
            .filter(|length| length.is_power_of_two())
    };
    match wanted {
        &[rows, columns] => length(rows)
            .zip(length(columns))
            .map(|(rows, columns)| [rows, columns]),
        _ => None,
    }
    .ok_or_else(|| {
        let message = format!("(lengths) is {wanted:?}, must be two powers of 2");
        OpError::input(1, message).into()
    })
}

/// Of each row one more than half of the columns: the others are their conjugates.
fn transformed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let [rows, columns] = lengths(context)?;
    let Some(batches) = shape.rank().checked_sub(2) else {
        return Err(OpError::input(0, "(input) has no two axes to transform").into());
    };
    set(
        outputs,
        0,
        chained(&[&shape.dims()[..batches], &[rows, columns / 2 + 1, 2]])?,
    )
}

fn magnitudes(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    match shape.dims().split_last() {
        Some((2, front)) => set(outputs, 0, chained(&[front])?),
        _ => {
            let message =
                format!("(complex) has dimensions {shape:?}, the last must be 2: real and imaginary part");
            Err(OpError::input(0, message).into())
        }
    }
}
