//! Random models: valid ones over every operation of the table, and broken ones made from them.
//!
//! A model is made from a sequence of [`choices`]: the same seed gives the same model on every machine, and a
//! model that breaks a [`property`] is shrunk to the shortest sequence that still does. Operations, their
//! argument lists and types come from the operation table, whose rules also judge what was drawn; an
//! operation that is new in the table is drawn with no change here, as long as its parameters have names or
//! types that are known already. Models may have the operations of the extension
//! [`org.nnhal.tflite`](nnhal_hal::tflite), too.
//!
//! Some models are networks: of the operations that fast devices have kernels for, one behind the other, with
//! constant weights and enough channels for vectors. Some operations of these come together, as such devices
//! compute them.

mod arguments;
pub mod choices;
mod control_flow;
mod counterpart;
mod criteria;
mod drawing;
mod extension;
pub mod float_equivalent;
mod generated;
mod graph;
pub mod mutation;
mod operation;
mod patterns;
pub mod property;
mod resizing;
mod shapes;
mod types;
mod values;

pub(crate) use arguments::key;
pub use generated::Generated;

use nnhal_hal::ops::{self, OperationEntry};
use nnhal_hal::{OperationType, tflite};

use choices::Choices;
use graph::Graph;

/// What models are made of.
#[derive(Clone, Debug)]
pub struct Recipe {
    entries: Vec<&'static OperationEntry>,
    /// What networks are made of, if some models are to be such.
    of_networks: Vec<&'static OperationEntry>,
    control_flow: Vec<OperationType>,
    most_operations: u32,
    /// Whether graphs that control flow refers to may have operations of the extension.
    has_extension: bool,
}

/// The operations of networks.
const OF_NETWORKS: &[OperationType] = &[
    OperationType::CONV_2D,
    OperationType::DEPTHWISE_CONV_2D,
    OperationType::FULLY_CONNECTED,
    OperationType::ADD,
    OperationType::SUB,
    OperationType::MUL,
    OperationType::MAXIMUM,
    OperationType::MINIMUM,
    OperationType::PRELU,
    OperationType::RELU,
    OperationType::RELU6,
    OperationType::LOGISTIC,
    OperationType::TANH,
    OperationType::HARD_SWISH,
    OperationType::ABS,
    OperationType::PAD,
    OperationType::MAX_POOL_2D,
    OperationType::AVERAGE_POOL_2D,
    OperationType::RESIZE_BILINEAR,
    OperationType::SOFTMAX,
    OperationType::ARGMAX,
    OperationType::ARGMIN,
    OperationType::REDUCE_MAX,
    OperationType::REDUCE_MIN,
    OperationType::QUANTIZE,
    OperationType::DEQUANTIZE,
    OperationType::RESHAPE,
    OperationType::LSTM,
    OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM,
    OperationType::BIDIRECTIONAL_SEQUENCE_LSTM,
    OperationType::RNN,
    OperationType::UNIDIRECTIONAL_SEQUENCE_RNN,
    OperationType::BIDIRECTIONAL_SEQUENCE_RNN,
];

/// Those of the extension, which come between the others. Fast devices need no kernels for them.
const OF_EXTENDED_NETWORKS: &[OperationType] = &[
    tflite::ADD,
    tflite::MUL,
    tflite::CONV_2D,
    tflite::FULLY_CONNECTED,
    tflite::QUANTIZE,
    tflite::DEQUANTIZE,
    tflite::GELU,
    tflite::MEAN,
    tflite::SOFTMAX,
    tflite::CONCATENATION,
    tflite::PAD,
    tflite::RESHAPE,
    tflite::STRIDED_SLICE,
    tflite::TRANSPOSE,
];

/// One model in so many is a network.
const NETWORKS: u32 = 2;

/// One operation in so many of a network is several, which come together.
const PATTERNS: u32 = 8;

/// How often arguments are drawn for an operation before another one is tried.
const ATTEMPTS: u32 = 6;

