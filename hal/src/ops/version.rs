//! The first HAL version that can express an operation.
//!
//! An argument list that ends with parameters of a later version can be expressed earlier if they only say
//! what leaving them off says: the layout NHWC, the last axis, no dilation. The NDK strips such arguments
//! before it asks a driver of an earlier version.

use crate::{HalVersion, OperandType, OperationType};

use super::context::{OperandInfo, OperationContext};
use super::matching::SignatureMatch;
use super::operation_entry::OperationEntry;

/// What of an operation the first HAL version that can express it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// The version.
    pub version: HalVersion,
    /// How many of the inputs it takes; the rest only say what leaving them off says.
    pub inputs: usize,
    /// The first version that has all of the inputs.
    pub full: HalVersion,
}

impl OperationEntry {
    /// The first HAL version that can express the operation, which fits the signature `found`.
    #[must_use]
    pub fn earliest(&'static self, context: &dyn OperationContext, found: &SignatureMatch) -> Earliest {
        let full = context.input_count();
        let is_default = |index: usize| {
            let default = found.form.param(index, full).and_then(|param| param.default);
            let input = context.input(index);
            default
                .zip(input)
                .is_some_and(|(default, input)| default.is_value_of(&input))
        };
        let mut earliest = Earliest {
            version: found.since,
            inputs: full,
            full: found.since,
        };
        for inputs in (0..full).rev().take_while(|index| is_default(*index)) {
            let Ok(shorter) = self.match_signature(&Shortened { context, inputs }) else {
                continue;
            };
            if shorter.since <= earliest.version {
                earliest = Earliest {
                    version: shorter.since,
                    inputs,
                    ..earliest
                };
            }
        }
        earliest
    }
}

/// An operation without its last inputs.
struct Shortened<'a> {
    context: &'a dyn OperationContext,
    inputs: usize,
}

impl OperationContext for Shortened<'_> {
    fn operation(&self) -> OperationType {
        self.context.operation()
    }

    fn input_count(&self) -> usize {
        self.inputs
    }

    fn output_count(&self) -> usize {
        self.context.output_count()
    }

    fn input(&self, index: usize) -> Option<OperandInfo<'_>> {
        (index < self.inputs).then(|| self.context.input(index)).flatten()
    }

    fn declared_type(&self, index: usize) -> Option<OperandType> {
        (index < self.inputs)
            .then(|| self.context.declared_type(index))
            .flatten()
    }

    fn output(&self, index: usize) -> Option<OperandInfo<'_>> {
        self.context.output(index)
    }

    fn executing(&self) -> bool {
        self.context.executing()
    }

    fn being_added(&self) -> bool {
        self.context.being_added()
    }
}
