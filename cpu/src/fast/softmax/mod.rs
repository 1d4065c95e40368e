//! SOFTMAX.

pub(super) mod quantized;
pub(super) mod step;

pub(super) use step::SoftmaxStep;
