//! Models for unit tests, made operation by operation.

use std::sync::Arc;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    DataLocation, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType,
};

/// A model of one graph, whose outputs are chosen in the end.
#[derive(Default)]
pub(crate) struct TestGraph {
    pub(crate) model: Model,
}

impl TestGraph {
    fn push(&mut self, operand: Operand, lifetime: OperandLifeTime) -> u32 {
        let operands = &mut self.model.main.operands;
        operands.push(operand.with_lifetime(lifetime));
        operands.len() as u32 - 1
    }

    /// One more input.
    pub(crate) fn input(&mut self, operand: Operand) -> u32 {
        let at = self.push(operand, OperandLifeTime::SubgraphInput);
        self.model.main.input_indexes.push(at);
        at
    }

    /// One more constant, with these bytes.
    pub(crate) fn constant(&mut self, mut operand: Operand, bytes: &[u8]) -> u32 {
        operand.location = DataLocation {
            pool_index: 0,
            offset: self.model.operand_values.len() as u32,
            length: bytes.len() as u32,
        };
        self.model.operand_values.extend(bytes);
        self.push(operand, OperandLifeTime::ConstantCopy)
    }

    /// One more constant `INT32`.
    pub(crate) fn scalar(&mut self, value: i32) -> u32 {
        self.constant(Operand::new(OperandType::INT32, &[]), &value.to_ne_bytes())
    }

    /// One more operation; returns the operand that it computes.
    pub(crate) fn operation(
        &mut self,
        operation_type: OperationType,
        inputs: &[u32],
        output: Operand,
    ) -> u32 {
        for &input in inputs {
            self.model.main.operands[input as usize].number_of_consumers += 1;
        }
        let output = self.push(output, OperandLifeTime::TemporaryVariable);
        self.model.main.operations.push(Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        });
        output
    }

    /// One more result of the last operation.
    pub(crate) fn another_output(&mut self, output: Operand) -> u32 {
        let output = self.push(output, OperandLifeTime::TemporaryVariable);
        let last = self.model.main.operations.last_mut();
        last.expect("an operation").outputs.push(output);
        output
    }

    /// The model with these outputs.
    pub(crate) fn valid(&self, outputs: &[u32]) -> Arc<ValidModel> {
        let mut model = self.model.clone();
        for &output in outputs {
            model.main.operands[output as usize].lifetime = OperandLifeTime::SubgraphOutput;
        }
        model.main.output_indexes = outputs.to_vec();
        Arc::new(ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap())
    }
}
