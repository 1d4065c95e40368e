//! A model while it is drawn: operands with the shapes and values they will have in an execution.

use std::sync::Arc;

use nnhal_hal::ops::{OperandInfo, OperationContext};
use nnhal_hal::{
    DataLocation, MemoryPool, Model, Operand, OperandLifeTime, OperandType, Operation, OperationType,
    Request, RequestArgument, RequestPool, Shape, Subgraph, tflite,
};
use nnhal_os::buffer::AlignedBuffer;

use super::choices::Choices;
use super::generated::Generated;
use crate::implementation::ModelWithPools;

/// Every value starts at a multiple of this many bytes.
const VALUE_ALIGNMENT: usize = 4;

/// Room for an output whose size only the execution tells.
const UNKNOWN_OUTPUT_BYTES: usize = 1 << 16;

/// Where an operand's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Inside the model.
    ConstantCopy,
    /// In a pool of the model.
    ConstantReference,
    /// Given with the request.
    Input,
    /// An input that the request leaves out.
    OmittedInput,
    /// Left out in the model.
    NoValue,
    /// Written by an operation.
    Computed,
    /// A reference to another graph.
    Subgraph,
}

/// An operand of the graph being drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    /// As the model declares it, but for its lifetime, location and open dimensions.
    pub(super) operand: Operand,
    /// The dimensions it has in the execution; `None` if only the execution tells.
    pub(super) shape: Option<Shape>,
    /// Its bytes, if they are known before the execution.
    pub(super) value: Option<AlignedBuffer>,
    /// Where the value comes from.
    pub(super) role: Role,
}

/// A graph being drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) operands: Vec<Drawn>,
    pub(super) operations: Vec<Operation>,
    /// Whether it is a network: operations mostly read what the last one computed and constants, and have
    /// many channels.
    pub(super) is_network: bool,
    /// Whether it may have operations of the extension.
    pub(super) has_extension: bool,
    /// The graphs that control flow refers to.
    pub(super) referenced: Vec<Subgraph>,
    /// The constants of these graphs.
    pub(super) operand_values: Vec<u8>,
}

impl Graph {
    /// Adds an operand and returns its index.
    pub(super) fn add(&mut self, drawn: Drawn) -> u32 {
        self.operands.push(drawn);
        self.operands.len() as u32 - 1
    }

    fn is_read(&self, index: u32) -> bool {
        self.operations
            .iter()
            .any(|operation| operation.inputs.contains(&index))
    }

    /// The model and a request for it. What no operation reads is an output; other choices decide which
    /// further operands are, and which dimensions the model leaves open.
    pub(super) fn finish(mut self, choices: &mut Choices) -> Generated {
        let mut model = Model {
            relax_computation_float32_to_float16: choices.once_in(8),
            referenced: std::mem::take(&mut self.referenced),
            operand_values: std::mem::take(&mut self.operand_values),
            ..Model::default()
        };
        let mut main = Subgraph {
            operations: std::mem::take(&mut self.operations),
            ..Subgraph::default()
        };
        let reader = Graph {
            operations: main.operations.clone(),
            ..Graph::default()
        };
        let mut pool = Vec::new();
        let mut request = Request::default();
        let mut inputs = Vec::new();
        let mut outputs_size = 0;
        for (index, drawn) in (0_u32..).zip(self.operands) {
            let mut operand = drawn.operand;
            operand.number_of_consumers = main
                .operations
                .iter()
                .flat_map(|operation| &operation.inputs)
                .filter(|input| **input == index)
                .count() as u32;
            let bytes = drawn.value.as_ref().map_or(&[][..], AlignedBuffer::bytes);
            let dims = drawn.shape.map(|shape| shape.dims().to_vec()).unwrap_or_default();
            match drawn.role {
                Role::ConstantCopy => {
                    operand.lifetime = OperandLifeTime::ConstantCopy;
                    operand.location = append(&mut model.operand_values, bytes);
                }
                Role::ConstantReference => {
                    operand.lifetime = OperandLifeTime::ConstantReference;
                    operand.location = append(&mut pool, bytes);
                }
                Role::NoValue => operand.lifetime = OperandLifeTime::NoValue,
                Role::Subgraph => operand.lifetime = OperandLifeTime::Subgraph,
                Role::Input | Role::OmittedInput => {
                    operand.lifetime = OperandLifeTime::SubgraphInput;
                    main.input_indexes.push(index);
                    let mut argument = RequestArgument::default();
                    if drawn.role == Role::OmittedInput {
                        argument.has_no_value = true;
                    } else {
                        argument.location = append(&mut inputs, bytes);
                        let is_open = open_dimensions(&mut operand, choices);
                        let can_be_given = can_be_given(&dims);
                        if is_open || (can_be_given && choices.once_in(8)) {
                            argument.dimensions = dims;
                        }
                    }
                    request.inputs.push(argument);
                }
                Role::Computed => {
                    let output = !reader.is_read(index) || choices.once_in(6);
                    let is_open = open_dimensions(&mut operand, choices);
                    if !output {
                        operand.lifetime = OperandLifeTime::TemporaryVariable;
                    } else {
                        operand.lifetime = OperandLifeTime::SubgraphOutput;
                        main.output_indexes.push(index);
                        let bytes = drawn.shape.map_or(UNKNOWN_OUTPUT_BYTES, |shape| {
                            shape.byte_size(operand.operand_type.element_size()).unwrap_or(0)
                        });
                        let given = given_dimensions(&operand, is_open, dims, choices);
                        request.outputs.push(RequestArgument {
                            location: DataLocation {
                                pool_index: 1,
                                offset: outputs_size as u32,
                                length: bytes.max(1) as u32,
                            },
                            dimensions: given,
                            ..RequestArgument::default()
                        });
                        outputs_size += bytes.max(1).next_multiple_of(VALUE_ALIGNMENT);
                    }
                }
            }
            main.operands.push(operand);
        }
        model.main = main;
        let is_extended = model
            .subgraphs()
            .flat_map(|(_, graph)| &graph.operations)
            .any(|operation| operation.operation_type.is_extension());
        if is_extended {
            model.extension_name_to_prefix.push(tflite::mapping());
        }
        // A memory cannot be empty.
        inputs.resize(inputs.len().max(VALUE_ALIGNMENT), 0);
        request.pools = [inputs.len(), outputs_size]
            .map(|size| RequestPool::Memory { size: size as u64 })
            .to_vec();
        let pools = if pool.is_empty() { Vec::new() } else { vec![pool] };
        model.pools = pools
            .iter()
            .map(|pool: &Vec<u8>| MemoryPool {
                size: pool.len() as u64,
            })
            .collect();
        Generated {
            model: ModelWithPools {
                model: Arc::new(model),
                pools: Arc::new(pools),
            },
            request,
            inputs,
            outputs_size,
        }
    }
}

