//! How a connection ends: what is known of it, and who is told.

use std::sync::Arc;

use nnhal::fence::Fence;
use nnhal::wire::CauseOfDeath;

use crate::error::Death;

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The worker is dead, or has closed the connection.
    Death(Arc<Death>),
    /// The worker broke the protocol, so that this side has closed it.
    Protocol(String),
}

/// What a reader found that ends the connection.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The connection is closed, or the worker is dead.
    Gone,
    /// The worker broke the protocol.
    Protocol(String),
}

/// What the worker and its supervisor have said about the end.
#[derive(Debug, Default)]
pub(super) struct Farewell {
    pub(super) goodbye: Option<String>,
    pub(super) worker_exit: Option<(CauseOfDeath, String)>,
}

/// What is told when the connection ends.
pub(crate) trait EndListener: Send + Sync + std::fmt::Debug {
    /// The connection has ended; [`Ending`] says why. Returns the fence that nobody will signal any more, if
    /// there is one.
    fn connection_ended(&self) -> Option<Fence>;
}
