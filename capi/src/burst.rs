//! Bursts.

use std::sync::{Arc, Mutex};

use nnhal_client::runtime::RunBurst;

use crate::compilation::Compilation;
use crate::result::Outcome;

/// What is behind an `ANeuralNetworksBurst`.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) compilation: Arc<Compilation>,
    /// Used by one execution at a time.
    pub(crate) run: Mutex<RunBurst>,
}

impl Burst {
    pub(crate) fn new(compilation: Arc<Compilation>) -> Outcome<Burst> {
        let run = Mutex::new(compilation.finished()?.burst()?);
        Ok(Burst { compilation, run })
    }
}