impl Default for Recipe {
    /// Models of NNAPI's operations alone, which every device takes.
    fn default() -> Self {
        Recipe {
            entries: ops::entries().collect(),
            of_networks: OF_NETWORKS.iter().filter_map(|one| ops::entry(*one)).collect(),
            control_flow: vec![OperationType::IF, OperationType::WHILE],
            most_operations: 8,
            has_extension: false,
        }
    }
}

impl Recipe {
    /// Models of NNAPI's operations and those of the extension.
    #[must_use]
    pub fn with_extension() -> Recipe {
        Recipe {
            entries: ops::entries().chain(ops::tflite::entries()).collect(),
            of_networks: OF_NETWORKS
                .iter()
                .chain(OF_EXTENDED_NETWORKS)
                .filter_map(|one| ops::entry(*one))
                .collect(),
            has_extension: true,
            ..Recipe::default()
        }
    }

    /// Models of this one operation; `None` if the table does not have it and it is no control flow.
    #[must_use]
    pub fn single(operation: OperationType) -> Option<Recipe> {
        let (entries, control_flow) = if operation.is_control_flow() {
            (Vec::new(), vec![operation])
        } else {
            (vec![ops::entry(operation)?], Vec::new())
        };
        Some(Recipe {
            entries,
            of_networks: Vec::new(),
            control_flow,
            most_operations: 1,
            has_extension: operation.is_extension(),
        })
    }

    /// The model that these choices make; `None` if none of its operations got arguments that fit.
    pub fn generate(&self, choices: &mut Choices) -> Option<Generated> {
        let mut graph = Graph {
            has_extension: self.has_extension,
            is_network: !self.of_networks.is_empty() && choices.once_in(NETWORKS),
            ..Graph::default()
        };
        let count = 1 + choices.below(self.most_operations);
        for _ in 0..count {
            for _ in 0..ATTEMPTS {
                if self.try_one(&mut graph, choices) {
                    break;
                }
            }
        }
        (!graph.operations.is_empty()).then(|| graph.finish(choices))
    }

