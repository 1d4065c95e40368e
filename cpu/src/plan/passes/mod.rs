//! The rewrites of a graph, one a file. Each knows nodes and none of the others. The list says in which order
//! they are tried.

mod candidates;
mod clamping;
mod depth_first;
mod fusions;
mod in_place;
mod padded;

use super::cost::ChainThreshold;
use super::graph::{Graph, Rewrite};
use crate::interrupt::{Interrupt, Interrupted};

/// Applies all rewrites.
///
/// # Errors
/// `interrupt`, which is asked before each node.
pub(super) fn rewrite(graph: &mut Graph<'_>, interrupt: &dyn Interrupt) -> Result<(), Interrupted> {
    // What layers clamp themselves is no operation for the others.
    graph.rewrite(&[&clamping::Clamping], interrupt)?;
    // Those that need most of what is behind come first, but for chains, which take layers that are left.
    let fusions: [&dyn Rewrite; 3] = [
        &padded::Padded,
        &depth_first::DepthFirst(ChainThreshold::ALWAYS),
        &fusions::Fusions,
    ];
    graph.rewrite(&fusions, interrupt)?;
    // Of what is fused by now, as several threads had better compute more of it together.
    graph.rewrite(&[&depth_first::DepthFirst(ChainThreshold::BY_SEVERAL)], interrupt)?;
    // In the end, when it is known what is read last.
    graph.rewrite(&[&in_place::InPlace], interrupt)
}
