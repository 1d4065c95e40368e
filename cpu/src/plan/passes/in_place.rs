//! Operations that do nothing but give a temporary, which they are the last to read, another shape: the
//! output takes its memory.

use nnhal_hal::{OperandLifeTime, OperationType, tflite};

use crate::plan::graph::{Graph, Replacement, Rewrite};
use crate::plan::node::{Computed, Node, Work};

pub(super) struct InPlace;

impl Rewrite for InPlace {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let (_, node) = graph.from(at).next()?;
        let is_another_shape = matches!(
            node.operation.operation_type,
            OperationType::RESHAPE
                | OperationType::SQUEEZE
                | OperationType::EXPAND_DIMS
                | tflite::RESHAPE
                | tflite::SQUEEZE
                | tflite::EXPAND_DIMS
        );
        let (&input, &[output]) = (node.operation.inputs.first()?, &node.operation.outputs[..]) else {
            return None;
        };
        let is_temporary =
            graph.operands.get(output as usize)?.lifetime == OperandLifeTime::TemporaryVariable;
        let is_computed = graph.constants.get(input as usize)?.is_none();
        let is_so = is_another_shape
            && node.is_plain()
            && node.fixed.is_some()
            && is_temporary
            && is_computed
            && graph.ends_at(input, at);
        is_so.then(|| Replacement::behind(vec![at], Box::new(in_place)))
    }
}

/// The node with the same operation in its parts.
fn in_place(parts: Vec<Node>) -> Node {
    let name = "another shape in the same memory";
    Node {
        operation: parts[0].operation.clone(),
        computes: vec![Computed {
            number: parts[0].number(),
            name,
        }],
        work: Work::InPlace,
        fixed: parts[0].fixed.clone(),
        releases: Vec::new(),
        parts,
    }
}
