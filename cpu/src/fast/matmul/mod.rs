//! Products of rows with constant matrices. [`product`] has the loops around tiles, for whatever has a
//! [`product::MicroKernel`]; tiles of AMX have their own.

pub(super) mod bf16x3;
pub(super) mod byte_tiles;
pub(super) mod bytes;
pub(super) mod few_weights;
pub(super) mod float_matrix;
pub(super) mod floats;
pub(super) mod integers;
pub(super) mod lines;
pub(super) mod matrix_vector;
pub(super) mod packed_bytes;
pub(super) mod pairs;
pub(super) mod product;
pub(super) mod quantized_tile;
pub(super) mod single_row;
pub(super) mod stored_weights;
pub(super) mod tile;
