//! RESHAPE, SQUEEZE and EXPAND_DIMS of every type and rank.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::reshape;
use crate::ops::signature::{Form, Param, Ty};
use crate::{OperandType as T, OperationType, tflite};

use super::types::{MOVED, with_types};

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
        &[Form::default(&[INPUT, Param::integers("shape")])],
    ),
    moved(
        tflite::SQUEEZE,
        &[Form::default(&[INPUT, Param::integers("axes").omissible()])],
    ),
    moved(
        tflite::EXPAND_DIMS,
        &[Form::default(&[INPUT, Param::scalar("axis", T::INT32)])],
    ),
];
