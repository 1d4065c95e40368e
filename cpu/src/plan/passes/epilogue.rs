//! A convolution of floats with the operations behind it that its epilogue computes.

use super::candidates::from_layer;
use crate::fast::LayerWithEpilogue;
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct Epilogue;

impl Rewrite for Epilogue {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let (places, operations) = from_layer(graph, at, false)?;
        let ends_within = |operand, count: usize| graph.ends_at(operand, places[count - 1]);
        let (layer, count) = LayerWithEpilogue::longest(&operations, ends_within)?;
        Some(Replacement::fused(places[..count].to_vec(), layer))
    }
}
