//! ABS and REDUCE_MAX to one value.

use crate::fast::LargestMagnitude;
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct Magnitude;

impl Rewrite for Magnitude {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let [(_, first), (place, second)] = graph.pair(at)?;
        let elements = [first.elements()?, second.elements()?];
        let both = (&graph.declared(first), &graph.declared(second));
        let magnitude = LargestMagnitude::of(both, elements, |operand| graph.ends_at(operand, place))?;
        Some(Replacement::fused(vec![at, place], magnitude))
    }
}
