//! The model of floats that stands for the same numbers as one of quantised tensors, and what the two must
//! have in common.
//!
//! Source: the HAL's random tests of single operations hold quantised results to those of such a model,
//! quantised: to what ideal rounding gives, not to the arithmetic of the reference.

use std::sync::Arc;

use nnhal_hal::ops::{self, Variant};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    DataLocation, ExtraParams, MemoryPool, Model, Operand, OperandLifeTime, OperandType, Operation,
    OperationType, RequestPool, Subgraph, tflite,
};

use super::criteria;
use super::generated::Generated;
use super::graph::append;
use super::property::{Computed, Verdict, expect_same_dimensions, synchronous_result};
use crate::coupling::is_uncoupled;
use crate::element;
use crate::implementation::{Implementation, ModelWithPools};

/// The real numbers that quantised elements stand for.
struct Steps {
    /// One for all, or one for each channel.
    scales: Vec<f32>,
    zero_point: i32,
    /// Elements that one channel has side by side.
    inner: usize,
}

impl Steps {
    /// Those of an operand of a graph of one operation; `None` if it holds no steps.
    fn of(graph: &Subgraph, index: u32) -> Option<Steps> {
        let operand = graph.operands.get(index as usize)?;
        if let ExtraParams::ChannelQuant(params) = &operand.extra_params {
            let behind = operand.dimensions.get(params.channel_dim as usize + 1..)?;
            return Some(Steps {
                scales: params.scales.clone(),
                zero_point: 0,
                inner: behind.iter().product::<u32>() as usize,
            });
        }
        let is_quantized = operand.operand_type.is_quantized_per_tensor();
        // A bias has no other zero point.
        if is_quantized || (operand.operand_type == OperandType::TENSOR_INT32 && operand.scale > 0.0) {
            return Some(Steps {
                scales: vec![operand.scale],
                zero_point: operand.zero_point,
                inner: 1,
            });
        }
        Steps::of_channel_bias(graph, index)
    }

    /// Those of a bias beside a filter that has a scale for each channel: its own scale is 0.
    fn of_channel_bias(graph: &Subgraph, index: u32) -> Option<Steps> {
        let inputs = &graph.operations.first()?.inputs;
        let operand = |at: usize| graph.operands.get(*inputs.get(at)? as usize);
        match &operand(1)?.extra_params {
            ExtraParams::ChannelQuant(params) if inputs.get(2) == Some(&index) => {
                let scale = operand(0)?.scale;
                Some(Steps {
                    scales: params
                        .scales
                        .iter()
                        .map(|of_channel| scale * of_channel)
                        .collect(),
                    zero_point: 0,
                    inner: 1,
                })
            }
            _ => None,
        }
    }

    fn real_numbers(&self, ty: OperandType, bytes: &[u8]) -> Vec<f64> {
        let number = |(at, steps): (usize, f64)| {
            let channel = at / self.inner.max(1) % self.scales.len().max(1);
            let scale = self.scales.get(channel).copied().unwrap_or_default();
            (steps - f64::from(self.zero_point)) * f64::from(scale)
        };
        element::decode(ty, bytes)
            .into_iter()
            .enumerate()
            .map(number)
            .collect()
    }
}

/// The model of floats for a model of one operation; `None` if it has no quantised tensor, or its operation
/// computes with bytes as they stand or takes no floats in their place.
#[must_use]
pub fn float_equivalent(generated: &Generated) -> Option<Generated> {
    let model = &generated.model.model;
    let [operation] = model.main.operations.as_slice() else {
        return None;
    };
    if is_uncoupled(operation.operation_type) || is_apart(&model.main) {
        return None;
    }
    let mut twin = Twin::default();
    let mut equivalent = Model {
        main: model.main.clone(),
        extension_name_to_prefix: model.extension_name_to_prefix.clone(),
        ..Model::default()
    };
    equivalent.main.operations[0].operation_type = of_floats(operation.operation_type);
    let mut request = generated.request.clone();
    let (mut inputs, mut outputs) = (request.inputs.iter_mut(), request.outputs.iter_mut());
    for (index, operand) in (0..).zip(&mut equivalent.main.operands) {
        let steps = Steps::of(&model.main, index);
        let ty = operand.operand_type;
        let from = operand.location;
        match operand.lifetime {
            OperandLifeTime::ConstantCopy => {
                let bytes = at(&model.operand_values, from)?;
                operand.location = append(&mut twin.copies, &as_floats(steps.as_ref(), ty, bytes));
            }
            OperandLifeTime::ConstantReference => {
                let bytes = at(generated.model.pools.get(from.pool_index as usize)?, from)?;
                operand.location = append(&mut twin.references, &as_floats(steps.as_ref(), ty, bytes));
            }
            OperandLifeTime::SubgraphInput => {
                let argument = inputs.next()?;
                if !argument.has_no_value {
                    let bytes = at(&generated.inputs, argument.location)?;
                    argument.location = append(&mut twin.inputs, &as_floats(steps.as_ref(), ty, bytes));
                }
            }
            OperandLifeTime::SubgraphOutput => {
                let argument = outputs.next()?;
                let room = vec![0; argument.location.length as usize * if steps.is_some() { 4 } else { 1 }];
                argument.location = append(&mut twin.outputs, &room);
                argument.location.pool_index = 1;
            }
            _ => {}
        }
        if steps.is_some() {
            twin.is_other = true;
            *operand = Operand {
                operand_type: OperandType::TENSOR_FLOAT32,
                scale: 0.0,
                zero_point: 0,
                extra_params: ExtraParams::None,
                ..operand.clone()
            };
        }
    }
    twin.finish(equivalent, request)
}

