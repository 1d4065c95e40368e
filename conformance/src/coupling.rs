//! Quantisation coupling: a model of unsigned quantised bytes and its twin of signed ones, with zero points
//! and bytes lowered by 128, give outputs that are exactly 128 apart.
//!
//! Source: the HAL's driver tests run both (case G10) and hold each to the accuracy criteria, one step from
//! what is expected. That both stand for the same real numbers, and are computed by the same rule, makes the
//! difference exact; where the reference computes the two types by different rules, the operation is listed
//! here with both.

use std::collections::HashSet;
use std::sync::Arc;

use nnhal_hal::{DataLocation, Model, OperandLifeTime, OperandType, OperationType, tflite};

use crate::generator::Generated;

/// Operations whose signed twin is another computation, or which have none. Source: the HAL's driver tests
/// (case G10) leave those of NNAPI out.
const UNCOUPLED: &[OperationType] = &[
    // They read bytes, not the numbers that these stand for.
    OperationType::HASHTABLE_LOOKUP,
    OperationType::LSH_PROJECTION,
    OperationType::CAST,
    // The value to pad with is a scalar, whose type does not say what it stands for.
    OperationType::PAD_V2,
    // It takes unsigned bytes only.
    OperationType::QUANTIZED_16BIT_LSTM,
    // Bytes count as stored.
    tflite::BITCAST,
    tflite::BITWISE_AND,
    tflite::BITWISE_XOR,
    tflite::FLOOR_DIV,
    tflite::FLOOR_MOD,
    tflite::LEFT_SHIFT,
    tflite::REDUCE_WINDOW,
    tflite::RIGHT_SHIFT,
    tflite::SCATTER_ND,
    tflite::SCATTER_REGIONS,
    tflite::WHERE,
    // What lies beside the diagonals is stored as 0, whatever the zero point.
    tflite::MATRIX_DIAG,
];

/// Whether an operation computes with bytes as they stand, or has no signed twin. What the extension has for
/// more types is as NNAPI's.
#[must_use]
pub fn is_uncoupled(operation: OperationType) -> bool {
    UNCOUPLED.contains(&tflite::narrower(operation).unwrap_or(operation))
}

/// Operations that the reference rounds differently for the two types, so that outputs may be one step apart,
/// with the two rules. Source: TFLite's reference kernels, which the HAL's reference calls.
pub const ROUNDED_OTHERWISE: &[(OperationType, &str)] = &[
    (
        OperationType::AVERAGE_POOL_2D,
        "a mean between two steps goes up if unsigned, away from zero if signed",
    ),
    (
        OperationType::L2_NORMALIZATION,
        "along the last axis signed bytes are shifted while they are scaled, others before",
    ),
];

/// The most steps by which the outputs of these operations may miss the difference of 128.
#[must_use]
pub fn most_steps(mut operations: impl Iterator<Item = OperationType>) -> u8 {
    let is_rounded_otherwise = |operation| ROUNDED_OTHERWISE.iter().any(|(listed, _)| *listed == operation);
    u8::from(operations.any(is_rounded_otherwise))
}

/// Compares an output of type `ty` of the unsigned model with that of its signed twin. Types other than
/// TENSOR_QUANT8_ASYMM must be the same bytes.
///
/// # Errors
/// The first element that is off.
pub fn compare(ty: OperandType, unsigned: &[u8], signed: &[u8], most_steps: u8) -> Result<(), String> {
    if unsigned.len() != signed.len() {
        return Err(format!(
            "has {} bytes if unsigned, {} if signed",
            unsigned.len(),
            signed.len()
        ));
    }
    let is_coupled = ty == OperandType::TENSOR_QUANT8_ASYMM;
    for (at, (&unsigned, &signed)) in unsigned.iter().zip(signed).enumerate() {
        if is_coupled && lowered(unsigned).abs_diff(signed.cast_signed()) > most_steps {
            return Err(format!(
                "element {at} is {unsigned} if unsigned, {} if signed: they are not 128 apart",
                signed.cast_signed()
            ));
        }
        if !is_coupled && unsigned != signed {
            return Err(format!(
                "byte {at} is {unsigned} if the model is unsigned, {signed} if it is signed"
            ));
        }
    }
    Ok(())
}

/// The signed byte that stands for the same number.
fn lowered(byte: u8) -> i8 {
    (byte ^ 0x80).cast_signed()
}

