//! Fast kernels: operations whose weights are constant become steps made when the model is prepared.
//!
//! Some operations that follow each other are computed together: element-wise ones ([`fused`]), convolutions
//! depth-first ([`DepthFirstChain`]), and other kinds ([`fusions`]).
//!
//! A step holds its weights packed for the inner loops of [`matmul::tile`] and everything else that can
//! be worked out ahead; running it allocates nothing once scratch memory has grown. What has no step is
//! left to the reference kernels, operation by operation, within the same program. Loops are written once
//! over the vectors of [`simd`]. Results: float sums are taken in another order than the reference's;
//! 8-bit results are the same bits.

mod batch_matmul;
mod borders;
mod candidate;
mod chain;
mod constant_layer;
mod convolution;
mod depth_first;
mod depth_first_layout;
mod depthwise;
mod elementwise;
mod epilogue;
mod epilogue_operations;
mod exponential;
mod float_layer;
mod fused;
mod fusions;
mod layer;
mod matmul;
mod moving;
#[cfg(test)]
mod network;
mod packing;
mod padded_layer;
mod padded_row;
mod partition;
mod pass;
mod peak;
mod planned_step;
mod pooling;
mod reading;
mod recurrent;
mod requantize;
mod rescale;
mod resize;
mod rounding;
mod serves;
mod simd;
mod softmax;
mod steps;
mod strips;
mod tables;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod thread_tests;

pub(crate) use candidate::{Candidate, Candidates};
pub(crate) use convolution::patches::Around;
pub(crate) use depth_first::DepthFirstChain;
pub(crate) use fusions::fuse;
pub(crate) use layer::Layer;
pub(crate) use packing::{LAYOUT, Packing, PackingError};
pub(crate) use padded_layer::PaddedLayer;
pub(crate) use partition::copied;
pub use peak::Peak;
pub(crate) use planned_step::{FusedStep, PlannedStep, REFERENCE};
pub use reading::reading_time;
pub(crate) use simd::instruction_set;
pub use simd::permit_tiles;
pub(crate) use steps::{has_filter, packs, plan};
