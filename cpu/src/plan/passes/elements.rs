//! Element-wise operations on floats that follow each other, some elements at a time.

use crate::fast::Fused;
use crate::plan::cost::MOST_FUSED;
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct Elements;

/// As many of the nodes from this place on as are such, with their places.
pub(super) fn longest(graph: &Graph<'_>, at: usize) -> Option<(Fused, Vec<usize>)> {
    let (_, first) = graph.from(at).next()?;
    let elements = first.elements()?;
    let alike = graph
        .from(at)
        .take_while(|(_, node)| node.is_plain() && node.elements() == Some(elements));
    let (places, nodes): (Vec<_>, Vec<_>) = alike.take(MOST_FUSED).unzip();
    let declared = nodes.into_iter().map(|node| graph.declared(node));
    let ends_within = |operand, count: usize| graph.ends_at(operand, places[count - 1]);
    let fused = Fused::longest(declared, (elements, 2), ends_within)?;
    let count = fused.operations();
    Some((fused, places[..count].to_vec()))
}

impl Rewrite for Elements {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let (fused, places) = longest(graph, at)?;
        Some(Replacement::fused(places, fused))
    }
}
