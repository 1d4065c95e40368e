//! The command, from its arguments to its output and exit code.

mod bad_input;
mod common;
mod drivers;
mod explain;
mod latency;
mod models;
mod random_models;
mod run;
mod stress;
mod vts;
