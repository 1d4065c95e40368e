//! CAST between all types, DEQUANTIZE of 16-bit steps, and QUANTIZE to them, from them and among them.

use crate::ops::context::{OpError, OperationContext};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::quantization;
use crate::ops::shapes::same_as_input;
use crate::ops::signature::{Form, Param, Ty, Variant};
use crate::{HalVersion, OperandType as T, tflite};

use super::types::{ANY_MOVED, with_types};

use HalVersion::{V1_2, V1_3};

const QUANTIZE_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_QUANT16_SYMM]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_QUANT16_SYMM]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT16_SYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT16_SYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT16_SYMM]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_INT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT16_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_ASYMM, T::TENSOR_INT32]),
];

/// Integers that count steps of a scale have one.
fn scale_of_integers(context: &dyn OperationContext) -> Result<(), OpError> {
    match context.required_output(0)?.operand {
        operand if operand.operand_type == T::TENSOR_INT32 && operand.scale == 0.0 => {
            Err(OpError::output(0, "has scale 0, must be above 0"))
        }
        _ => Ok(()),
    }
}

const DEQUANTIZE_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT16]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_FLOAT16]),
];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::CAST,
        variants: &[],
        forms: &[Form::default(&[
            Param::new("input", ANY_MOVED),
            Param::scalar("saturates", T::BOOL).trailing(V1_2),
        ])],
        outputs: &[Param::new("output", ANY_MOVED)],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(same_as_input),
    },
    OperationEntry {
        forms: &[Form::default(&[Param::new("input", Ty::Var(0))])],
        check: scale_of_integers,
        ..with_types(quantization::ENTRIES, tflite::QUANTIZE, QUANTIZE_TYPES)
    },
    OperationEntry {
        forms: &[Form::default(&[Param::new("input", Ty::Var(0))])],
        ..with_types(quantization::ENTRIES, tflite::DEQUANTIZE, DEQUANTIZE_TYPES)
    },
];
