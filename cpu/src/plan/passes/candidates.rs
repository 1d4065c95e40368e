//! The operations from a node on, as rewrites look at them.

use crate::fast::Candidate;
use crate::plan::cost::MOST_AHEAD;
use crate::plan::graph::Graph;
use crate::plan::node::Node;

/// The plain operations from a place on, with the places of their nodes. If `takes_fused` says so, those of
/// what is fused already count one by one; otherwise they end before that.
pub(super) fn candidates<'g>(
    graph: &'g Graph<'_>,
    at: usize,
    takes_fused: bool,
) -> (Vec<usize>, Vec<Candidate<'g>>) {
    let nodes = graph.from(at);
    let nodes = nodes.take_while(|(_, node)| takes_fused || node.is_plain());
    let leaves = nodes.flat_map(|(place, node)| node.leaves().into_iter().map(move |leaf| (place, leaf)));
    let plain = leaves.take(MOST_AHEAD).take_while(|(_, leaf)| leaf.is_plain());
    let candidate = |leaf: &'g Node| Candidate {
        declared: graph.declared(leaf),
        layer: leaf.layer(),
        elements: leaf.elements(),
    };
    plain.map(|(place, leaf)| (place, candidate(leaf))).unzip()
}

/// The same if a layer of floats is the first, of which everything is known.
pub(super) fn from_layer<'g>(
    graph: &'g Graph<'_>,
    at: usize,
    takes_fused: bool,
) -> Option<(Vec<usize>, Vec<Candidate<'g>>)> {
    let (_, first) = graph.from(at).next()?;
    first.leaves().first()?.layer()?.float_layer()?;
    Some(candidates(graph, at, takes_fused))
}