/// Adds a value to a store, at the next aligned place.
pub(super) fn append(store: &mut Vec<u8>, bytes: &[u8]) -> DataLocation {
    let offset = store.len().next_multiple_of(VALUE_ALIGNMENT);
    store.resize(offset, 0);
    store.extend_from_slice(bytes);
    DataLocation {
        pool_index: 0,
        offset: offset as u32,
        length: bytes.len() as u32,
    }
}

/// Sometimes leaves an extent, or the whole rank, to the execution; returns whether it did.
fn open_dimensions(operand: &mut Operand, choices: &mut Choices) -> bool {
    let fixed =
        operand.dimensions.is_empty() || operand.operand_type == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL;
    if fixed || !choices.once_in(8) {
        return false;
    }
    let rank = operand.dimensions.len() as u32;
    match choices.below(rank + 1) {
        all if all == rank => operand.dimensions.clear(),
        axis => operand.dimensions[axis as usize] = 0,
    }
    true
}

/// Whether a request can give these dimensions, none of which it would leave open then.
fn can_be_given(dims: &[u32]) -> bool {
    !dims.is_empty() && !dims.contains(&0)
}

/// The dimensions that a request gives for an output: often those of one that the model leaves open,
/// sometimes but for one extent, and seldom those of one that it does not.
fn given_dimensions(operand: &Operand, is_open: bool, mut dims: Vec<u32>, choices: &mut Choices) -> Vec<u32> {
    let times = if is_open { 2 } else { 8 };
    if !can_be_given(&dims) || !choices.once_in(times) {
        return Vec::new();
    }
    // Only what the model leaves open may be left open.
    let open = operand.dimensions.iter().position(|extent| *extent == 0);
    if operand.dimensions.is_empty() && is_open && choices.once_in(4) {
        let axis = choices.below(dims.len() as u32) as usize;
        dims[axis] = 0;
    } else if let Some(axis) = open.filter(|_| choices.once_in(4)) {
        dims[axis] = 0;
    }
    dims
}

/// An operation whose arguments are drawn, seen as in an execution.
pub(super) struct Draft<'a> {
    pub(super) graph: &'a Graph,
    pub(super) operation: OperationType,
    pub(super) inputs: &'a [u32],
    pub(super) outputs: &'a [Operand],
}

impl OperationContext for Draft<'_> {
    fn operation(&self) -> OperationType {
        self.operation
    }

    fn input_count(&self) -> usize {
        self.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.outputs.len()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        let drawn = self.graph.operands.get(*self.inputs.get(index)? as usize)?;
        if matches!(drawn.role, Role::NoValue | Role::OmittedInput) {
            return None;
        }
        Some(OperandInfo {
            operand: &drawn.operand,
            shape: drawn.shape.unwrap_or_default(),
            rank_known: drawn.shape.is_some(),
            shape_known: drawn.shape.is_some(),
            bytes: drawn.value.as_ref().map(AlignedBuffer::bytes),
        })
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        let operand = self.outputs.get(index)?;
        Some(OperandInfo {
            operand,
            shape: Shape::default(),
            rank_known: operand.operand_type == OperandType::INT32,
            shape_known: false,
            bytes: None,
        })
    }

    fn executing(&self) -> bool {
        true
    }
}
