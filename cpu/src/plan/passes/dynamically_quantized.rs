//! Element-wise operations that give integers, a layer whose weights are such, and what scales its result.

use super::candidates::candidates;
use super::elements;
use crate::fast::DynamicallyQuantized;
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct Integers;

impl Rewrite for Integers {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        // Values that are no integers are found out by computing them for nothing.
        let (head, _) = elements::longest(graph, at).filter(|(head, _)| head.rounds())?;
        let (places, operations) = candidates(graph, at, false);
        let ends_within = |operand, count: usize| graph.ends_at(operand, places[count - 1]);
        // What is between them has nothing to do with them, and comes before.
        let (step, found) = DynamicallyQuantized::new(head, &operations, ends_within)?;
        let places = found.into_iter().map(|number| places[number]);
        Some(Replacement::fused(places.collect(), step))
    }
}
