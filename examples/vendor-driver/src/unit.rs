//! Units: what a device is made of. A unit compiles the operations that it knows to kernels.

use std::fmt::Debug;

use nnhal_device::hal::validate::ValidModel;
use nnhal_device::hal::{
    ConstantPools, ExtraParams, Failure, Operand, OperandType, Operation, OperationType, Shape,
};

use crate::value::Value;

/// An operation made ready to run.
pub(crate) trait Kernel: Debug + Send + Sync {
    /// Computes the operation's one output from the values of its inputs.
    fn run(&self, inputs: &[&Value], output: &mut Value) -> Result<(), Failure>;
}

/// Why a unit does not run an operation.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is no operation of this unit.
    Unknown,
    /// It is, but not like this.
    Unsupported(String),
}

/// Makes an operation ready to run, if the unit can run it.
pub(crate) type Unit = fn(&View<'_>, &Operation) -> Result<Box<dyn Kernel>, Refusal>;

/// A valid model as units look at it.
pub(crate) struct View<'a> {
    pub(crate) model: &'a ValidModel,
    pub(crate) pools: &'a dyn ConstantPools,
}

impl<'a> View<'a> {
    /// An operand of the main graph by an operation's index, which validation has checked.
    pub(crate) fn operand(&self, index: u32) -> &'a Operand {
        &self.model.model().main.operands[index as usize]
    }

    /// The bytes of a constant.
    pub(crate) fn constant(&self, index: u32) -> Option<&'a [u8]> {
        let model = self.model.model();
        model.constant_bytes(self.operand(index), self.pools)
    }

    /// The extension that an operation belongs to, and its number there.
    pub(crate) fn extension_operation(&self, operation: OperationType) -> Option<(&'a str, u16)> {
        let name = self.extension_name(operation.extension_prefix())?;
        operation
            .is_extension()
            .then_some((name, operation.extension_number()))
    }

    /// The extension that an operand type belongs to, and its number there.
    pub(crate) fn extension_type(&self, ty: OperandType) -> Option<(&'a str, u16)> {
        let name = self.extension_name(ty.extension_prefix())?;
        ty.is_extension().then_some((name, ty.extension_number()))
    }

    /// Prefixes belong to one model, names to everyone.
    fn extension_name(&self, prefix: u16) -> Option<&'a str> {
        let mut mappings = self.model.model().extension_name_to_prefix.iter();
        let mapping = mappings.find(|mapping| mapping.prefix == prefix)?;
        Some(&mapping.name)
    }
}

/// The dimensions that a model declares; rank 0 if it leaves them open.
pub(crate) fn declared(operand: &Operand) -> Shape {
    // Validation has bounded the rank.
    Shape::new(&operand.dimensions).unwrap_or_default()
}

/// The parameters of an extension's type.
pub(crate) fn extension_params(operand: &Operand) -> &[u8] {
    match &operand.extra_params {
        ExtraParams::Extension(bytes) => bytes,
        _ => &[],
    }
}
