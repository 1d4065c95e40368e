//! Models.

use std::sync::Arc;

use crate::hal::{
    ConstantPools, Extension, HalVersion, MAX_RANK, Model, OperandType, Shape, Subgraph, SubgraphIndex,
};

use super::{graph, limits};

/// A model that keeps every rule of the HAL.
#[derive(Clone, Debug)]
pub struct ValidModel {
    model: Arc<Model>,
    version: HalVersion,
}

/// The rule that a model breaks: where, what is wrong, what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The model as a whole.
    #[error("model: {message}")]
    Model {
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One graph.
    #[error("{graph}: {message}")]
    Graph {
        /// Which graph.
        graph: SubgraphIndex,
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One operand.
    #[error("operand {operand} of the {graph}: {message}")]
    Operand {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operand.
        operand: usize,
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One operation.
    #[error("operation {index} ({operation}) of the {graph}: {message}")]
    Operation {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation.
        index: usize,
        /// The operation.
        operation: crate::hal::OperationType,
        /// What was wrong, and what would be right.
        message: String,
    },
}

impl ModelError {
    pub(super) fn model(message: impl Into<String>) -> ModelError {
        ModelError::Model {
            message: message.into(),
        }
    }
}

impl ValidModel {
    /// Checks `model`. `pools` holds the bytes of its pools; `extensions` are those whose operand types are known
    /// here, so that numbers outside them can be refused.
    ///
    /// # Errors
    /// The first rule that is broken; the HAL status is INVALID_ARGUMENT.
    pub fn new(
        model: Arc<Model>,
        pools: &dyn ConstantPools,
        extensions: &[Extension],
    ) -> Result<ValidModel, ModelError> {
        check_counts(&model)?;
        check_extension_prefixes(&model)?;
        let context = ModelContext {
            model: &model,
            pools,
            extensions,
        };
        let mut version = HalVersion::V1_0;
        if model.relax_computation_float32_to_float16 {
            version = HalVersion::V1_1;
        }
        for (at, subgraph) in model.subgraphs() {
            version = version.max(graph::check(&context, at, subgraph)?);
        }
        check_subgraph_depth(&model)?;
        Ok(ValidModel { model, version })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<Model> {
        Arc::clone(&self.model)
    }

    /// The first HAL version that can express the model. The relaxed flag counts as 1.1, although 1.0 may drop it.
    #[must_use]
    pub fn version(&self) -> HalVersion {
        self.version
    }
}

/// What checks of graphs, operands and operations need to know of the model.
pub(super) struct ModelContext<'a> {
    pub(super) model: &'a Model,
    pub(super) pools: &'a dyn ConstantPools,
    pub(super) extensions: &'a [Extension],
}

impl ModelContext<'_> {
    /// The number of bytes that a constant of this type and shape has; `None` where the HAL does not fix it.
    pub(super) fn constant_size(&self, ty: OperandType, shape: &Shape) -> Result<Option<usize>, String> {
        if ty.is_extension() || ty.is_oem() {
            return Ok(None);
        }
        shape
            .byte_size(ty.element_size())
            .map(Some)
            .map_err(|error| error.to_string())
    }
}

fn check_counts(model: &Model) -> Result<(), ModelError> {
    let total =
        |count: fn(&Subgraph) -> usize| model.subgraphs().map(|(_, graph)| count(graph)).sum::<usize>();
    let bounded = |what: &str, count: usize, most: usize| {
        if count <= most {
            return Ok(());
        }
        Err(ModelError::model(format!(
            "has {count} {what}, at most {most} are accepted"
        )))
    };
    bounded(
        "operands",
        total(|graph| graph.operands.len()),
        limits::MAX_OPERANDS,
    )?;
    bounded(
        "operations",
        total(|graph| graph.operations.len()),
        limits::MAX_OPERATIONS,
    )?;
    bounded(
        "referenced graphs",
        model.referenced.len(),
        limits::MAX_REFERENCED_SUBGRAPHS,
    )?;
    bounded("pools", model.pools.len(), limits::MAX_POOLS)
}

fn check_extension_prefixes(model: &Model) -> Result<(), ModelError> {
    let mappings = &model.extension_name_to_prefix;
    for (index, mapping) in mappings.iter().enumerate() {
        if mapping.prefix == 0 {
            return Err(ModelError::model(format!(
                "extension {:?} has prefix 0, which is reserved for standard types",
                mapping.name
            )));
        }
        if !Extension::is_valid_name(&mapping.name) {
            return Err(ModelError::model(format!(
                "extension name {:?} must consist of a-z, 0-9, '_' and '.', with at least one '.'",
                mapping.name
            )));
        }
        let twice = mappings[..index]
            .iter()
            .any(|earlier| earlier.prefix == mapping.prefix || earlier.name == mapping.name);
        if twice {
            return Err(ModelError::model(format!(
                "extension {:?} with prefix {} repeats a name or prefix; the mapping must be one to one",
                mapping.name, mapping.prefix
            )));
        }
    }
    Ok(())
}

/// References between graphs must not form a cycle, nor nest deeper than executions may.
fn check_subgraph_depth(model: &Model) -> Result<(), ModelError> {
    // The nesting below each graph: unknown, being found, or found.
    #[derive(Clone, Copy, PartialEq)]
    enum Depth {
        Unknown,
        Open,
        Known(usize),
    }
    let references = |graph: &Subgraph| -> Vec<usize> {
        graph
            .operands
            .iter()
            .filter(|operand| operand.operand_type == OperandType::SUBGRAPH)
            .map(|operand| operand.location.offset as usize)
            .collect()
    };
    let mut depths = vec![Depth::Unknown; model.referenced.len()];
    let too_deep = |graph: usize| ModelError::Graph {
        graph: SubgraphIndex::Referenced(graph),
        message: format!("is nested more than {} deep", limits::MAX_SUBGRAPH_DEPTH),
    };
    for root in 0..model.referenced.len() {
        // Depth first, on a stack of our own: the model decides how deep it goes.
        let mut stack = vec![(root, references(&model.referenced[root]), 0_usize)];
        if depths[root] != Depth::Unknown {
            continue;
        }
        depths[root] = Depth::Open;
        while let Some((graph, pending, below)) = stack.last_mut() {
            let Some(next) = pending.pop() else {
                if *below >= limits::MAX_SUBGRAPH_DEPTH {
                    return Err(too_deep(*graph));
                }
                let depth = *below + 1;
                depths[*graph] = Depth::Known(depth);
                stack.pop();
                if let Some((.., above)) = stack.last_mut() {
                    *above = (*above).max(depth);
                }
                continue;
            };
            match depths[next] {
                Depth::Known(depth) => *below = (*below).max(depth),
                Depth::Open => {
                    return Err(ModelError::Graph {
                        graph: SubgraphIndex::Referenced(next),
                        message: "refers to itself through IF or WHILE; references must not form a cycle"
                            .into(),
                    });
                }
                Depth::Unknown => {
                    depths[next] = Depth::Open;
                    let pending = references(&model.referenced[next]);
                    stack.push((next, pending, 0));
                }
            }
        }
    }
    Ok(())
}

/// The shape that an operand declares.
pub(super) fn declared_shape(dimensions: &[u32]) -> Result<Shape, String> {
    Shape::new(dimensions)
        .map_err(|_| format!("has rank {}, at most {MAX_RANK} is supported", dimensions.len()))
}
