//! Bursts against the real daemon.

mod common;
mod deaths;
mod hostile;
mod hostile_memories;
mod hostile_rings;
mod pipeline;
mod raw;
mod results;
mod same_requests;
mod sealed_inputs;
mod several_outputs;
mod shapes;
mod sharing;
