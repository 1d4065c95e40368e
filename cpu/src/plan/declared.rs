//! What is known of an operation before it is executed.

use nnhal_hal::ops::{OperandInfo, OperationContext};
use nnhal_hal::{Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape};

use crate::kernel::Constant;

/// An operation as its model declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) operands: &'a [Operand],
    pub(crate) constants: &'a [Option<Constant>],
}

impl OperationContext for Declared<'_> {
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
        let at = *self.operation.inputs.get(index)? as usize;
        let operand = self.operands.get(at)?;
        if operand.lifetime == OperandLifeTime::NoValue {
            return None;
        }
        match self.constants.get(at)? {
            // Of what was computed beforehand the model need not declare the shape.
            Some(constant) => Some(OperandInfo {
                operand,
                shape: constant.shape,
                rank_known: true,
                shape_known: true,
                bytes: Some(constant.bytes.bytes()),
            }),
            None => info(operand),
        }
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        info(self.operands.get(*self.operation.outputs.get(index)? as usize)?)
    }

    fn executing(&self) -> bool {
        // The shapes hold for executions in which everything that is needed is there, as the rule is to take
        // it.
        true
    }
}

fn info(operand: &Operand) -> Option<OperandInfo<'_>> {
    let shape = Shape::new(&operand.dimensions).ok()?;
    let is_scalar = !operand.operand_type.is_tensor();
    let rank_known = is_scalar || shape.rank() > 0;
    Some(OperandInfo {
        operand,
        shape,
        rank_known,
        shape_known: is_scalar || (rank_known && shape.is_fully_specified()),
        bytes: None,
    })
}

/// Whether the values of two operands mean the same, zero included.
pub(super) fn holds_the_same(one: &Operand, other: &Operand) -> bool {
    let is_taken = matches!(
        one.operand_type,
        OperandType::TENSOR_FLOAT32
            | OperandType::TENSOR_QUANT8_ASYMM
            | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
    );
    is_taken
        && one.operand_type == other.operand_type
        && one.scale == other.scale
        && one.zero_point == other.zero_point
}
