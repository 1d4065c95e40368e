//! Entry points for fuzzing, for the tests of this crate and for cargo-fuzz alone: what a worker reads of a
//! client.

pub use crate::cache::fuzzing::cache_files;
pub use crate::worker::fuzzing::burst_requests;
