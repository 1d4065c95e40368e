//! What computes several operations as one, a kind a file. `plan` looks for them from each operation on.

mod attention;
mod dynamically_quantized;
pub(super) mod layer_with_epilogue;
mod offset;
mod resized_extremes;
mod row_wise;

use super::FusedStep;
use super::candidate::Candidates;
use super::fused::Fused;
use super::pooling::extremum::LargestMagnitude;
use attention::Attention;
use dynamically_quantized::DynamicallyQuantized;
use layer_with_epilogue::LayerWithEpilogue;
use offset::Offset;
use resized_extremes::ResizedExtremes;
use row_wise::RowWise;

/// What computes some operations as one, and which these are, in ascending order.
pub(crate) type Fusion = (Box<dyn FusedStep>, Vec<usize>);

/// Finds the operations that are computed with the first one.
type Fuse = fn(&Candidates<'_, '_>) -> Option<Fusion>;

/// All kinds. Operations are computed by the first that takes them.
const FUSIONS: [Fuse; 7] = [
    |candidates| Some((Box::new(Offset::of(candidates)?), vec![0, 1])),
    |candidates| Some((Box::new(LargestMagnitude::of(candidates)?), vec![0, 1])),
    |candidates| Some((Box::new(ResizedExtremes::of(candidates)?), vec![0, 1])),
    |candidates| {
        let (attention, found) = Attention::of(candidates)?;
        Some((Box::new(attention), found))
    },
    |candidates| {
        let (layer, count) = LayerWithEpilogue::longest(candidates)?;
        Some((Box::new(layer), (0..count).collect()))
    },
    |candidates| {
        let (rows, count) = RowWise::longest(candidates)?;
        Some((Box::new(rows), (0..count).collect()))
    },
    |candidates| {
        let elements = Fused::of(candidates)?;
        // Values that are no integers are found out by computing them for nothing.
        if elements.rounds()
            && let Some((layer, found)) = DynamicallyQuantized::new(&elements, candidates)
        {
            return Some((Box::new(layer), found));
        }
        let count = elements.operations();
        (count > 1).then(|| (Box::new(elements) as _, (0..count).collect()))
    },
];

/// What computes the first of some operations with others of them as one.
pub(crate) fn fuse(candidates: &Candidates<'_, '_>) -> Option<Fusion> {
    FUSIONS.iter().find_map(|fuse| fuse(candidates))
}
