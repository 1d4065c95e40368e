//! How a connection ends: what is known of it, and who is told.

use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::fence::Fence;
use nnhal::wire::CauseOfDeath;

use crate::driver_process::Death;

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

/// Fails fences that nobody will signal any more, so that nobody waits for them.
///
/// Their driver has them too, and can have who writes to one wait for ever (`nnhal::fence`). So a thread does
/// it for which nobody waits, and which keeps nothing but the fences.
pub(super) fn fail(fences: impl Iterator<Item = Fence>) {
    let fences: Vec<Fence> = fences.collect();
    if fences.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("nnhal-end".into());
    let failing = thread.spawn(move || fences.iter().for_each(Fence::fail_without_source));
    if let Err(error) = failing {
        tracing::error!(target: tags::DRIVER, %error, "fences of a driver that has ended stay open");
    }
}
