//! The part of a model that an older HAL version can express, made into a model of its own.

use crate::ops::Earliest;
use crate::versions::model as forms;
use crate::versions::{Downcast, Inexpressible, Loss, v1_0, v1_1, v1_2};
use crate::{HalVersion, Model, Operand, OperandLifeTime, Operation, Subgraph};

use super::ValidModel;

/// The part of a model that an older HAL version can express, as a model of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The model. What operations outside of it wrote and those inside read is an input; what those inside
    /// wrote and those outside read is an output.
    pub model: Model,
    /// For each of its operations the index in the main graph that it was made from.
    pub operations: Vec<usize>,
    /// What the operations say no more, and operands that nobody reads and that the version does not have.
    pub losses: Vec<Loss>,
}

/// The inputs of an operation in a version: all of them, or those that are left without the last ones that
/// only say what leaving them off says.
pub(super) fn inputs_in(operation: &Operation, earliest: Earliest, version: HalVersion) -> &[u32] {
    let count = if earliest.full > version {
        earliest.inputs
    } else {
        operation.inputs.len()
    };
    &operation.inputs[..count.min(operation.inputs.len())]
}

impl Slice {
    /// The part in the form of 1.2, with operands and operations of `version`.
    pub(super) fn into_v1_2(self, version: HalVersion) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        let mut older = forms::to_v1_2(self.model, version)?;
        older.losses.splice(0..0, self.losses);
        Ok(older)
    }

    /// The part in the form of 1.2.
    ///
    /// # Errors
    /// None for a part that was made for 1.2 or an earlier version.
    pub fn into_model_1_2(self) -> Result<Downcast<v1_2::Model>, Inexpressible> {
        self.into_v1_2(HalVersion::V1_2)
    }

    /// The part in the form of 1.1.
    ///
    /// # Errors
    /// None for a part that was made for 1.1 or 1.0.
    pub fn into_model_1_1(self) -> Result<Downcast<v1_1::Model>, Inexpressible> {
        self.into_v1_2(HalVersion::V1_1).map(forms::to_v1_1)
    }

    /// The part in the form of 1.0.
    ///
    /// # Errors
    /// None for a part that was made for 1.0.
    pub fn into_model_1_0(self) -> Result<Downcast<v1_0::Model>, Inexpressible> {
        let older = self.into_v1_2(HalVersion::V1_0)?;
        Ok(forms::to_v1_0(forms::to_v1_1(older)))
    }
}

/// A part of a main graph in the making.
pub(super) struct Slicing<'a> {
    model: &'a Model,
    version: HalVersion,
    kept: Vec<usize>,
    /// The kept operations, with the inputs that they have in the version, still by old indexes.
    operations: Vec<Operation>,
    losses: Vec<Loss>,
    /// By old index: how often a kept operation reads the operand.
    consumers: Vec<u32>,
    /// By old index: whether a kept operation writes it.
    written: Vec<bool>,
    /// By old index: whether an operation that is not kept reads it.
    read_outside: Vec<bool>,
}

