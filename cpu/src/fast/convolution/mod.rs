//! Convolutions: what gives a matrix product its rows.

pub(super) mod copies;
pub(super) mod integer_layer;
pub(super) mod patches;
pub(super) mod products;

pub(super) use products::{cost, lines_f32, run_bytes, run_f32, run_q8, vector_speed, weight};
