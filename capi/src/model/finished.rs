//! A finished model, and how it becomes one model of the HAL with all inside it.

use std::sync::Arc;

use nnhal_client::Memory;
use nnhal_hal::{DataLocation, ExtensionNameAndPrefix, MemoryPool, OperandLifeTime, Subgraph};

use crate::result::{Failure, Outcome};

/// A model that is finished. Others may use its graph inside of theirs.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its own graph. Constants are in `copied` and `pools`; models inside it in `models`, by their index
    /// there.
    pub(super) graph: Subgraph,
    /// For each operation of the graph, which runs in this order, as which it was added.
    pub(super) order: Vec<usize>,
    pub(super) copied: Vec<u8>,
    pub(super) pools: Vec<Memory>,
    pub(super) models: Vec<Arc<Finished>>,
    pub(super) is_relaxed: bool,
    pub(super) extensions: Vec<ExtensionNameAndPrefix>,
    /// What devices get: this model with all inside it.
    pub(super) whole: nnhal_client::Model,
}

impl Finished {
    /// What devices get.
    pub(crate) fn model(&self) -> &nnhal_client::Model {
        &self.whole
    }

    /// Its own graph.
    pub(super) fn graph(&self) -> &Subgraph {
        &self.graph
    }

    /// What is said of each operation in the order in which they run, in the order in which they were added.
    pub(crate) fn in_added_order(&self, by_run: &[bool]) -> Vec<bool> {
        let mut by_addition = vec![false; self.order.len()];
        for (added, value) in self.order.iter().zip(by_run) {
            by_addition[*added] = *value;
        }
        by_addition
    }

    /// This model and all inside it as one model of the HAL, and its memories.
    pub(super) fn flatten(&self) -> Outcome<(nnhal_hal::Model, Vec<Memory>)> {
        let mut pools = Vec::new();
        let mut model = nnhal_hal::Model {
            relax_computation_float32_to_float16: self.is_relaxed,
            ..nnhal_hal::Model::default()
        };
        let mut inside: Vec<Arc<Finished>> = Vec::new();
        model.main = self.add_to(&mut model, &mut pools, &mut inside)?;
        let mut next = 0;
        while let Some(graph) = inside.get(next).cloned() {
            let graph = graph.add_to(&mut model, &mut pools, &mut inside)?;
            model.referenced.push(graph);
            next += 1;
        }
        let sizes = pools.iter().map(|memory| MemoryPool { size: memory.size() });
        model.pools = sizes.collect();
        Ok((model, pools))
    }

    /// Adds the constants to `model`, the memories to `pools` and the models inside this one to `inside`, and
    /// gives the graph with the locations that all have there.
    fn add_to(
        &self,
        model: &mut nnhal_hal::Model,
        pools: &mut Vec<Memory>,
        inside: &mut Vec<Arc<Finished>>,
    ) -> Outcome<Subgraph> {
        let mut graph = self.graph.clone();
        let values = &mut model.operand_values;
        values.resize(values.len().next_multiple_of(4), 0);
        let start = values.len();
        values.extend_from_slice(&self.copied);
        for operand in &mut graph.operands {
            let at = operand.location;
            match operand.lifetime {
                OperandLifeTime::ConstantCopy => {
                    operand.location = location(0, start + at.offset as usize, at.length as usize)?;
                }
                OperandLifeTime::ConstantReference => {
                    let pool = &self.pools[at.pool_index as usize];
                    let pool = position_or_push(pools, pool, Memory::is_same);
                    operand.location = location(pool, at.offset as usize, at.length as usize)?;
                }
                OperandLifeTime::Subgraph => {
                    let inner = &self.models[at.offset as usize];
                    operand.location = location(0, position_or_push(inside, inner, Arc::ptr_eq), 0)?;
                }
                _ => {}
            }
        }
        for mapping in &self.extensions {
            if !model.extension_name_to_prefix.contains(mapping) {
                model.extension_name_to_prefix.push(mapping.clone());
            }
        }
        Ok(graph)
    }
}

/// The index of an element that `same` finds equal, which is appended if there is none.
pub(super) fn position_or_push<T: Clone>(
    list: &mut Vec<T>,
    element: &T,
    same: impl Fn(&T, &T) -> bool,
) -> usize {
    list.iter()
        .position(|known| same(known, element))
        .unwrap_or_else(|| {
            list.push(element.clone());
            list.len() - 1
        })
}

/// A location, whose parts are below 4 GiB where the HAL can say them.
pub(super) fn location(pool: usize, offset: usize, length: usize) -> Outcome<DataLocation> {
    let fits = |part: usize, what: &str| {
        u32::try_from(part)
            .map_err(|_| Failure::bad_data(format!("a constant's {what} is {part}, which is 4 GiB or more")))
    };
    Ok(DataLocation {
        pool_index: fits(pool, "pool")?,
        offset: fits(offset, "offset")?,
        length: fits(length, "length")?,
    })
}
