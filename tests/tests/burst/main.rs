//! Bursts against the real daemon.

mod common;
mod deaths;
mod hostile;
mod pipeline;
mod results;
mod same_requests;
mod several_outputs;
