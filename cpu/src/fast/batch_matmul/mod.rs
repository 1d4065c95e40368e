//! BATCH_MATMUL with packed matrices: each right matrix is packed, then multiplied with the left one's rows.
//! Those of a vision transformer (ViT-tiny) take a tenth of the reference kernel's time.

mod bytes;
mod floats;
pub(super) mod parts;
mod step;

pub(super) use step::{BatchMatMulStep, is_batch_matmul};