/// Operations that do not compute with the numbers that 16-bit steps stand for, or not as closely as floats.
const APART: &[OperationType] = &[
    // They take steps, or their bits, as stored.
    tflite::BITCAST,
    tflite::BITWISE_AND,
    tflite::LEFT_SHIFT,
    tflite::REDUCE_WINDOW,
    tflite::SCATTER_REGIONS,
    // They compare steps as stored.
    tflite::EQUAL,
    tflite::GREATER,
    tflite::GREATER_EQUAL,
    tflite::LESS,
    tflite::LESS_EQUAL,
    tflite::NOT_EQUAL,
    // They go along lines between the values of a table, which may be far apart.
    tflite::EXP,
    tflite::GELU,
    tflite::RSQRT,
    tflite::SOFTMAX,
    // Floats do not hold the products of 16-bit numbers exactly.
    tflite::BATCH_MATMUL,
    // Only the zero point of the output brings about its activation.
    tflite::SVDF,
];

/// Whether a graph's operation computes with 16-bit steps as none does with floats.
fn is_apart(graph: &Subgraph) -> bool {
    let has_16_bits = graph
        .operands
        .iter()
        .any(|operand| operand.operand_type.is_quant16());
    let is_listed = |operation: &Operation| APART.contains(&operation.operation_type);
    has_16_bits && graph.operations.iter().any(is_listed)
}

/// The operation itself or, if it is the extension's and takes no floats, NNAPI's.
fn of_floats(operation: OperationType) -> OperationType {
    let variants = ops::entry(operation).map_or(&[][..], |entry| entry.variants);
    let takes_floats = |variant: &Variant| variant.types.first() == Some(&OperandType::TENSOR_FLOAT32);
    tflite::narrower(operation)
        .filter(|_| !variants.iter().any(takes_floats))
        .unwrap_or(operation)
}

/// The stores of the equivalent while they are filled.
#[derive(Default)]
struct Twin {
    copies: Vec<u8>,
    references: Vec<u8>,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    /// Whether any operand is of another type.
    is_other: bool,
}

impl Twin {
    fn finish(mut self, mut model: Model, mut request: nnhal_hal::Request) -> Option<Generated> {
        if !self.is_other {
            return None;
        }
        // A memory cannot be empty.
        self.inputs.resize(self.inputs.len().max(1), 0);
        request.pools = [self.inputs.len(), self.outputs.len()]
            .map(|size| RequestPool::Memory { size: size as u64 })
            .to_vec();
        let pools: Vec<Vec<u8>> = [self.references]
            .into_iter()
            .filter(|pool| !pool.is_empty())
            .collect();
        model.operand_values = self.copies;
        model.pools = pools
            .iter()
            .map(|pool| MemoryPool {
                size: pool.len() as u64,
            })
            .collect();
        let model = Arc::new(model);
        ValidModel::new(Arc::clone(&model), &pools, &[]).ok()?;
        Some(Generated {
            model: ModelWithPools {
                model,
                pools: Arc::new(pools),
            },
            request,
            inputs: self.inputs,
            outputs_size: self.outputs.len(),
        })
    }
}

fn at(store: &[u8], place: DataLocation) -> Option<&[u8]> {
    let from = place.offset as usize;
    store.get(from..from + place.length as usize)
}

/// A value as one of the equivalent.
fn as_floats(steps: Option<&Steps>, ty: OperandType, bytes: &[u8]) -> Vec<u8> {
    let Some(steps) = steps else {
        return bytes.to_vec();
    };
    let mut floats = Vec::new();
    for number in steps.real_numbers(ty, bytes) {
        element::encode(OperandType::TENSOR_FLOAT32, number, &mut floats);
    }
    floats
}

