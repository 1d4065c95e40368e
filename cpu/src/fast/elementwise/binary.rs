//! The functions of two elements, and what is known beforehand of an operation with one.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{OperationType, Shape};

use crate::kernels::activation_range::Activation;
use crate::plan::Declared;

/// What is computed of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fast) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
    Prelu,
}

impl Binary {
    /// The function of an operation, if it has one.
    pub(in crate::fast) fn of(operation: OperationType) -> Option<Binary> {
        Some(match operation {
            OperationType::ADD => Binary::Add,
            OperationType::SUB => Binary::Sub,
            OperationType::MUL => Binary::Mul,
            OperationType::DIV => Binary::Div,
            OperationType::MAXIMUM => Binary::Maximum,
            OperationType::MINIMUM => Binary::Minimum,
            OperationType::PRELU => Binary::Prelu,
            _ => return None,
        })
    }

    pub(in crate::fast) fn has_activation(self) -> bool {
        matches!(self, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)
    }

    /// The result of two values before it is clamped. Always inlined, so that a loop in which `self` is known
    /// has no choice in it.
    #[inline(always)]
    pub(in crate::fast) fn combine(self, left: f32, right: f32) -> f32 {
        match self {
            Binary::Add => left + right,
            Binary::Sub => left - right,
            Binary::Mul => left * right,
            Binary::Div => left / right,
            // As the reference, also of a NaN: the largest is then the right one, the smallest the left one.
            Binary::Maximum if left > right => left,
            Binary::Maximum => right,
            Binary::Minimum if left > right => right,
            Binary::Minimum => left,
            Binary::Prelu if left >= 0.0 => left,
            Binary::Prelu => right * left,
        }
    }
}

/// What an operation on floats clamps its results to, if that is known beforehand.
pub(in crate::fast) fn known_range(binary: Binary, declared: &Declared<'_>) -> Option<(f32, f32)> {
    if !binary.has_activation() {
        return Some(Activation::None.range());
    }
    Some(known_activation(declared)?.range())
}

/// The activation of an operation that has one, if it is known beforehand.
pub(in crate::fast) fn known_activation(declared: &Declared<'_>) -> Option<Activation> {
    let code = declared.input(2)?.bytes?.try_into().ok()?;
    Activation::from_code(2, i32::from_ne_bytes(code)).ok()
}

/// Whether the right operand is one row that serves every row of the output, and the left one has them all.
pub(in crate::fast) fn repeats_along_last_axis(output: &Shape, left: &Shape, right: &Shape) -> bool {
    let (Some(row), Some(columns)) = (right.dims().last(), output.dims().last()) else {
        return false;
    };
    row == columns && *row > 1 && left == output && right.elements().is_ok_and(|count| count == *row as usize)
}