/// The signed twin of a random model; `None` if it has no unsigned bytes, or an operation with no twin or
/// without an exact one, at any depth.
#[must_use]
pub fn signed_twin(generated: &Generated) -> Option<Generated> {
    let model = &generated.model.model;
    let is_left_out =
        |operation: OperationType| is_uncoupled(operation) || most_steps(std::iter::once(operation)) > 0;
    let mut operations = model.subgraphs().flat_map(|(_, graph)| &graph.operations);
    let mut operands = model.subgraphs().flat_map(|(_, graph)| &graph.operands);
    if operations.any(|operation| is_left_out(operation.operation_type))
        || !operands.any(|operand| operand.operand_type == OperandType::TENSOR_QUANT8_ASYMM)
    {
        return None;
    }
    let mut twin = generated.clone();
    let mut inputs = Lowering::of(&mut twin.inputs);
    for (index, argument) in model.main.input_indexes.iter().zip(&generated.request.inputs) {
        let operand = model.main.operands.get(*index as usize)?;
        if operand.operand_type == OperandType::TENSOR_QUANT8_ASYMM && !argument.has_no_value {
            inputs.lower(argument.location);
        }
    }
    let mut signed = Model::clone(model);
    let mut pools = Vec::clone(&generated.model.pools);
    let mut copies = Lowering::of(&mut signed.operand_values);
    let mut references: Vec<Lowering<'_>> = pools.iter_mut().map(Lowering::of).collect();
    for graph in std::iter::once(&mut signed.main).chain(&mut signed.referenced) {
        for operand in &mut graph.operands {
            if operand.operand_type != OperandType::TENSOR_QUANT8_ASYMM {
                continue;
            }
            operand.operand_type = OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
            operand.zero_point -= 128;
            match operand.lifetime {
                OperandLifeTime::ConstantCopy => copies.lower(operand.location),
                OperandLifeTime::ConstantReference => {
                    if let Some(pool) = references.get_mut(operand.location.pool_index as usize) {
                        pool.lower(operand.location);
                    }
                }
                _ => {}
            }
        }
    }
    twin.model.model = Arc::new(signed);
    twin.model.pools = Arc::new(pools);
    Some(twin)
}

/// Lowers values in their store, each once, however many operands name it.
struct Lowering<'a> {
    store: &'a mut Vec<u8>,
    done: HashSet<u32>,
}

impl<'a> Lowering<'a> {
    fn of(store: &'a mut Vec<u8>) -> Lowering<'a> {
        Lowering {
            store,
            done: HashSet::new(),
        }
    }

    fn lower(&mut self, value: DataLocation) {
        let from = value.offset as usize;
        let place = self.store.get_mut(from..from + value.length as usize);
        if let Some(bytes) = place.filter(|_| self.done.insert(value.offset)) {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType};

    use super::{compare, most_steps, signed_twin};
    use crate::generator::choices::Choices;
    use crate::generator::property::{self, Verdict};
    use crate::generator::{Generated, Recipe};
    use crate::in_process::InProcess;
    use nnhal_cpu::KernelSet;

    /// Seeds for this test; about a third makes a model with a twin.
    const SEEDS: u64 = 1500;

    #[test]
    fn outputs_must_be_exactly_128_apart() {
        let ty = OperandType::TENSOR_QUANT8_ASYMM;
        assert_eq!(compare(ty, &[0, 128, 255], &[0x80, 0, 0x7F], 0), Ok(()));
        let error = compare(ty, &[0, 130], &[0x80, 1], 0).unwrap_err();
        assert!(
            error.contains("element 1 is 130 if unsigned, 1 if signed"),
            "{error}"
        );
        assert_eq!(compare(ty, &[130], &[1], 1), Ok(()));
        assert!(compare(ty, &[130], &[0], 1).is_err());
        assert!(compare(ty, &[1], &[], 1).is_err());
    }

    #[test]
    fn outputs_of_other_types_must_be_equal() {
        let ty = OperandType::TENSOR_FLOAT32;
        assert_eq!(compare(ty, &[1, 2], &[1, 2], 1), Ok(()));
        assert!(compare(ty, &[1, 2], &[1, 3], 1).is_err());
    }

    #[test]
    fn steps_are_allowed_to_listed_operations_only() {
        assert_eq!(most_steps([OperationType::AVERAGE_POOL_2D].into_iter()), 1);
        assert_eq!(
            most_steps([OperationType::MAX_POOL_2D, OperationType::CONV_2D].into_iter()),
            0
        );
    }

    #[test]
    fn twin_is_signed_throughout() {
        let recipe = Recipe::single(OperationType::ADD).unwrap();
        let twins: Vec<(Generated, Generated)> = (0..200)
            .filter_map(|seed| {
                let generated = recipe.generate(&mut Choices::from_seed(seed))?;
                let twin = signed_twin(&generated)?;
                Some((generated, twin))
            })
            .collect();
        assert!(!twins.is_empty());
        for (generated, twin) in twins {
            let operands = generated.model.model.main.operands.iter();
            for (before, after) in operands.zip(&twin.model.model.main.operands) {
                assert_ne!(after.operand_type, OperandType::TENSOR_QUANT8_ASYMM);
                if before.operand_type == OperandType::TENSOR_QUANT8_ASYMM {
                    assert_eq!(after.operand_type, OperandType::TENSOR_QUANT8_ASYMM_SIGNED);
                    assert_eq!(after.zero_point, before.zero_point - 128);
                }
            }
        }
    }

    #[test]
    fn random_models_and_their_signed_twins_are_exactly_128_apart() {
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let mut twins = 0;
            let found = property::search(
                &Recipe::with_extension(),
                0..SEEDS,
                |generated, _| match signed_twin(generated) {
                    None => Verdict::Kept,
                    Some(twin) => {
                        twins += 1;
                        property::are_coupled(&mut InProcess::new(kernels), generated, &twin)
                    }
                },
            );
            assert!(found.is_none(), "{kernels:?}: {}", found.unwrap());
            assert!(twins > SEEDS / 8, "only {twins} models with a twin");
        }
    }
}
