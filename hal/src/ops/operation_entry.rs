//! What the operation table has of each operation.

use crate::{OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::signature::{Form, Param, Rule, Variant};

/// How the shapes of an operation's outputs are found.
#[derive(Clone, Copy)]
pub enum ShapeRule {
    /// From the inputs' shapes and the values of parameter operands. The function writes one shape for each
    /// output, or says that something it needs is not known yet ([`ShapeIssue::Unknown`]).
    Infer(fn(&dyn OperationContext, &mut [Shape]) -> Result<(), ShapeIssue>),
    /// Only by computing the operation (the number of boxes that survive a threshold, say): the kernel sets
    /// them.
    DataDependent,
    /// From the subgraphs that a control flow operation runs.
    ControlFlow,
}

impl std::fmt::Debug for ShapeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ShapeRule::Infer(_) => "Infer",
            ShapeRule::DataDependent => "DataDependent",
            ShapeRule::ControlFlow => "ControlFlow",
        })
    }
}

/// Everything the project knows of one operation except how to compute it.
#[derive(Clone, Copy, Debug)]
pub struct OperationEntry {
    /// The operation.
    pub operation: OperationType,
    /// Legal combinations of operand types, by type variable; see [`Ty::Var`](super::signature::Ty::Var).
    pub variants: &'static [Variant],
    /// The argument lists it can be called with, tried in order.
    pub forms: &'static [Form],
    /// Its outputs.
    pub outputs: &'static [Param],
    /// Whether the last entry of `outputs` may occur any number of times, at least once.
    pub outputs_repeat: bool,
    /// Rules between operands that the lists above cannot say: quantisation parameters, values of constant
    /// parameters, ranks that depend on each other. Called after a form has matched. What is not known yet (a
    /// value that comes at execution) is no violation.
    pub check: Rule,
    /// The shapes of the outputs.
    pub shape: ShapeRule,
}

/// The `check` of operations that have no rule beyond their signature.
pub fn no_further_rule(_: &dyn OperationContext) -> Result<(), OpError> {
    Ok(())
}

/// The `check` of operations that move the values of input 0 to their outputs unchanged: the same scale and
/// zero point everywhere.
pub fn keeps_quantization(context: &dyn OperationContext) -> Result<(), OpError> {
    (0..context.output_count()).try_for_each(|output| context.check_same_quantization(0, output))
}
