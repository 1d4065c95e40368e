//! Operations on each element, or on each two.

pub(super) mod binary;
pub(super) mod broadcast;
pub(super) mod float_sum;
pub(super) mod quantization;
pub(super) mod quantized_extremum;
pub(super) mod quantized_operands;
pub(super) mod quantized_pairs;
pub(super) mod quantized_product;
pub(super) mod quantized_sum;
pub(super) mod step;
pub(super) mod unary;
pub(super) mod values;

pub(super) use step::{BinaryStep, Combine};
