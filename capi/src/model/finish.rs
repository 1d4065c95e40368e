//! From a draft to a finished model.

use std::sync::Arc;

use nnhal_client::Memory;
use nnhal_hal::validate::{ValidModel, limits};
use nnhal_hal::{ConstantPools, ExtensionNameAndPrefix, MemoryPool, Operand, OperandLifeTime, Subgraph};

use super::draft::Draft;
use super::finished::{Finished, location, position_or_push};
use super::order::run_order;
use super::value::Value;
use crate::extension;
use crate::result::{Failure, Outcome};

/// Alignment of constants in memories: a cache line, which is enough for any vector instruction.
const ALIGNMENT: usize = 64;

impl Finished {
    /// Checks the draft by every rule of the HAL, and puts constants where devices can use them.
    pub(super) fn new(draft: Draft) -> Outcome<Finished> {
        let mut finished = Finished::of_draft(draft)?;
        let (model, pools) = finished.flatten()?;
        check(&model, &pools)?;
        finished.whole = nnhal_client::Model::from_hal(model, pools);
        Ok(finished)
    }

    fn of_draft(mut draft: Draft) -> Outcome<Finished> {
        let Some((inputs, outputs)) = draft.arguments.take() else {
            return Err(Failure::bad_data(
                "the model has no inputs and outputs; call ANeuralNetworksModel_identifyInputsAndOutputs",
            ));
        };
        let mut finished = Finished {
            graph: Subgraph::default(),
            order: Vec::new(),
            copied: std::mem::take(&mut draft.copied),
            pools: Vec::new(),
            models: Vec::new(),
            is_relaxed: draft.is_relaxed,
            extensions: Vec::new(),
            whole: nnhal_client::Model::from_hal(nnhal_hal::Model::default(), Vec::new()),
        };
        finished.name_extensions(&draft);
        let mut operands = std::mem::take(&mut draft.operands);
        finished.place_references(&draft.values, &mut operands)?;
        finished.place_others(&draft.values, &mut operands)?;
        for (list, lifetime) in [
            (&inputs, OperandLifeTime::SubgraphInput),
            (&outputs, OperandLifeTime::SubgraphOutput),
        ] {
            for &index in list {
                let operand = &mut operands[index as usize];
                if operand.lifetime != OperandLifeTime::TemporaryVariable {
                    return Err(Failure::bad_data(format!(
                        "operand {index} is an input or output of the model and was then given a value"
                    )));
                }
                operand.lifetime = lifetime;
            }
        }
        for &input in draft.operations.iter().flat_map(|operation| &operation.inputs) {
            operands[input as usize].number_of_consumers += 1;
        }
        finished.order = run_order(&draft.operations, operands.len()).map_err(Failure::bad_data)?;
        let sorted = finished
            .order
            .iter()
            .map(|index| draft.operations[*index].clone());
        finished.graph = Subgraph {
            operations: sorted.collect(),
            operands,
            input_indexes: inputs,
            output_indexes: outputs,
        };
        Ok(finished)
    }

    fn name_extensions(&mut self, draft: &Draft) {
        let types = draft.operands.iter().map(|operand| operand.operand_type);
        let types = types
            .filter(|ty| ty.is_extension())
            .map(|ty| ty.extension_prefix());
        let kinds = draft.operations.iter().map(|operation| operation.operation_type);
        let kinds = kinds
            .filter(|kind| kind.is_extension())
            .map(|kind| kind.extension_prefix());
        for prefix in types.chain(kinds) {
            let is_known = self.extensions.iter().any(|known| known.prefix == prefix);
            if let (false, Some(name)) = (is_known, extension::name(prefix)) {
                self.extensions.push(ExtensionNameAndPrefix { name, prefix });
            }
        }
    }

    /// Copies the constants that the caller has kept so far into one memory, which nobody can change any
    /// more.
    fn place_references(&mut self, values: &[Value], operands: &mut [Operand]) -> Outcome {
        const PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut end = 0_usize;
        for (operand, value) in operands.iter_mut().zip(values) {
            let Value::Referenced(bytes) = value else { continue };
            let offset = end.next_multiple_of(ALIGNMENT);
            parts.push(&PADDING[..offset - end]);
            parts.push(bytes.as_slice());
            end = offset + bytes.len();
            operand.lifetime = OperandLifeTime::ConstantReference;
            operand.location = location(0, offset, bytes.len())?;
        }
        if !parts.is_empty() {
            self.pools.push(Memory::sealed(&parts)?);
        }
        Ok(())
    }

    fn place_others(&mut self, values: &[Value], operands: &mut [Operand]) -> Outcome {
        for (operand, value) in operands.iter_mut().zip(values) {
            match value {
                Value::None | Value::Referenced(_) => {}
                Value::Omitted => operand.lifetime = OperandLifeTime::NoValue,
                Value::Copied { offset, length } => {
                    operand.lifetime = OperandLifeTime::ConstantCopy;
                    operand.location = location(0, *offset, *length)?;
                }
                Value::Shared(shared) => {
                    let pool = position_or_push(&mut self.pools, &shared.memory, Memory::is_same);
                    operand.lifetime = OperandLifeTime::ConstantReference;
                    operand.location = location(pool, shared.offset, shared.length)?;
                }
                Value::Model(model) => {
                    let index = position_or_push(&mut self.models, model, Arc::ptr_eq);
                    operand.lifetime = OperandLifeTime::Subgraph;
                    operand.location = location(0, index, 0)?;
                }
            }
        }
        Ok(())
    }
}

/// Checks the model by every rule that a driver will check it by.
fn check(model: &nnhal_hal::Model, pools: &[Memory]) -> Outcome {
    let (model, pools) = stand_in(model, pools)?;
    let extensions = extension::all_of(&model.extension_name_to_prefix);
    ValidModel::new(Arc::new(model), &pools, &extensions)
        .map(drop)
        .map_err(|error| Failure::bad_data(error.to_string()))
}

/// Zeros in place of the large constants, whose values no rule looks at: pages that are never touched.
struct Zeros(Vec<u8>);

impl ConstantPools for Zeros {
    fn bytes(&self, pool: usize) -> Option<&[u8]> {
        (pool == 0).then_some(&self.0)
    }
}

/// The same model with small constants inside it and large ones among zeros.
fn stand_in(model: &nnhal_hal::Model, pools: &[Memory]) -> Outcome<(nnhal_hal::Model, Zeros)> {
    let mut model = model.clone();
    let mut large = 0_usize;
    let nnhal_hal::Model {
        main,
        referenced,
        operand_values,
        ..
    } = &mut model;
    for graph in std::iter::once(main).chain(referenced) {
        for operand in &mut graph.operands {
            if operand.lifetime != OperandLifeTime::ConstantReference {
                continue;
            }
            let (pool, offset) = (operand.location.pool_index, operand.location.offset);
            let length = operand.location.length as usize;
            if length > limits::MAX_PARAMETER_BYTES {
                operand.location = location(0, large, length)?;
                large += length;
                continue;
            }
            operand.lifetime = OperandLifeTime::ConstantCopy;
            let start = operand_values.len().next_multiple_of(8);
            operand_values.resize(start + length, 0);
            pools[pool as usize].read_at(u64::from(offset), &mut operand_values[start..])?;
            operand.location = location(0, start, length)?;
        }
    }
    model.pools = vec![MemoryPool { size: large as u64 }];
    Ok((model, Zeros(vec![0; large])))
}
