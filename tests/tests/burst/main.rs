//! Bursts against the real daemon.

mod common;
mod deaths;
mod hostile;
mod pipeline;
mod results;
mod several_outputs;
