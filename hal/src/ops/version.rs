//! The first HAL version that can express an operation.
//!
//! An argument list that ends with parameters of a later version can be expressed earlier if they only say what
//! leaving them off says: the layout NHWC, the last axis, no dilation. The NDK strips such arguments before it asks a
//! driver of an earlier version.

use crate::{HalVersion, OperandType, OperationType};

use super::{OperandInfo, OperationContext, OperationEntry, SignatureMatch};

/// What leaving a parameter off stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A `BOOL` of this value.
    Bool(bool),
    /// An `INT32` of this value.
    Int32(i32),
}

impl DefaultValue {
    /// Whether the operand is known to have this value.
    fn is_value_of(self, operand: &OperandInfo<'_>) -> bool {
        let Some(bytes) = operand.bytes else { return false };
        match (self, operand.ty()) {
            (DefaultValue::Bool(value), OperandType::BOOL) => bytes == [u8::from(value)],
            (DefaultValue::Int32(value), OperandType::INT32) => bytes == value.to_ne_bytes(),
            _ => false,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::DefaultValue;
    use crate::ops::OperandInfo;
    use crate::{Operand, OperandType, Shape};

    #[test]
    fn default_is_recognised_by_type_and_bytes_and_only_where_they_are_known() {
        let (boolean, integer) = (
            Operand::new(OperandType::BOOL, &[]),
            Operand::new(OperandType::INT32, &[]),
        );
        let is = |default: DefaultValue, operand, bytes| {
            default.is_value_of(&OperandInfo {
                operand,
                shape: Shape::SCALAR,
                rank_known: true,
                shape_known: true,
                bytes,
            })
        };
        assert!(is(DefaultValue::Bool(false), &boolean, Some(&[0])));
        assert!(!is(DefaultValue::Bool(false), &boolean, Some(&[1])));
        assert!(!is(DefaultValue::Bool(false), &boolean, None));
        assert!(is(DefaultValue::Int32(-1), &integer, Some(&[0xff; 4])));
        assert!(!is(DefaultValue::Int32(-1), &integer, Some(&[0xff; 3])));
        assert!(!is(DefaultValue::Int32(0), &boolean, Some(&[0])));
    }
}
