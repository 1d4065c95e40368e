//! DEQUANTIZE and QUANTIZE that together only add a number.

use crate::fast::Offset;
use crate::plan::graph::{Graph, Replacement, Rewrite};

pub(super) struct OffsetOfBytes;

impl Rewrite for OffsetOfBytes {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let [(_, first), (place, second)] = graph.pair(at)?;
        first.elements().filter(|all| second.elements() == Some(*all))?;
        let [first, second] = [first, second].map(|node| graph.declared(node));
        let offset = Offset::of(&first, &second, |operand| graph.ends_at(operand, place))?;
        Some(Replacement::fused(vec![at, place], offset))
    }
}
