//! The mapping of one operator.

use nnhal_hal::OperationType;

use super::builtin::Builtin;
use super::node::{Node, Refusal};

/// How one builtin operator becomes operations.
pub(crate) struct Mapping {
    /// The operator.
    pub(crate) operator: Builtin,
    /// The operations that can result.
    pub(crate) to: &'static [OperationType],
    /// What the mapping does beyond passing operands on, and what it demands; for the documentation.
    pub(crate) rule: &'static str,
    /// Adds the operations, or says why it cannot.
    pub(super) map: fn(&mut Node<'_, '_, '_, '_>) -> Result<(), Refusal>,
}

impl Mapping {
    pub(super) const fn new(
        operator: Builtin,
        to: &'static [OperationType],
        rule: &'static str,
        map: fn(&mut Node<'_, '_, '_, '_>) -> Result<(), Refusal>,
    ) -> Mapping {
        Mapping {
            operator,
            to,
            rule,
            map,
        }
    }
}
