//! From a case to a model, a request and the outputs that are expected.

use std::sync::Arc;

use nnhal_hal::{
    DataLocation, ExtraParams, MemoryPool, Model, Operand, OperandLifeTime, OperandType, Operation,
    OperationType, Request, RequestArgument, RequestPool, Subgraph, SymmPerChannelQuantParams,
};

use crate::accuracy::{self, Tolerance};
use crate::corpus::{Case, Graph, Lifetime, OperandEntry, Specification};
use crate::element;
use crate::implementation::ModelWithPools;

/// Every value starts at a multiple of this many bytes.
const VALUE_ALIGNMENT: usize = 4;

/// How a case is changed before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Variation {
    /// Unsigned quantised bytes become signed ones: zero points and values are lowered by 128.
    pub signed: bool,
    /// Every dimension of every output of the main graph becomes unspecified; the rank stays.
    pub unspecified_outputs: bool,
    /// Every dimension of every input and output of the main graph becomes unspecified, the rank stays, and
    /// the request gives them all.
    pub given_with_request: bool,
}

/// A case that can be executed.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The model.
    pub model: ModelWithPools,
    /// The request: pool 0 for inputs, pool 1 for outputs.
    pub request: Request,
    /// The bytes of the inputs' pool.
    pub inputs: Vec<u8>,
    /// Size of the outputs' pool.
    pub outputs_size: usize,
    /// What the outputs must be.
    pub outputs: Vec<ExpectedOutput>,
}

/// What an output must be.
#[derive(Clone, Debug)]
pub struct ExpectedOutput {
    /// Its type.
    pub operand_type: OperandType,
    /// Its dimensions.
    pub dimensions: Vec<u32>,
    /// Its values.
    pub values: Vec<f64>,
    /// Whether its values are not compared.
    pub ignored: bool,
    /// How far off they may be.
    pub tolerance: Tolerance,
}

/// A case that contradicts the corpus' own rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the case is malformed: {0}")]
pub struct MalformedCase(String);

impl Instance {
    /// Builds `case` of `specification`, varied.
    ///
    /// # Errors
    /// The case contradicts the corpus' own rules.
    pub fn new(
        specification: &Specification,
        case: &Case,
        variation: Variation,
    ) -> Result<Instance, MalformedCase> {
        let builder = Builder {
            specification,
            case,
            variation,
        };
        let model = builder.model()?;
        let main = &case.main;
        let mut request = Request::default();
        let mut inputs = Vec::new();
        for &index in &main.inputs {
            request
                .inputs
                .push(builder.input(operand(main, index)?, &mut inputs)?);
        }
        let mut outputs = Vec::new();
        let mut outputs_size = 0_usize;
        for &index in &main.outputs {
            let entry = operand(main, index)?;
            let bytes = builder.bytes(entry)?;
            outputs.push(builder.expected(entry, &bytes)?);
            // A zero-sized output has a buffer all the same.
            let location = DataLocation {
                pool_index: 1,
                offset: location_part(outputs_size)?,
                length: location_part(bytes.len().max(1))?,
            };
            request.outputs.push(RequestArgument {
                location,
                dimensions: builder.given_dimensions(entry),
                ..RequestArgument::default()
            });
            outputs_size += bytes.len().max(1).next_multiple_of(VALUE_ALIGNMENT);
        }
        // A memory cannot be empty.
        inputs.resize(inputs.len().max(VALUE_ALIGNMENT), 0);
        request.pools = [inputs.len(), outputs_size]
            .map(|size| RequestPool::Memory { size: size as u64 })
            .to_vec();
        Ok(Instance {
            model,
            request,
            inputs,
            outputs_size,
            outputs,
        })
    }

    /// Whether an output is expected to have no element.
    #[must_use]
    pub fn has_zero_sized_output(&self) -> bool {
        self.outputs.iter().any(|output| output.values.is_empty())
    }

    /// The request with one byte less for the first output; `None` if that output has no byte to spare.
    #[must_use]
    pub fn short_of_one_byte(&self) -> Option<Request> {
        let mut request = self.request.clone();
        let length = &mut request.outputs.first_mut()?.location.length;
        if *length <= 1 {
            return None;
        }
        *length -= 1;
        Some(request)
    }

