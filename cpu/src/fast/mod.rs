//! Fast kernels: operations whose weights are constant become steps made when the model is prepared.
//!
//! Some operations that follow each other are computed together: element-wise ones ([`Fused`]), convolutions
//! some rows of the image at a time ([`StripChain`]), one with what its epilogue computes
//! ([`LayerWithEpilogue`]), and layers of floats that hold integers with what rounds their input and scales
//! their result ([`DynamicallyQuantized`]).
//!
//! A step holds its weights packed for the inner loops of [`tile`] and everything else that can be worked out
//! ahead; running it allocates nothing once scratch memory has grown. What has no step is left to the
//! reference kernels, operation by operation, within the same program. Loops are written once over the
//! vectors of [`simd`]. Results: float sums are taken in another order than the reference's; 8-bit results
//! are the same bits.

mod arg;
mod binary;
mod borders;
mod broadcast;
mod byte_table;
mod candidate;
mod cell;
mod chain;
mod constant_layer;
mod convolution;
mod depthwise;
mod depthwise_bytes;
mod depthwise_quantized;
mod dynamically_quantized;
mod elementwise;
mod epilogue;
mod epilogue_operations;
mod exponential;
mod extremum;
mod few_weights;
mod float_layer;
mod float_matrix;
mod float_sum;
mod fused;
mod integer_layer;
mod layer;
mod layer_with_epilogue;
mod lines;
mod lstm_step;
mod matmul;
mod matmul_byte_tiles;
mod matmul_bytes;
mod matmul_integers;
mod matmul_quantized;
mod matmul_tiles;
mod matrix_vector;
#[cfg(test)]
mod network;
mod offset;
mod packed_bytes;
mod packing;
mod padded_layer;
mod padded_row;
mod partition;
mod patches;
mod peak;
mod planned_step;
mod pooling;
mod product;
mod quantization;
mod quantized_extremum;
mod quantized_operands;
mod quantized_pairs;
mod quantized_product;
mod quantized_softmax;
mod quantized_sum;
mod quantized_tile;
mod reading;
mod recurrent;
mod requantize;
mod rescale;
mod resize;
mod resize_rows;
mod resize_sixteenths;
mod rnn_step;
mod rounding;
mod serves;
mod simd;
mod single_row;
mod softmax;
mod steps;
mod stored_weights;
mod strip_chain;
mod strip_chain_layout;
mod strips;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod thread_tests;
mod tile;
mod unary;
mod values;

pub(crate) use candidate::Candidate;
pub(crate) use dynamically_quantized::DynamicallyQuantized;
pub(crate) use extremum::LargestMagnitude;
pub(crate) use fused::Fused;
pub(crate) use layer::Layer;
pub(crate) use layer_with_epilogue::LayerWithEpilogue;
pub(crate) use offset::Offset;
pub(crate) use packing::{LAYOUT, Packing, PackingError};
pub(crate) use padded_layer::PaddedLayer;
pub(crate) use partition::copied;
pub(crate) use patches::Around;
pub use peak::Peak;
pub(crate) use planned_step::{FusedStep, PlannedStep, REFERENCE};
pub use reading::reading_time;
pub(crate) use simd::instruction_set;
pub use simd::permit_tiles;
pub(crate) use steps::{has_filter, packs, plan};
pub(crate) use strip_chain::StripChain;