impl<'a> Slicing<'a> {
    pub(super) fn new(valid: &'a ValidModel, version: HalVersion, kept: Vec<usize>) -> Slicing<'a> {
        let model = valid.model();
        let count = model.main.operands.len();
        let mut slicing = Slicing {
            model,
            version,
            operations: Vec::with_capacity(kept.len()),
            losses: Vec::new(),
            consumers: vec![0; count],
            written: vec![false; count],
            read_outside: vec![false; count],
            kept,
        };
        let mut next = slicing.kept.iter().copied().peekable();
        for (index, operation) in model.main.operations.iter().enumerate() {
            if next.next_if_eq(&index).is_none() {
                for &input in &operation.inputs {
                    slicing.read_outside[input as usize] = true;
                }
                continue;
            }
            let inputs = inputs_in(operation, valid.earliest()[index], version);
            for number in inputs.len()..operation.inputs.len() {
                let reason = format!("is left off in HAL {version}: it says what leaving it off says");
                let part = format!(
                    "input {number} of operation {index} ({})",
                    operation.operation_type
                );
                slicing.losses.push(Loss::new(part, reason));
            }
            for &input in inputs {
                slicing.consumers[input as usize] += 1;
            }
            for &output in &operation.outputs {
                slicing.written[output as usize] = true;
            }
            slicing.operations.push(Operation {
                inputs: inputs.to_vec(),
                ..operation.clone()
            });
        }
        slicing
    }

    fn is_whole(&self) -> bool {
        self.kept.len() == self.model.main.operations.len()
    }

    /// Whether the part has the operand at all.
    fn keeps(&self, index: usize, operand: &Operand) -> bool {
        let is_used = self.consumers[index] > 0 || self.written[index];
        is_used || (self.is_whole() && operand.obstacle(self.version).is_none())
    }

    fn lifetime(&self, index: usize, operand: &Operand) -> OperandLifeTime {
        let is_result = matches!(
            operand.lifetime,
            OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
        );
        if !is_result || self.is_whole() {
            return operand.lifetime;
        }
        if !self.written[index] {
            return OperandLifeTime::SubgraphInput;
        }
        let is_output = operand.lifetime == OperandLifeTime::SubgraphOutput
            || self.read_outside[index]
            || self.consumers[index] == 0;
        if is_output {
            OperandLifeTime::SubgraphOutput
        } else {
            OperandLifeTime::TemporaryVariable
        }
    }

    pub(super) fn finish(mut self) -> Slice {
        let main = &self.model.main;
        let mut new_index = vec![None; main.operands.len()];
        let mut operands: Vec<Operand> = Vec::with_capacity(main.operands.len());
        for (index, operand) in main.operands.iter().enumerate() {
            if !self.keeps(index, operand) {
                if self.is_whole() {
                    let reason = format!("is left out: no operation needs it in HAL {}", self.version);
                    self.losses.push(Loss::new(format!("operand {index}"), reason));
                }
                continue;
            }
            new_index[index] = u32::try_from(operands.len()).ok();
            operands.push(Operand {
                number_of_consumers: self.consumers[index],
                lifetime: self.lifetime(index, operand),
                ..operand.clone()
            });
        }
        let renumbered =
            |list: &[u32]| -> Vec<u32> { list.iter().filter_map(|&old| new_index[old as usize]).collect() };
        // A form without graphs says of those that nothing runs that they are left out.
        let referenced = if self.version < HalVersion::V1_3 && self.is_whole() {
            self.model.referenced.clone()
        } else {
            run_by(&mut operands, &self.model.referenced)
        };
        let operations = self.operations.iter().map(|operation| Operation {
            operation_type: operation.operation_type,
            inputs: renumbered(&operation.inputs),
            outputs: renumbered(&operation.outputs),
        });
        let operations = operations.collect();
        let arguments = |old: &[u32], lifetime| {
            let mut indexes = renumbered(old);
            // An output that an operation outside writes is an input here.
            indexes.retain(|&index| operands[index as usize].lifetime == lifetime);
            let mut is_listed = vec![false; operands.len()];
            for &index in &indexes {
                is_listed[index as usize] = true;
            }
            // What was an argument keeps its place; what becomes one follows.
            let new = operands.iter().zip(is_listed).enumerate();
            let new = new.filter(|(_, (operand, listed))| !listed && operand.lifetime == lifetime);
            indexes.extend(new.filter_map(|(index, _)| u32::try_from(index).ok()));
            indexes
        };
        let input_indexes = arguments(&main.input_indexes, OperandLifeTime::SubgraphInput);
        let output_indexes = arguments(&main.output_indexes, OperandLifeTime::SubgraphOutput);
        Slice {
            model: Model {
                main: Subgraph {
                    operands,
                    operations,
                    input_indexes,
                    output_indexes,
                },
                referenced,
                operand_values: self.model.operand_values.clone(),
                pools: self.model.pools.clone(),
                relax_computation_float32_to_float16: self.model.relax_computation_float32_to_float16,
                extension_name_to_prefix: self.model.extension_name_to_prefix.clone(),
            },
            operations: self.kept,
            losses: self.losses,
        }
    }
}

/// The graphs that the operands of a main graph refer to, and those that these do, in their order. The
/// operands name them by their new places. The references form no cycle.
fn run_by(main: &mut [Operand], all: &[Subgraph]) -> Vec<Subgraph> {
    let mut is_run = vec![false; all.len()];
    let mut pending = references(main);
    while let Some(graph) = pending.pop() {
        if !std::mem::replace(&mut is_run[graph], true) {
            pending.extend(references(&all[graph].operands));
        }
    }
    let mut places = vec![0; all.len()];
    let run = places.iter_mut().zip(&is_run).filter(|(_, is_run)| **is_run);
    for (number, (place, _)) in (0..).zip(run) {
        *place = number;
    }
    let rename = |operands: &mut [Operand]| {
        for operand in operands
            .iter_mut()
            .filter(|operand| operand.lifetime == OperandLifeTime::Subgraph)
        {
            operand.location.offset = places[operand.location.offset as usize];
        }
    };
    rename(main);
    let kept = all.iter().zip(&is_run).filter(|(_, is_run)| **is_run);
    let mut kept: Vec<Subgraph> = kept.map(|(graph, _)| graph.clone()).collect();
    for graph in &mut kept {
        rename(&mut graph.operands);
    }
    kept
}

/// The graphs that operands refer to.
fn references(operands: &[Operand]) -> Vec<usize> {
    let referring = operands
        .iter()
        .filter(|operand| operand.lifetime == OperandLifeTime::Subgraph);
    referring
        .map(|operand| operand.location.offset as usize)
        .collect()
}
