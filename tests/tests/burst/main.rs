//! Bursts against the real daemon.

mod common;
mod deaths;
mod hostile;
mod pipeline;
mod results;
mod same_requests;
mod sealed_inputs;
mod several_outputs;
mod sharing;
