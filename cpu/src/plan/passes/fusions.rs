//! Operations that follow each other, by the first of the kinds in `fast/fusions` that takes them.

use super::candidates::candidates;
use crate::fast::{Candidates, fuse};
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct Fusions;

impl Rewrite for Fusions {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let (places, operations) = candidates(graph, at, false);
        let (step, found) = fuse(&Candidates {
            all: &operations,
            ends: &|operand, count| graph.ends_at(operand, places[count - 1]),
        })?;
        // What is between them has nothing to do with them, and comes before.
        let places = found.into_iter().map(|number| places[number]);
        Some(Replacement::fused(places.collect(), step))
    }
}
