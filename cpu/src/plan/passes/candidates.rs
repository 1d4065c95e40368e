//! The operations from a node on, as rewrites look at them.

use crate::fast::Candidate;
use crate::plan::cost::MOST_AHEAD;
use crate::plan::graph::Graph;
use crate::plan::node::Node;

/// The plain operations from a place on, node by node, with the places of these. If `takes_fused` says so,
/// those of what is fused already count one by one; otherwise they end before that.
pub(super) fn candidates<'g>(
    graph: &'g Graph<'_>,
    at: usize,
    takes_fused: bool,
) -> (Vec<usize>, Vec<Candidate<'g>>) {
    let candidate = |leaf: &'g Node| Candidate {
        declared: graph.declared(leaf),
        layer: leaf.layer(),
        elements: leaf.elements(),
    };
    let (mut places, mut candidates) = (Vec::new(), Vec::new());
    let nodes = graph.from(at);
    for (place, node) in nodes.take_while(|(_, node)| takes_fused || node.is_plain()) {
        let leaves = node.leaves();
        // Whole nodes only: what replaces a node has to compute all of it.
        if places.len() + leaves.len() > MOST_AHEAD || !leaves.iter().all(|leaf| leaf.is_plain()) {
            break;
        }
        places.extend(leaves.iter().map(|_| place));
        candidates.extend(leaves.into_iter().map(candidate));
    }
    (places, candidates)
}
