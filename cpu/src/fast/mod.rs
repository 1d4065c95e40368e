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
mod cell;
mod chain;
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
mod float_matrix;
mod float_sum;
mod fused;
mod integer_layer;
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
mod partition;
mod patches;
mod peak;
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
mod strips;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod thread_tests;
mod tile;
mod unary;
mod values;

pub(crate) use dynamically_quantized::{DynamicallyQuantized, Following};
pub(crate) use extremum::LargestMagnitude;
pub(crate) use fused::Fused;
pub(crate) use integer_layer::IntegerLayer;
pub(crate) use layer_with_epilogue::LayerWithEpilogue;
pub(crate) use offset::Offset;
pub(crate) use packing::{LAYOUT, Packing, PackingError};
pub(crate) use partition::copied;
pub(crate) use patches::{Around, Patches};
pub use peak::Peak;
pub use reading::reading_time;
pub(crate) use simd::instruction_set;
pub use simd::permit_tiles;
pub(crate) use steps::{FloatLayer, has_filter, packs, plan};
pub(crate) use strip_chain::{Candidate, FusionThreshold, StripChain};

use nnhal_hal::OperandType;
use nnhal_hal::ops::OpError;
use nnhal_os::buffer::AlignedSlice;
use simd::strided;

use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;

/// The name of what computes operations that have no step.
pub(crate) const REFERENCE: &str = "reference";

/// An operation made ready with its constants.
pub(crate) trait PlannedStep: std::fmt::Debug + Send + Sync {
    /// Computes the operation; outputs are sized already.
    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError>;

    /// What computes operations whose first input is of this type, for people to read: [`REFERENCE`] where it
    /// leaves them to the reference kernel, and both where it depends on the execution.
    fn name(&self, input: OperandType) -> &'static str;

    /// The weights that it packed, in the order in which it did.
    fn packed(&self) -> Vec<&AlignedSlice> {
        Vec::new()
    }

    /// The same layer for an input of integers, if its weights are such.
    fn integer_layer(&self) -> Option<&IntegerLayer> {
        None
    }

    /// What it is, if it is a convolution of floats of which everything is known.
    fn float_layer(&self) -> Option<FloatLayer<'_>> {
        None
    }

    /// Has it clamp its results to the range of an activation from now on; whether it does, which needs that
    /// it clamps nothing yet.
    fn clamp(&mut self, _: Activation) -> bool {
        false
    }

    /// The windows over the image, if it can put what is around it there itself.
    fn behind_padding(&self, _: &Around) -> Option<Patches> {
        None
    }

    /// Computes the operation from what is to be padded, in place of its first input, with what
    /// [`PlannedStep::behind_padding`] gave.
    fn run_padded(&self, _: &mut KernelContext<'_>, _: &Patches) -> Result<(), KernelError> {
        Err(OpError::input(0, "is not padded by this operation").into())
    }

    /// Whether it reads its second input, a constant, in no execution.
    fn replaces_filter(&self) -> bool {
        false
    }
}
