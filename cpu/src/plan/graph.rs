//! The graph that rewrites change: nodes in the order in which they are computed.

use nnhal_hal::{Operand, OperandLifeTime, Subgraph};

use super::declared::Declared;
use super::node::Node;
use crate::fast::FusedStep;
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::Constant;

/// A way to compute nodes of a graph as one.
pub(super) trait Rewrite {
    /// What replaces the node at this place, and some behind it, if they are such and it is worth it by the
    /// figures in [`super::cost`].
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement>;
}

/// A node in place of several.
pub(super) struct Replacement {
    /// Their places, in ascending order.
    pub(super) places: Vec<usize>,
    /// The one of these where the new node stands.
    pub(super) at: usize,
    pub(super) node: Make,
}

impl Replacement {
    /// What computes nodes in these places as one.
    pub(super) fn fused(places: Vec<usize>, step: Box<dyn FusedStep>) -> Replacement {
        let node = Box::new(|parts| Node::fused(step, parts));
        Replacement::behind(places, node)
    }

    /// A node that stands where the last of these was: behind all that any of them reads.
    pub(super) fn behind(places: Vec<usize>, node: Make) -> Replacement {
        let at = places.last().copied().unwrap_or_default();
        Replacement { places, at, node }
    }
}

/// Makes a node of those that it replaces.
pub(super) type Make = Box<dyn FnOnce(Vec<Node>) -> Node>;

/// The nodes of a graph that is being planned.
pub(super) struct Graph<'m> {
    pub(super) operands: &'m [Operand],
    pub(super) constants: &'m [Option<Constant>],
    /// By place: the node there, unless it was replaced.
    nodes: Vec<Option<Node>>,
    /// By operand: the place behind the last node that reads it; none if it is read from outside.
    ends: Vec<Option<usize>>,
}

impl<'m> Graph<'m> {
    pub(super) fn new(
        subgraph: &'m Subgraph,
        constants: &'m [Option<Constant>],
        nodes: Vec<Node>,
    ) -> Graph<'m> {
        let is_inner = |operand: &Operand| operand.lifetime == OperandLifeTime::TemporaryVariable;
        let ends = subgraph.operands.iter();
        let mut graph = Graph {
            operands: &subgraph.operands,
            constants,
            nodes: Vec::with_capacity(nodes.len()),
            ends: ends.map(|operand| is_inner(operand).then_some(0)).collect(),
        };
        for (place, node) in nodes.into_iter().enumerate() {
            graph.note_reader(&node, place);
            graph.nodes.push(Some(node));
        }
        graph
    }

    fn note_reader(&mut self, node: &Node, place: usize) {
        for &operand in &node.operation.inputs {
            if let Some(Some(end)) = self.ends.get_mut(operand as usize) {
                *end = (place + 1).max(*end);
            }
        }
    }

    /// The nodes from this place on, with their places.
    pub(super) fn from(&self, at: usize) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate().skip(at);
        nodes.filter_map(|(place, node)| Some((place, node.as_ref()?)))
    }

    /// The node at a place and the one behind it, with their places, if both are plain.
    pub(super) fn pair(&self, at: usize) -> Option<[(usize, &Node); 2]> {
        let mut nodes = self.from(at);
        let both = [nodes.next()?, nodes.next()?];
        both.iter().all(|(_, node)| node.is_plain()).then_some(both)
    }

    /// The node at a place.
    pub(super) fn node_mut(&mut self, at: usize) -> Option<&mut Node> {
        self.nodes.get_mut(at)?.as_mut()
    }

    /// What is known of a node's operation.
    pub(super) fn declared<'a>(&'a self, node: &'a Node) -> Declared<'a> {
        Declared {
            operation: &node.operation,
            operands: self.operands,
            constants: self.constants,
        }
    }

    /// The last node that reads an operand, with its place.
    pub(super) fn last_reader(&self, operand: u32) -> Option<(usize, &Node)> {
        let end = self.ends.get(operand as usize).copied().flatten()?;
        let place = end.checked_sub(1)?;
        Some((place, self.nodes.get(place)?.as_ref()?))
    }

    /// Whether nothing reads an operand behind this place, nor from outside.
    pub(super) fn ends_at(&self, operand: u32, place: usize) -> bool {
        let end = self.ends.get(operand as usize).copied().flatten();
        end.is_some_and(|end| end <= place + 1)
    }

    /// Looks at each node once and replaces it by what the first of `rewrites` makes of it. Asks `interrupt`
    /// before each.
    pub(super) fn rewrite(
        &mut self,
        rewrites: &[&dyn Rewrite],
        interrupt: &dyn Interrupt,
    ) -> Result<(), Interrupted> {
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_none() {
                continue;
            }
            interrupt.check()?;
            let replacement = rewrites.iter().find_map(|rewrite| rewrite.rewrite(self, at));
            if let Some(replacement) = replacement {
                self.replace(replacement);
            }
        }
        Ok(())
    }

    fn replace(&mut self, Replacement { places, at, node }: Replacement) {
        let taken = places.iter().filter_map(|place| self.nodes[*place].take());
        let node = node(taken.collect());
        self.note_reader(&node, at);
        self.nodes[at] = Some(node);
    }

    /// The nodes, in their order.
    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes.into_iter().flatten().collect()
    }
}
