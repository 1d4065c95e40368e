//! The nodes of a plan: what computes an operation, or several as one.

use std::any::Any;
use std::sync::Arc;

use nnhal_hal::Operation;
use nnhal_hal::ops::ShapeRule;

use super::fixed_outputs::FixedOutputs;
use crate::fast::{FusedStep, Layer, PlannedStep};
use crate::kernel::Kernel;
use crate::kernels::activation_range::Activation;

/// The name of what computes operations that are computed with one before.
const WITH_ANOTHER: &str = "with the one before";

/// What computes an operation, or several as one.
#[derive(Debug)]
pub(crate) struct Node {
    /// What it reads and writes, as an operation of the graph.
    pub(crate) operation: Operation,
    /// The operations of the model that it computes.
    pub(crate) computes: Vec<Computed>,
    pub(crate) work: Work,
    /// What its outputs are in every execution, if that is known.
    pub(crate) fixed: Option<FixedOutputs>,
    /// Temporaries that nothing reads after it.
    pub(crate) releases: Vec<u32>,
    /// The nodes that it stands for, which compute the same where it does not.
    pub(crate) parts: Vec<Node>,
}

/// An operation of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Computed {
    /// Its number in the graph.
    pub(crate) number: usize,
    /// What computes it, for people to read.
    pub(crate) name: &'static str,
}

/// How a node computes.
#[derive(Debug)]
pub(crate) enum Work {
    /// By the reference kernel of its operation.
    Reference(Kernel, ShapeRule),
    /// By a step that was made for its operation and the constants of that.
    Step(Arc<dyn PlannedStep>, ShapeRule),
    /// By one that was made for several operations, where outputs are as is known. Otherwise the parts do.
    Fused(Box<dyn FusedStep>),
    /// The output takes the memory of the input, with another shape. Where that cannot be, the part computes.
    InPlace,
    /// IF, of an operation with this number.
    If(usize),
    /// WHILE.
    While(usize),
}

impl Node {
    /// A node that computes several in their place, of which there is one at least.
    pub(crate) fn fused(step: Box<dyn FusedStep>, parts: Vec<Node>) -> Node {
        let computed = outputs(&parts);
        let mut inputs = Vec::new();
        for &operand in parts.iter().flat_map(|part| &part.operation.inputs) {
            if !computed.contains(&operand) && !inputs.contains(&operand) {
                inputs.push(operand);
            }
        }
        let operation = Operation {
            operation_type: parts[0].operation.operation_type,
            inputs,
            outputs: parts[parts.len() - 1].operation.outputs.clone(),
        };
        Node::fused_as(operation, step, parts)
    }

    /// The same as this operation.
    pub(crate) fn fused_as(operation: Operation, step: Box<dyn FusedStep>, parts: Vec<Node>) -> Node {
        let fixed = parts.iter().map(|part| part.fixed.as_ref());
        let fixed = fixed.collect::<Option<Vec<_>>>();
        let computes = parts.iter().flat_map(|part| &part.computes).enumerate();
        let computes = computes.map(|(at, computed)| Computed {
            number: computed.number,
            name: if at == 0 { step.name() } else { WITH_ANOTHER },
        });
        Node {
            operation,
            computes: computes.collect(),
            fixed: fixed.map(|fixed| FixedOutputs::of_all(&fixed, &outputs(&parts))),
            work: Work::Fused(step),
            releases: Vec::new(),
            parts,
        }
    }

    /// The number of the first operation that it computes.
    pub(crate) fn number(&self) -> usize {
        self.computes.first().map_or(0, |computed| computed.number)
    }

    /// What computes an operation, if it is one of those that this computes.
    pub(crate) fn name_of(&self, operation: usize) -> Option<&'static str> {
        let mut computes = self.computes.iter();
        let computed = computes.find(|computed| computed.number == operation);
        computed.map(|computed| computed.name)
    }

    /// The step that was made for its operation.
    pub(crate) fn step(&self) -> Option<&Arc<dyn PlannedStep>> {
        match &self.work {
            Work::Step(step, _) => Some(step),
            _ => None,
        }
    }

    /// Has the step clamp its results to the range of an activation; whether it does.
    pub(crate) fn clamp(&mut self, activation: Activation) -> bool {
        let Work::Step(step, _) = &mut self.work else {
            return false;
        };
        Arc::get_mut(step).is_some_and(|step| step.clamp(activation))
    }

    /// The step, if it is a layer.
    pub(crate) fn layer(&self) -> Option<Arc<Layer>> {
        let step: Arc<dyn Any + Send + Sync> = Arc::clone(self.step()?) as _;
        step.downcast().ok()
    }

    /// Whether it computes one operation, and is no control flow.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.work, Work::Reference(..) | Work::Step(..))
    }

    /// How many elements its only output has in every execution, if that is known.
    pub(crate) fn elements(&self) -> Option<usize> {
        self.fixed.as_ref()?.elements()
    }

    /// The nodes that so many threads compute in its place: itself, unless they had better compute its parts.
    pub(crate) fn by(&self, threads: usize) -> &[Node] {
        match &self.work {
            Work::Fused(step) if !step.suits(threads) => &self.parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// The nodes that each compute one step or kernel, in place of this one.
    pub(crate) fn leaves(&self) -> Vec<&Node> {
        if self.parts.is_empty() {
            return vec![self];
        }
        self.parts.iter().flat_map(Node::leaves).collect()
    }
}

/// The operands that some nodes compute.
fn outputs(nodes: &[Node]) -> Vec<u32> {
    let outputs = nodes.iter().flat_map(|node| &node.operation.outputs);
    outputs.copied().collect()
}
