//! RESHAPE, SQUEEZE and EXPAND_DIMS of every type and rank.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::reshape;
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::{OperandType as T, OperationType, tflite};

use super::types::MOVED;
use super::types::with_types;

const INPUT: Param = Param::new("input", Ty::Var(0));

const fn moved(operation: OperationType, forms: &'static [Form]) -> OperationEntry {
    OperationEntry {
        forms,
        ..with_types(reshape::ENTRIES, operation, MOVED)
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    moved(
        tflite::RESHAPE,
        &[Form::default(&[
            INPUT,
            Param::new("shape", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
        ])],
    ),
    moved(
        tflite::SQUEEZE,
        &[Form::default(&[
            INPUT,
            Param::new("axes", Ty::Is(T::TENSOR_INT32))
                .rank(Rank::Is(1))
                .omissible(),
        ])],
    ),
    moved(
        tflite::EXPAND_DIMS,
        &[Form::default(&[INPUT, Param::scalar("axis", T::INT32)])],
    ),
];
