//! Depthwise convolutions with one output channel for each input channel.

pub(super) mod bytes;
pub(super) mod floats;
pub(super) mod pairs;

pub(super) use floats::{PackedDepthwise, cost};
