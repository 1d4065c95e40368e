//! Whether an operation's operands fit its signature, as far as that is known when it is added.

use nnhal_hal::ops::{self, OperandInfo, OperationContext};
use nnhal_hal::validate::check_control_flow;
use nnhal_hal::{
    DataLocation, Model, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph,
};

use super::value::Value;
use crate::extension;

/// Checks an operation by the operation table: that it exists, the number and types of its operands, and most
/// ranks. What depends on values or on several shapes is checked when the model is finished.
pub(super) fn check(operands: &[Operand], values: &[Value], operation: &Operation) -> Result<(), String> {
    let kind = operation.operation_type;
    if kind.is_extension() {
        return match extension::name(kind.extension_prefix()) {
            Some(_) => Ok(()),
            None => Err("no device has an extension with this number".into()),
        };
    }
    if kind.since().is_none() {
        return Err("there is no such operation; there are 0 to 105 and 10000".into());
    }
    if kind.is_control_flow() {
        return check_with_graphs(operands, values, operation);
    }
    let Some(entry) = ops::entry(kind) else {
        return Ok(());
    };
    let view = View {
        operands,
        values,
        operation,
    };
    entry
        .match_signature(&view)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Checks IF or WHILE and what its models take and give; one that is set later is checked when this model is
/// finished.
fn check_with_graphs(operands: &[Operand], values: &[Value], operation: &Operation) -> Result<(), String> {
    let mut model = Model::default();
    let mut called = Subgraph::default();
    let mut copy = |list: &[u32]| -> Vec<u32> {
        let indexes = list.iter().map(|&index| {
            let mut operand = operands[index as usize].clone();
            operand.lifetime = values[index as usize].lifetime();
            if let Value::Model(inner) = &values[index as usize] {
                operand.location = DataLocation {
                    offset: model.referenced.len() as u32,
                    ..DataLocation::default()
                };
                model.referenced.push(inner.graph().clone());
            }
            called.operands.push(operand);
            called.operands.len() as u32 - 1
        });
        indexes.collect()
    };
    let copied = Operation {
        operation_type: operation.operation_type,
        inputs: copy(&operation.inputs),
        outputs: copy(&operation.outputs),
    };
    check_control_flow(&model, &called, &copied)
}

/// An operation in a model that is being built.
struct View<'a> {
    operands: &'a [Operand],
    /// One for each operand.
    values: &'a [Value],
    operation: &'a Operation,
}

impl View<'_> {
    fn operand(&self, index: Option<&u32>) -> Option<(usize, &Operand)> {
        let index = *index? as usize;
        Some((index, self.operands.get(index)?))
    }

    fn info<'s>(&self, operand: &'s Operand) -> OperandInfo<'s> {
        let shape = Shape::new(&operand.dimensions).unwrap_or_default();
        let rank_known = operand.operand_type.is_scalar() || shape.rank() > 0;
        OperandInfo {
            operand,
            shape,
            rank_known,
            shape_known: rank_known && shape.is_fully_specified(),
            bytes: None,
        }
    }
}

impl OperationContext for View<'_> {
    fn operation(&self) -> OperationType {
        self.operation.operation_type
    }

    fn input_count(&self) -> usize {
        self.operation.inputs.len()
    }

    fn output_count(&self) -> usize {
        self.operation.outputs.len()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        let (at, operand) = self.operand(self.operation.inputs.get(index))?;
        let is_omitted = self.values[at].lifetime() == OperandLifeTime::NoValue;
        (!is_omitted && operand.operand_type != OperandType::SUBGRAPH).then(|| self.info(operand))
    }

    fn declared_type(&self, index: usize) -> Option<OperandType> {
        let (_, operand) = self.operand(self.operation.inputs.get(index))?;
        Some(operand.operand_type)
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        let (_, operand) = self.operand(self.operation.outputs.get(index))?;
        Some(self.info(operand))
    }

    fn executing(&self) -> bool {
        false
    }

    fn being_added(&self) -> bool {
        true
    }
}