    /// The bytes of output `index` in the outputs' pool.
    #[must_use]
    pub fn output_bytes<'a>(&self, index: usize, pool: &'a [u8]) -> Option<&'a [u8]> {
        let DataLocation { offset, .. } = self.request.outputs.get(index)?.location;
        let expected = self.outputs.get(index)?;
        let length = expected.values.len() * expected.operand_type.element_size();
        pool.get(offset as usize..offset as usize + length)
    }
}

struct Builder<'a> {
    specification: &'a Specification,
    case: &'a Case,
    variation: Variation,
}

impl Builder<'_> {
    fn model(&self) -> Result<ModelWithPools, MalformedCase> {
        let mut model = Model {
            relax_computation_float32_to_float16: self.case.relaxed,
            ..Model::default()
        };
        let mut pool = Vec::new();
        let mut graphs = Vec::new();
        for (index, graph) in self.case.graphs().enumerate() {
            graphs.push(self.graph(graph, index == 0, &mut model.operand_values, &mut pool)?);
        }
        model.main = graphs.remove(0);
        model.referenced = graphs;
        let pools: Vec<Vec<u8>> = if pool.is_empty() { Vec::new() } else { vec![pool] };
        model.pools = pools
            .iter()
            .map(|pool| MemoryPool {
                size: pool.len() as u64,
            })
            .collect();
        Ok(ModelWithPools {
            model: Arc::new(model),
            pools: Arc::new(pools),
        })
    }

    fn graph(
        &self,
        graph: &Graph,
        main: bool,
        operand_values: &mut Vec<u8>,
        pool: &mut Vec<u8>,
    ) -> Result<Subgraph, MalformedCase> {
        let mut operands = Vec::with_capacity(graph.operands.len());
        for entry in &graph.operands {
            let mut built = self.operand(entry, main)?;
            let store = match built.lifetime {
                OperandLifeTime::ConstantCopy => Some(&mut *operand_values),
                OperandLifeTime::ConstantReference => Some(&mut *pool),
                _ => None,
            };
            if let Some(store) = store {
                built.location = append(store, &self.bytes(entry)?)?;
            }
            operands.push(built);
        }
        let mut operations = Vec::with_capacity(graph.operations.len());
        for entry in &graph.operations {
            let operation_type = OperationType::from_name(&entry.op)
                .ok_or_else(|| MalformedCase(format!("{} is no operation", entry.op)))?;
            for &index in &entry.inputs {
                let read = operands
                    .get_mut(index as usize)
                    .ok_or_else(|| MalformedCase(format!("there is no operand {index}")))?;
                read.number_of_consumers += 1;
            }
            operations.push(Operation {
                operation_type,
                inputs: entry.inputs.clone(),
                outputs: entry.outputs.clone(),
            });
        }
        Ok(Subgraph {
            operands,
            operations,
            input_indexes: graph.inputs.clone(),
            output_indexes: graph.outputs.clone(),
        })
    }

    fn operand(&self, entry: &OperandEntry, main: bool) -> Result<Operand, MalformedCase> {
        let lifetime = lifetime(entry.lifetime);
        let mut dimensions = entry.dims.clone();
        let is_open = match lifetime {
            OperandLifeTime::SubgraphInput => self.variation.given_with_request,
            OperandLifeTime::SubgraphOutput => {
                self.variation.given_with_request || self.variation.unspecified_outputs
            }
            _ => false,
        };
        if main && is_open {
            dimensions.fill(0);
        }
        let mut operand = Operand::new(self.operand_type(entry)?, &dimensions)
            .with_quantization(entry.scale as f32, entry.zero_point)
            .with_lifetime(lifetime);
        if self.becomes_signed(entry) {
            operand.zero_point -= 128;
        }
        if let Some(channel_quant) = &entry.channel_quant {
            operand.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
                scales: channel_quant.scales.iter().map(|scale| *scale as f32).collect(),
                channel_dim: channel_quant.channel_dim,
            });
        }
        if let Some(subgraph) = entry.subgraph {
            operand.location.offset = subgraph;
        }
        Ok(operand)
    }

    fn becomes_signed(&self, entry: &OperandEntry) -> bool {
        self.variation.signed && entry.operand_type == "TENSOR_QUANT8_ASYMM"
    }

    fn operand_type(&self, entry: &OperandEntry) -> Result<OperandType, MalformedCase> {
        if self.becomes_signed(entry) {
            return Ok(OperandType::TENSOR_QUANT8_ASYMM_SIGNED);
        }
        OperandType::from_name(&entry.operand_type)
            .ok_or_else(|| MalformedCase(format!("{} is no operand type", entry.operand_type)))
    }

    /// The operand's value as bytes.
    fn bytes(&self, entry: &OperandEntry) -> Result<Vec<u8>, MalformedCase> {
        let values = entry
            .data
            .and_then(|index| self.specification.buffers.get(index))
            .ok_or_else(|| MalformedCase(format!("operand {:?} has no values", entry.name)))?;
        let ty = self.operand_type(entry)?;
        let shift = if self.becomes_signed(entry) { 128.0 } else { 0.0 };
        let mut bytes = Vec::with_capacity(values.len() * ty.element_size());
        for value in values {
            element::encode(ty, value - shift, &mut bytes);
        }
        Ok(bytes)
    }

    fn input(&self, entry: &OperandEntry, pool: &mut Vec<u8>) -> Result<RequestArgument, MalformedCase> {
        let bytes = self.bytes(entry)?;
        if bytes.is_empty() {
            return Ok(RequestArgument {
                has_no_value: true,
                ..RequestArgument::default()
            });
        }
        Ok(RequestArgument {
            location: append(pool, &bytes)?,
            dimensions: self.given_dimensions(entry),
            ..RequestArgument::default()
        })
    }

    /// The dimensions that the request gives for an argument.
    fn given_dimensions(&self, entry: &OperandEntry) -> Vec<u32> {
        if self.variation.given_with_request {
            entry.dims.clone()
        } else {
            Vec::new()
        }
    }

    fn expected(&self, entry: &OperandEntry, bytes: &[u8]) -> Result<ExpectedOutput, MalformedCase> {
        let operand_type = self.operand_type(entry)?;
        Ok(ExpectedOutput {
            operand_type,
            dimensions: entry.dims.clone(),
            values: element::decode(operand_type, bytes),
            ignored: entry.ignored,
            tolerance: accuracy::tolerance(self.case, operand_type),
        })
    }
}

