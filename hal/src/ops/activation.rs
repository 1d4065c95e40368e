//! Element-wise activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU and HARD_SWISH.

use crate::{HalVersion, OperandType as T, OperationType};

use super::context::{OpError, OperationContext};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

const UP_TO_4: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4))
])];

const ANY_RANK: &[Form] = &[Form::default(&[Param::new("input", Ty::Var(0))])];

const WITH_ALPHA: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)),
    Param::new("alpha", Ty::Var(1)),
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

const RELU_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

/// TANH, which took its quantised form in 1.2.
const TANH_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const ELU_TYPES: &[Variant] = &[
    Variant::new(V1_3, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_FLOAT16, T::FLOAT16]),
];

const fn entry(
    operation: OperationType,
    variants: &'static [Variant],
    forms: &'static [Form],
    check: fn(&dyn OperationContext) -> Result<(), OpError>,
) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms,
        outputs: RESULT,
        outputs_repeat: false,
        check,
        shape: ShapeRule::Infer(shapes::same_as_input),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(OperationType::RELU, RELU_TYPES, UP_TO_4, check_relu),
    entry(OperationType::RELU1, RELU_TYPES, UP_TO_4, check_relu),
    entry(OperationType::RELU6, RELU_TYPES, UP_TO_4, check_relu),
    entry(OperationType::LOGISTIC, RELU_TYPES, UP_TO_4, check_logistic),
    entry(OperationType::TANH, TANH_TYPES, UP_TO_4, check_tanh),
    entry(OperationType::ELU, ELU_TYPES, WITH_ALPHA, no_further_rule),
    entry(
        OperationType::HARD_SWISH,
        // The types of RELU; the operation itself came with 1.3.
        RELU_TYPES,
        ANY_RANK,
        no_further_rule,
    ),
];

/// Clamping moves no value to another scale.
fn check_relu(context: &dyn OperationContext) -> Result<(), OpError> {
    context.check_same_quantization(0, 0)
}

/// The result lies between 0 and 1: one step is 1/256 from the least value up, or 1/32768 of 16 bits.
fn check_logistic(context: &dyn OperationContext) -> Result<(), OpError> {
    match context.required(0)?.ty() {
        T::TENSOR_QUANT8_ASYMM => context.check_output_quantization(0, 1.0 / 256.0, 0),
        T::TENSOR_QUANT8_ASYMM_SIGNED => context.check_output_quantization(0, 1.0 / 256.0, -128),
        T::TENSOR_QUANT16_SYMM => context.check_output_quantization(0, 1.0 / 32_768.0, 0),
        _ => Ok(()),
    }
}

/// The result lies between -1 and 1: one step is 1/128 around the middle, or 1/32768 of 16 bits.
fn check_tanh(context: &dyn OperationContext) -> Result<(), OpError> {
    match context.required(0)?.ty() {
        T::TENSOR_QUANT8_ASYMM => context.check_output_quantization(0, 1.0 / 128.0, 128),
        T::TENSOR_QUANT8_ASYMM_SIGNED => context.check_output_quantization(0, 1.0 / 128.0, 0),
        T::TENSOR_QUANT16_SYMM => context.check_output_quantization(0, 1.0 / 32_768.0, 0),
        _ => Ok(()),
    }
}
