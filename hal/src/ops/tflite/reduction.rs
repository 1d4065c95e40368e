//! MEAN and the REDUCE_* operations of every rank and of more types.

use crate::ops::operation_entry::{OperationEntry, no_further_rule};
use crate::ops::reduction;
use crate::ops::signature::{Form, Param, Ty, Variant};
use crate::{HalVersion, OperandType as T, OperationType, tflite};

use HalVersion::V1_2;

use super::types::{NUMBERS, NUMBERS_AND_STEPS, with_types};

const INPUT: Param = Param::new("input", Ty::Var(0));
const AXES: Param = Param::integers("axes");

const REDUCE: &[Form] = &[Form::default(&[INPUT, AXES, Param::scalar("keep_dims", T::BOOL)])];

const TRUTH: &[Variant] = &[Variant::new(V1_2, &[T::TENSOR_BOOL8])];

const fn reduce(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        forms: REDUCE,
        ..with_types(reduction::ENTRIES, operation, variants)
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        forms: &[Form::default(&[
            INPUT,
            AXES,
            Param::scalar("keep_dims", T::INT32),
        ])],
        check: no_further_rule,
        ..with_types(reduction::ENTRIES, tflite::MEAN, NUMBERS_AND_STEPS)
    },
    reduce(tflite::REDUCE_ALL, TRUTH),
    reduce(tflite::REDUCE_ANY, TRUTH),
    reduce(tflite::REDUCE_MAX, NUMBERS_AND_STEPS),
    reduce(tflite::REDUCE_MIN, NUMBERS_AND_STEPS),
    reduce(tflite::REDUCE_PROD, NUMBERS),
    reduce(tflite::REDUCE_SUM, NUMBERS),
];
