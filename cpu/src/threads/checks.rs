//! Asking within an operation whether the execution is to go on.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt::Interrupt;

/// What the threads that compute an operation know of whether it is to go on.
#[derive(Debug, Default)]
pub(super) struct CheckState {
    /// Whether the leader asks just now, which may take as long as other work goes first.
    is_asked: AtomicBool,
    is_stopped: AtomicBool,
}

impl CheckState {
    /// Whether the leader asks just now.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}

/// How a thread that computes a block asks whether to go on.
pub(crate) struct Checks<'a> {
    /// The leader's.
    interrupt: Option<&'a dyn Interrupt>,
    state: &'a CheckState,
}

impl<'a> Checks<'a> {
    /// Of the thread that runs the execution.
    pub(super) fn of_leader(interrupt: &'a dyn Interrupt, state: &'a CheckState) -> Checks<'a> {
        Checks {
            interrupt: Some(interrupt),
            state,
        }
    }

    /// Of one that helps it.
    pub(super) fn of_helper(state: &'a CheckState) -> Checks<'a> {
        Checks {
            interrupt: None,
            state,
        }
    }

    /// Whether to go on. If not, what the block is given does not matter.
    pub(crate) fn goes_on(&self) -> bool {
        let CheckState { is_asked, is_stopped } = self.state;
        let Some(interrupt) = self.interrupt else {
            return !is_stopped.load(Ordering::Relaxed);
        };
        is_asked.store(true, Ordering::Relaxed);
        let goes_on = interrupt.check().is_ok();
        is_asked.store(false, Ordering::Relaxed);
        if !goes_on {
            is_stopped.store(true, Ordering::Relaxed);
        }
        goes_on
    }
}
