//! Models between versions, as far as their form goes.
//!
//! Downwards these are parts of [`crate::validate::ValidModel::to_v1_0`] and its like, which see to the
//! operations.

use super::{Downcast, Inexpressible, Loss, v1_0, v1_1, v1_2};
use crate::{ExtraParams, HalVersion, Model, Operand, OperandLifeTime, Subgraph, SubgraphIndex};

impl Operand {
    /// What keeps the operand from being one of an older version; `None` if nothing does.
    #[must_use]
    pub fn obstacle(&self, version: HalVersion) -> Option<String> {
        let ty = self.operand_type;
        match ty.since() {
            None => return Some(format!("is of {ty}, which no HAL version has")),
            Some(since) if since > version => {
                return Some(format!("is of {ty}, which came with HAL {since}"));
            }
            Some(_) => {}
        }
        if self.lifetime == OperandLifeTime::Subgraph && version < HalVersion::V1_3 {
            return Some("is a subgraph, which came with HAL 1.3".to_owned());
        }
        if self.extra_params != ExtraParams::None && version < HalVersion::V1_2 {
            return Some("has extra parameters, which came with HAL 1.2".to_owned());
        }
        let is_open = ty.is_tensor() && self.dimensions.is_empty();
        (is_open && version < HalVersion::V1_2).then(|| {
            format!("is a tensor of unknown rank; HAL {version} wants its rank, with 0 for open extents")
        })
    }
}

/// The older lifetime; none for subgraphs.
fn older_lifetime(lifetime: OperandLifeTime) -> Option<v1_0::OperandLifeTime> {
    Some(match lifetime {
        OperandLifeTime::TemporaryVariable => v1_0::OperandLifeTime::TemporaryVariable,
        OperandLifeTime::SubgraphInput => v1_0::OperandLifeTime::ModelInput,
        OperandLifeTime::SubgraphOutput => v1_0::OperandLifeTime::ModelOutput,
        OperandLifeTime::ConstantCopy => v1_0::OperandLifeTime::ConstantCopy,
        OperandLifeTime::ConstantReference => v1_0::OperandLifeTime::ConstantReference,
        OperandLifeTime::NoValue => v1_0::OperandLifeTime::NoValue,
        OperandLifeTime::Subgraph => return None,
    })
}

impl From<v1_0::OperandLifeTime> for OperandLifeTime {
    fn from(lifetime: v1_0::OperandLifeTime) -> OperandLifeTime {
        match lifetime {
            v1_0::OperandLifeTime::TemporaryVariable => OperandLifeTime::TemporaryVariable,
            v1_0::OperandLifeTime::ModelInput => OperandLifeTime::SubgraphInput,
            v1_0::OperandLifeTime::ModelOutput => OperandLifeTime::SubgraphOutput,
            v1_0::OperandLifeTime::ConstantCopy => OperandLifeTime::ConstantCopy,
            v1_0::OperandLifeTime::ConstantReference => OperandLifeTime::ConstantReference,
            v1_0::OperandLifeTime::NoValue => OperandLifeTime::NoValue,
        }
    }
}

/// The operand in the form of 1.2, if `version` can express it.
fn older_operand(operand: Operand, version: HalVersion) -> Result<v1_2::Operand, String> {
    if let Some(obstacle) = operand.obstacle(version) {
        return Err(obstacle);
    }
    let lifetime = older_lifetime(operand.lifetime).ok_or_else(|| "is a subgraph".to_owned())?;
    Ok(v1_2::Operand {
        base: v1_0::Operand {
            operand_type: operand.operand_type,
            dimensions: operand.dimensions,
            number_of_consumers: operand.number_of_consumers,
            scale: operand.scale,
            zero_point: operand.zero_point,
            lifetime,
            location: operand.location,
        },
        extra_params: operand.extra_params,
    })
}

impl From<v1_2::Operand> for Operand {
    fn from(v1_2::Operand { base, extra_params }: v1_2::Operand) -> Operand {
        Operand {
            operand_type: base.operand_type,
            dimensions: base.dimensions,
            number_of_consumers: base.number_of_consumers,
            scale: base.scale,
            zero_point: base.zero_point,
            lifetime: base.lifetime.into(),
            location: base.location,
            extra_params,
        }
    }
}

impl From<v1_0::Operand> for v1_2::Operand {
    fn from(base: v1_0::Operand) -> v1_2::Operand {
        v1_2::Operand {
            base,
            extra_params: ExtraParams::None,
        }
    }
}

impl From<v1_0::Model> for v1_1::Model {
    /// Floats are computed strictly.
    fn from(graph: v1_0::Model) -> v1_1::Model {
        v1_1::Model {
            graph,
            relax_computation_float32_to_float16: false,
        }
    }
}