/// A valid model of one quantised operation: its results are close to those that `floats` gives for its
/// equivalent, rounded to steps. Source of the limits: the HAL's criteria for random operations.
pub fn agrees_with_equivalent<R: Implementation, I: Implementation>(
    floats: &mut R,
    other: &mut I,
    generated: &Generated,
    equivalent: &Generated,
) -> Verdict {
    let mut check = || {
        let expected = synchronous_result(floats, equivalent)
            .map_err(|message| format!("the equivalent of floats: {message}"))?;
        let found = synchronous_result(other, generated)?;
        expect_same_dimensions(&expected, &found)
            .map_err(|difference| format!("differs from the equivalent of floats: {difference}"))?;
        let main = &generated.model.model.main;
        let limits = criteria::limits(&generated.model.model);
        for (index, (expected, found)) in main.output_indexes.iter().zip(expected.iter().zip(&found)) {
            let (Some(operand), Some(Some(limits))) =
                (main.operands.get(*index as usize), limits.get(*index as usize))
            else {
                continue;
            };
            limits
                .check(&found.elements(), &in_steps(expected, operand), found.ty)
                .map_err(|found| format!("operand {index} differs from the equivalent of floats: {found}"))?;
        }
        Ok(())
    };
    match check() {
        Ok(()) => Verdict::Kept,
        Err(message) => Verdict::Broken(message),
    }
}

/// The elements of an output of the equivalent as those of the operand that it stands for.
fn in_steps(computed: &Computed, operand: &Operand) -> Vec<f64> {
    let ty = operand.operand_type;
    let elements = computed.elements();
    if !ty.is_quantized_per_tensor() {
        return elements;
    }
    let mut bytes = Vec::new();
    for element in elements {
        // A root that there is not is the largest value.
        let element = if element.is_nan() { f64::INFINITY } else { element };
        let steps = (element / f64::from(operand.scale)).round() + f64::from(operand.zero_point);
        // Cut to the type's range.
        element::encode(ty, steps, &mut bytes);
    }
    element::decode(ty, &bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nnhal_cpu::KernelSet;
    use nnhal_hal::ops;
    use nnhal_hal::{OperationType as O, tflite};

    use super::{agrees_with_equivalent, float_equivalent};
    use crate::generator::Recipe;
    use crate::generator::property::{self, Verdict};
    use crate::in_process::InProcess;

    /// Models of each operation in this test; the command runs millions.
    const MODELS: u64 = 100;

    /// Operations that must have equivalents: with functions, sums, places and weights of their own.
    const WANTED: &[O] = &[
        O::ADD,
        O::ARGMAX,
        O::BATCH_MATMUL,
        O::CONCATENATION,
        O::CONV_2D,
        O::HARD_SWISH,
        O::L2_NORMALIZATION,
        O::LOGISTIC,
        O::MEAN,
        O::MIRROR_PAD,
        O::PACK,
        O::PRELU,
        O::RESIZE_BILINEAR,
        O::REVERSE,
        O::ROI_ALIGN,
        O::RSQRT,
        O::SOFTMAX,
        O::TRANSPOSE_CONV_2D,
        tflite::CONV_2D,
        tflite::GELU,
        tflite::MEAN,
        tflite::LOGISTIC,
        tflite::UNIQUE,
    ];

    #[test]
    fn quantised_operations_are_close_to_their_equivalents_of_floats() {
        let mut models = BTreeMap::new();
        let mut all_found = Vec::new();
        let of_table = ops::entries().chain(ops::tflite::entries());
        for operation in of_table.map(|entry| entry.operation) {
            let recipe = Recipe::single(operation).unwrap();
            let found = property::search(&recipe, 0..MODELS, |generated, _| {
                let Some(equivalent) = float_equivalent(generated) else {
                    return Verdict::Kept;
                };
                *models.entry(operation).or_insert(0) += 1;
                agrees_with_equivalent(
                    &mut InProcess::new(KernelSet::Reference),
                    &mut InProcess::new(KernelSet::Fast),
                    generated,
                    &equivalent,
                )
            });
            all_found.extend(found.map(|found| format!("{operation}: {found}")));
        }
        println!("{models:#?}");
        assert!(all_found.is_empty(), "{}", all_found.join("\n"));
        let missing: Vec<_> = WANTED
            .iter()
            .filter(|operation| !models.contains_key(operation))
            .collect();
        assert!(missing.is_empty(), "no model of {missing:?}");
    }
}
