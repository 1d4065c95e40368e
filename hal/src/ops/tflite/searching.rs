//! What is found by values: TOPK_V2, UNIQUE and WHERE.

use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::ops::topk;
use crate::{HalVersion, OperandType as T, tflite};

use HalVersion::V1_2;

use super::types::{MOVED, NUMBERS_AND_STEPS, with_types};

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("k", Ty::AnyOf(&[(T::INT32, V1_2), (T::TENSOR_INT32, V1_2)])),
        ])],
        ..with_types(topk::ENTRIES, tflite::TOPK_V2, NUMBERS_AND_STEPS)
    },
    OperationEntry {
        operation: tflite::UNIQUE,
        variants: NUMBERS_AND_STEPS,
        forms: &[Form::default(
            &[Param::new("input", Ty::Var(0)).rank(Rank::Is(1))],
        )],
        outputs: &[
            Param::new("values", Ty::Var(0)).rank(Rank::Is(1)),
            Param::integers("indices"),
        ],
        outputs_repeat: false,
        check: |context| context.check_same_quantization(0, 0),
        shape: ShapeRule::DataDependent,
    },
    OperationEntry {
        operation: tflite::WHERE,
        variants: MOVED,
        forms: &[Form::default(&[Param::new("condition", Ty::Var(0))])],
        outputs: &[Param::new("indices", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::DataDependent,
    },
];
