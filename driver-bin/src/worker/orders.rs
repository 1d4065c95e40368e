//! What the supervisor wants, between the thread that listens to it and the main thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nnhal_os::{SysError, eventfd};

use crate::link::Command;
use crate::settings::ExecutionSettings;

/// What the supervisor wants of a session.
#[derive(Debug)]
pub(super) struct Orders {
    /// Wakes the main thread.
    pub(super) wake: OwnedFd,
    drain: AtomicBool,
    execution: Mutex<ExecutionSettings>,
}

impl Orders {
    pub(super) fn new(execution: ExecutionSettings) -> Result<Orders, SysError> {
        Ok(Orders {
            wake: eventfd::create()?,
            drain: AtomicBool::new(false),
            execution: Mutex::new(execution),
        })
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drain.load(Ordering::Acquire)
    }

    pub(super) fn execution(&self) -> ExecutionSettings {
        self.execution
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn take(&self, command: Command) {
        match command {
            Command::Drain => self.drain.store(true, Ordering::Release),
            Command::Reconfigure(execution) => {
                *self.execution.lock().unwrap_or_else(PoisonError::into_inner) = execution;
            }
        }
        eventfd::wake(&self.wake);
    }
}