    fn try_one(&self, graph: &mut Graph, choices: &mut Choices) -> bool {
        if graph.is_network && choices.once_in(PATTERNS) {
            return patterns::try_pattern(graph, choices);
        }
        if graph.is_network {
            let entry = choices.pick(&self.of_networks);
            return entry.is_some_and(|entry| operation::try_operation(graph, choices, entry));
        }
        let kinds = self.entries.len() + self.control_flow.len();
        let kind = choices.below(kinds as u32) as usize;
        if let Some(entry) = self.entries.get(kind) {
            return operation::try_operation(graph, choices, entry);
        }
        let operation = self.control_flow.get(kind - self.entries.len());
        if let Some(operation) = operation {
            control_flow::add(graph, choices, *operation);
        }
        operation.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use nnhal_cpu::{KernelSet, Program};
    use nnhal_hal::ops;
    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{OperandType, Operation, OperationType, Subgraph, SubgraphIndex};

    use super::choices::Choices;
    use super::property::{self, Verdict};
    use super::{Recipe, mutation};
    use crate::in_process::InProcess;

    /// Models for each property in this test; the command runs millions.
    const MODELS: u64 = 1500;

    /// Operations on two operands whose shapes may differ.
    const BROADCASTING: &[OperationType] = &[
        OperationType::ADD,
        OperationType::SUB,
        OperationType::MUL,
        OperationType::MAXIMUM,
        OperationType::MINIMUM,
        OperationType::PRELU,
    ];

    #[test]
    fn the_same_seed_gives_the_same_model() {
        let recipe = Recipe::default();
        for seed in 0..20 {
            let first = recipe.generate(&mut Choices::from_seed(seed));
            let mut choices = Choices::from_seed(seed);
            let second = recipe.generate(&mut choices);
            let replayed = recipe.generate(&mut Choices::replay(choices.made().to_vec()));
            let model = |generated: Option<super::Generated>| generated.map(|one| one.model.model);
            let first = model(first);
            assert_eq!(first, model(second));
            assert_eq!(first, model(replayed));
        }
    }

    #[test]
    fn operations_of_the_table_are_drawn() {
        let mut missing = Vec::new();
        let of_table = ops::entries().chain(ops::tflite::entries());
        let of_table = of_table.map(|entry| entry.operation);
        for operation in of_table.chain([OperationType::IF, OperationType::WHILE]) {
            let recipe = Recipe::single(operation).unwrap();
            let drawn = (0..400)
                .filter(|seed| recipe.generate(&mut Choices::from_seed(*seed)).is_some())
                .count();
            println!("{:<34}{drawn:>5} of 400", operation.to_string());
            if drawn == 0 {
                missing.push(operation);
            }
        }
        assert!(missing.is_empty(), "never drawn: {missing:?}");
    }

    #[test]
    fn tensors_without_elements_are_read_and_control_flow_is_nested() {
        let (mut read, mut nested) = (0, 0);
        for seed in 0..9000 {
            let Some(generated) = Recipe::default().generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            let model = &generated.model.model;
            let has_control_flow = |graph: &Subgraph| {
                let mut operations = graph.operations.iter();
                operations.any(|operation| operation.operation_type.is_control_flow())
            };
            nested += usize::from(model.referenced.iter().any(has_control_flow));
            // An output that has no bytes has room for one; operations that make the first such tensor are
            // left out.
            let outputs = model.main.output_indexes.iter().zip(&generated.request.outputs);
            read += outputs
                .filter(|(index, argument)| {
                    let ty = model.main.operands[**index as usize].operand_type;
                    let mut operations = model.main.operations.iter();
                    argument.location.length == 1
                        && ty.element_size() > 1
                        && operations.any(|operation| {
                            operation.outputs.contains(*index)
                                && !matches!(
                                    operation.operation_type,
                                    OperationType::SLICE | OperationType::TILE
                                )
                        })
                })
                .count();
        }
        assert!(read >= 10, "{read}");
        assert!(nested >= 10, "{nested}");
    }

    /// With the extension and without.
    fn recipes() -> [Recipe; 2] {
        [Recipe::default(), Recipe::with_extension()]
    }

    #[test]
    fn valid_models_are_prepared_and_give_one_result() {
        for recipe in recipes() {
            let found = property::search(&recipe, 0..MODELS, |generated, _| {
                property::one_result_by_every_path(&mut InProcess::default(), generated)
            });
            assert!(found.is_none(), "{}", found.unwrap());
        }
    }

    #[test]
    fn fast_kernels_agree_with_the_reference() {
        for recipe in recipes() {
            let mut of_integers = 0;
            let found = property::search(&recipe, 0..MODELS, |generated, _| {
                of_integers += u64::from(!property::has_float_tensors(&generated.model.model));
                property::gives_the_same_integers(
                    &mut InProcess::new(KernelSet::Reference),
                    &mut InProcess::new(KernelSet::Fast),
                    generated,
                )
            });
            assert!(found.is_none(), "{}", found.unwrap());
            assert!(of_integers >= MODELS / 20, "{of_integers}");
        }
    }

    /// What the fast kernels say of themselves, in some of which the reference computes beside them.
    const KERNELS: &[&str] = &[
        "f32 matrix product",
        "f32 matrix-vector product",
        "8-bit matrix product by pairs",
        "f32 depthwise",
        "8-bit depthwise",
        "f32 element-wise",
        "8-bit sum",
        "8-bit product",
        "8-bit maximum or minimum",
        "8-bit table",
        "f32 pooling",
        "8-bit pooling",
        "f32 resizing",
        "8-bit resizing",
        "f32 softmax",
        "8-bit softmax",
        "8-bit places of extremes",
        "f32 extremum",
        "quantization",
        "packed recurrent cell",
        "f32 element-wise, with the next",
        "f32 row by row, with the next",
        "f32 matrix product, with the next",
        "f32 largest magnitude, with the next",
        "8-bit offset, with the next",
        "as padding of the next",
        "another shape in the same memory",
        "constant, computed beforehand",
    ];

    /// Those for processors that multiply bytes.
    const OF_BYTES: &[&str] = &[
        "8-bit matrix product",
        "integers of floats as bytes, with the next",
    ];

    /// Whether this processor is one that the fast kernels multiply bytes on.
    fn multiplies_bytes() -> bool {
        #[cfg(target_arch = "x86_64")]
        let has_vnni = std::arch::is_x86_feature_detected!("avx512vnni");
        #[cfg(not(target_arch = "x86_64"))]
        let has_vnni = false;
        has_vnni
    }

    #[test]
    fn every_family_of_fast_kernels_computes_some_model() {
        let mut models = BTreeMap::new();
        for seed in 0..4 * MODELS {
            let Some(generated) = Recipe::default().generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            let model = ValidModel::new(generated.model.model.clone(), &*generated.model.pools, &[]).unwrap();
            let fast = KernelSet::Fast;
            let program = Program::with_kernels(Arc::new(model), &*generated.model.pools, fast).unwrap();
            let count = generated.model.model.main.operations.len();
            let names = (0..count).map(|at| program.kernel_name(SubgraphIndex::Main, at, 1));
            for name in names.collect::<BTreeSet<_>>() {
                *models.entry(name).or_insert(0) += 1;
            }
        }
        println!("{models:#?}");
        let has = |kernel: &str| {
            let of_kernel =
                |(name, _): (&&str, _)| *name == kernel || name.starts_with(&format!("{kernel}, reference"));
            models.iter().any(of_kernel)
        };
        let of_bytes = if multiplies_bytes() { OF_BYTES } else { &[] };
        let wanted = KERNELS.iter().chain(of_bytes);
        let missing: Vec<_> = wanted.filter(|kernel| !has(kernel)).collect();
        assert!(missing.is_empty(), "computed no model: {missing:?}");
    }

    #[test]
    fn operands_of_networks_broadcast() {
        let mut models = BTreeMap::new();
        for seed in 0..MODELS {
            let Some(generated) = Recipe::default().generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            let main = &generated.model.model.main;
            let of = |operand: Option<&u32>| operand.map(|operand| &main.operands[*operand as usize]);
            let is_one = |operation: &&Operation| BROADCASTING.contains(&operation.operation_type);
            for operation in main.operations.iter().filter(is_one) {
                let (left, right) = (of(operation.inputs.first()), of(operation.inputs.get(1)));
                if let (Some(left), Some(right)) = (left, right)
                    && left.dimensions != right.dimensions
                {
                    *models
                        .entry((operation.operation_type, left.operand_type))
                        .or_insert(0) += 1;
                }
            }
        }
        println!("{models:#?}");
        for operation in BROADCASTING {
            for ty in [
                OperandType::TENSOR_FLOAT32,
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                assert!(models.contains_key(&(*operation, ty)), "{operation} of {ty}");
            }
        }
    }

    #[test]
    fn broken_models_are_refused_and_changed_ones_do_not_crash() {
        let mut refused = BTreeMap::new();
        let found = property::search(&Recipe::with_extension(), 0..MODELS, |generated, choices| {
            let (broken, how) = mutation::break_rule(generated, choices);
            let verdict = property::is_refused(&mut InProcess::default(), &broken);
            *refused.entry(how).or_insert(0) += 1;
            match verdict {
                Verdict::Broken(message) => Verdict::Broken(format!("{how}: {message}")),
                Verdict::Kept => {
                    let changed = mutation::change(generated, choices);
                    property::does_not_crash(&mut InProcess::default(), &changed)
                }
            }
        });
        assert!(found.is_none(), "{}", found.unwrap());
        assert!(refused.len() > 8, "{refused:?}");
    }
}
