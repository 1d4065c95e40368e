//! Bursts against the real daemon.

mod common;
mod deaths;
mod results;