fn operand(graph: &Graph, index: u32) -> Result<&OperandEntry, MalformedCase> {
    graph
        .operands
        .get(index as usize)
        .ok_or_else(|| MalformedCase(format!("there is no operand {index}")))
}

fn location_part(value: usize) -> Result<u32, MalformedCase> {
    u32::try_from(value).map_err(|_| MalformedCase("its values do not fit 32 bits".into()))
}

/// Adds a value to a store, at the next aligned place.
fn append(store: &mut Vec<u8>, bytes: &[u8]) -> Result<DataLocation, MalformedCase> {
    let offset = store.len().next_multiple_of(VALUE_ALIGNMENT);
    store.resize(offset, 0);
    store.extend_from_slice(bytes);
    Ok(DataLocation {
        pool_index: 0,
        offset: location_part(offset)?,
        length: location_part(bytes.len())?,
    })
}

fn lifetime(lifetime: Lifetime) -> OperandLifeTime {
    match lifetime {
        Lifetime::SubgraphInput => OperandLifeTime::SubgraphInput,
        Lifetime::SubgraphOutput => OperandLifeTime::SubgraphOutput,
        Lifetime::TemporaryVariable => OperandLifeTime::TemporaryVariable,
        Lifetime::ConstantCopy => OperandLifeTime::ConstantCopy,
        Lifetime::ConstantReference => OperandLifeTime::ConstantReference,
        Lifetime::NoValue => OperandLifeTime::NoValue,
        Lifetime::Subgraph => OperandLifeTime::Subgraph,
    }
}
