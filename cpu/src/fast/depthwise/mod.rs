//! Depthwise convolutions with one output channel for each input channel: one driver, and a kernel for each
//! type.

mod byte_filters;
mod byte_layout;
mod byte_plan;
pub(super) mod bytes;
mod driver;
mod float_tiles;
mod floats;
mod pair_tiles;
pub(super) mod pairs;

pub(super) use driver::cost;
pub(super) use floats::PackedDepthwise;
