//! Depth-first fusion: layers of floats that follow each other, some rows of the image at a time.

use super::candidates::candidates;
use crate::fast::DepthFirstChain;
use crate::plan::cost::ChainThreshold;
use crate::plan::graph::{Graph, Replacement, Rewrite};

/// Those that are worth it from here on.
pub(super) struct DepthFirst(pub(super) ChainThreshold);

impl Rewrite for DepthFirst {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        // For several threads what one computes as one is part of more, or none of it.
        let (_, first) = graph.from(at).next()?;
        first.leaves().first()?.layer()?.float_layer()?;
        let (mut places, operations) = candidates(graph, at, self.0.threads > 1);
        let ends_within = |operand, count: usize| graph.ends_at(operand, places[count - 1]);
        let are_nodes = |count: usize| places.get(count) != Some(&places[count - 1]);
        let (chain, count) = DepthFirstChain::longest(&operations, (self.0, are_nodes), ends_within)?;
        places.truncate(count);
        places.dedup();
        // One node is this chain already, or another that does as well.
        (places.len() > 1 || self.0.threads == 1).then(|| Replacement::fused(places, Box::new(chain)))
    }
}