impl From<v1_1::Model> for v1_2::Model {
    /// There are no extensions.
    fn from(older: v1_1::Model) -> v1_2::Model {
        let graph = older.graph;
        v1_2::Model {
            operands: graph.operands.into_iter().map(Into::into).collect(),
            operations: graph.operations,
            input_indexes: graph.input_indexes,
            output_indexes: graph.output_indexes,
            operand_values: graph.operand_values,
            pools: graph.pools,
            relax_computation_float32_to_float16: older.relax_computation_float32_to_float16,
            extension_name_to_prefix: Vec::new(),
        }
    }
}

impl From<v1_2::Model> for Model {
    /// The model becomes the main graph, and the only one.
    fn from(older: v1_2::Model) -> Model {
        Model {
            main: Subgraph {
                operands: older.operands.into_iter().map(Into::into).collect(),
                operations: older.operations,
                input_indexes: older.input_indexes,
                output_indexes: older.output_indexes,
            },
            referenced: Vec::new(),
            operand_values: older.operand_values,
            pools: older.pools,
            relax_computation_float32_to_float16: older.relax_computation_float32_to_float16,
            extension_name_to_prefix: older.extension_name_to_prefix,
        }
    }
}

impl From<v1_1::Model> for Model {
    fn from(older: v1_1::Model) -> Model {
        v1_2::Model::from(older).into()
    }
}

impl From<v1_0::Model> for Model {
    fn from(older: v1_0::Model) -> Model {
        v1_1::Model::from(older).into()
    }
}

/// A model in the form of 1.2 whose operands and operation types are those of `version`, 1.2 or earlier.
/// Whether the operations' signatures are is not looked at.
pub(crate) fn to_v1_2(model: Model, version: HalVersion) -> Result<Downcast<v1_2::Model>, Inexpressible> {
    let mut obstacles = Vec::new();
    for (index, operation) in model.main.operations.iter().enumerate() {
        let since = operation.operation_type.since();
        if since.is_none_or(|since| since > version) {
            let reason = format!("is not of HAL {version}");
            obstacles.push(Loss::new(
                format!("operation {index} ({})", operation.operation_type),
                reason,
            ));
        }
    }
    let mut operands = Vec::with_capacity(model.main.operands.len());
    for (index, operand) in model.main.operands.into_iter().enumerate() {
        match older_operand(operand, version) {
            Ok(operand) => operands.push(operand),
            Err(reason) => obstacles.push(Loss::new(format!("operand {index}"), reason)),
        }
    }
    if !obstacles.is_empty() {
        return Err(Inexpressible { version, obstacles });
    }
    let losses = (0..model.referenced.len()).map(|index| {
        let part = SubgraphIndex::Referenced(index).to_string();
        Loss::new(
            part,
            "is left out: nothing refers to it, and only HAL 1.3 has such graphs",
        )
    });
    Ok(Downcast {
        losses: losses.collect(),
        value: v1_2::Model {
            operands,
            operations: model.main.operations,
            input_indexes: model.main.input_indexes,
            output_indexes: model.main.output_indexes,
            operand_values: model.operand_values,
            pools: model.pools,
            relax_computation_float32_to_float16: model.relax_computation_float32_to_float16,
            extension_name_to_prefix: model.extension_name_to_prefix,
        },
    })
}

/// The model in the form of 1.1, which it must be one of but for mappings of extensions that nothing uses.
pub(crate) fn to_v1_1(model: Downcast<v1_2::Model>) -> Downcast<v1_1::Model> {
    let Downcast { value, mut losses } = model;
    losses.extend(value.extension_name_to_prefix.iter().map(|mapping| {
        let reason = "its prefix is left out: nothing uses it, and extensions came with HAL 1.2";
        Loss::new(format!("extension {}", mapping.name), reason)
    }));
    Downcast {
        value: v1_1::Model {
            graph: v1_0::Model {
                operands: value.operands.into_iter().map(|operand| operand.base).collect(),
                operations: value.operations,
                input_indexes: value.input_indexes,
                output_indexes: value.output_indexes,
                operand_values: value.operand_values,
                pools: value.pools,
            },
            relax_computation_float32_to_float16: value.relax_computation_float32_to_float16,
        },
        losses,
    }
}

/// The model in the form of 1.0.
pub(crate) fn to_v1_0(model: Downcast<v1_1::Model>) -> Downcast<v1_0::Model> {
    let is_relaxed = model.value.relax_computation_float32_to_float16;
    let mut older = model.map(|model| model.graph);
    older.losses.extend(is_relaxed.then(|| {
        let reason =
            "is left out: relaxed floats came with HAL 1.1, and computing strictly is always allowed";
        Loss::new("relax_computation_float32_to_float16", reason)
    }));
    older
}
