//! Which part of a model an older HAL version can express, and why not the rest.

#[cfg(test)]
mod tests;

use crate::ops::Earliest;
use crate::versions::model as forms;
use crate::versions::{Downcast, Inexpressible, Loss, v1_0, v1_1, v1_2};
use crate::{HalVersion, Model, Operation};

use super::ValidModel;
use super::slicing::{Slice, Slicing, inputs_in};

/// What an older HAL version can express of a model's main graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compliance {
    /// The version.
    pub version: HalVersion,
    /// For each operation of the main graph why the version cannot express it; `None` if it can.
    pub operations: Vec<Option<String>>,
    /// Operands that no operation of the version's needs and that stand in the way all the same: arguments of
    /// the model that the version has no type for. Index and reason.
    pub operands: Vec<(usize, String)>,
}

impl Compliance {
    /// Whether the version can express the whole model.
    #[must_use]
    pub fn is_compliant(&self) -> bool {
        self.operands.is_empty() && self.operations.iter().all(Option::is_none)
    }

    /// Why the model has no form in the version; `None` if it has.
    #[must_use]
    pub fn obstacles(&self, model: &Model) -> Option<Inexpressible> {
        let operations = self.operations.iter().zip(&model.main.operations).enumerate();
        let operations = operations.filter_map(|(index, (reason, operation))| {
            let part = format!("operation {index} ({})", operation.operation_type);
            Some(Loss::new(part, reason.as_ref()?))
        });
        let operands = self.operands.iter();
        let operands = operands.map(|(index, reason)| Loss::new(format!("operand {index}"), reason));
        let obstacles: Vec<Loss> = operations.chain(operands).collect();
        (!obstacles.is_empty()).then_some(Inexpressible {
            version: self.version,
            obstacles,
        })
    }
}

impl ValidModel {
    /// What HAL `version` can express of the model, operation by operation: its type, its operands' types and
    /// ranks, and its argument list. Last arguments of a later version do not count if they only say what
    /// leaving them off says. The relaxed flag stands in nobody's way: computing strictly is always allowed.
    #[must_use]
    pub fn compliant_with(&self, version: HalVersion) -> Compliance {
        let main = &self.model().main;
        let operations = main.operations.iter().zip(self.earliest());
        let operations: Vec<_> = operations
            .map(|(operation, earliest)| self.refusal(operation, *earliest, version))
            .collect();
        let mut is_read_or_written = vec![false; main.operands.len()];
        for operation in &main.operations {
            for &operand in operation.inputs.iter().chain(&operation.outputs) {
                is_read_or_written[operand as usize] = true;
            }
        }
        let operands = main.operands.iter().enumerate().zip(is_read_or_written);
        let operands = operands.filter(|((_, operand), used)| !used && !operand.lifetime.is_constant());
        Compliance {
            version,
            operations,
            operands: operands
                .filter_map(|((index, operand), _)| Some((index, operand.obstacle(version)?)))
                .collect(),
        }
    }

    /// The operations that HAL `version` can express, as a model of their own; `None` if it can express none.
    /// A model that it can express in full comes back with the same arguments.
    #[must_use]
    pub fn slice(&self, version: HalVersion) -> Option<Slice> {
        let compliance = self.compliant_with(version);
        let kept: Vec<usize> = (0..compliance.operations.len())
            .filter(|&index| compliance.operations[index].is_none())
            .collect();
        if kept.is_empty() {
            return None;
        }
        Some(Slicing::new(self, version, kept).finish())
    }

    /// The model as HAL 1.2 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.2 does not have.
    pub fn to_v1_2(&self) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_2)
    }

    /// The model as HAL 1.1 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.1 does not have.
    pub fn to_v1_1(&self) -> Result<Downcast<v1_1::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_1).map(forms::to_v1_1)
    }

    /// The model as HAL 1.0 can say it.
    ///
    /// # Errors
    /// Operations or operands that 1.0 does not have.
    pub fn to_v1_0(&self) -> Result<Downcast<v1_0::Model>, Inexpressible> {
        self.downcast(HalVersion::V1_0)
            .map(forms::to_v1_1)
            .map(forms::to_v1_0)
    }

    fn downcast(&self, version: HalVersion) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        if let Some(obstacles) = self.compliant_with(version).obstacles(self.model()) {
            return Err(obstacles);
        }
        let kept = (0..self.model().main.operations.len()).collect();
        Slicing::new(self, version, kept).finish().into_v1_2(version)
    }

    /// Why a version cannot express an operation; `None` if it can.
    fn refusal(&self, operation: &Operation, earliest: Earliest, version: HalVersion) -> Option<String> {
        let kind = operation.operation_type;
        if let Some(since) = kind.since().filter(|since| *since > version) {
            return Some(format!("{kind} came with HAL {since}"));
        }
        let inputs = inputs_in(operation, earliest, version);
        let operands = &self.model().main.operands;
        let sides = [("input", inputs), ("output", operation.outputs.as_slice())];
        for (side, list) in sides {
            for (number, &operand) in list.iter().enumerate() {
                if let Some(obstacle) = operands[operand as usize].obstacle(version) {
                    return Some(format!("{side} {number} (operand {operand}) {obstacle}"));
                }
            }
        }
        if kind.is_control_flow() && earliest.version > version {
            return Some(format!("{kind} runs a graph that needs HAL {}", earliest.version));
        }
        (earliest.version > version).then(|| {
            let types = inputs
                .iter()
                .map(|&input| operands[input as usize].operand_type.to_string());
            format!(
                "{kind} takes the {} arguments {} since HAL {}",
                inputs.len(),
                types.collect::<Vec<_>>().join(", "),
                earliest.version
            )
        })
    }
}
