//! Fences: events between processes that happen once.
//!
//! A fence of this project is an eventfd that is written once and never read, so it stays ready for everyone
//! who polls it, in any process that has a descriptor of it. Three states can be told apart by polling alone:
//!
//! | count | state | ready for |
//! |---|---|---|
//! | 0 | pending | writing |
//! | 1 | signalled | reading and writing |
//! | 2^64 - 2, the most that can be written | failed | reading |
//!
//! [`Fence::from_fd`] takes any descriptor that can be polled, kernel `sync_file`s included, whose own error
//! state is seen.
//!
//! What a hostile peer can do (threat T9): it shares the eventfd's description, so it can read the count
//! (this side remembers what it has once seen), write it (it signals its own fence early, or fails it), and
//! clear `O_NONBLOCK`. The signalling write sets `O_NONBLOCK` again first and is left out when the fence is
//! ready already, so a saturated counter alone cannot block it. A peer that clears the flag and saturates the
//! counter between those two system calls can: the thread then sleeps in an interruptible write until the
//! process ends. Only a process that serves that peer alone may therefore signal its fences; its other
//! threads still see the hang-up, and it dies of any signal.
#![forbid(unsafe_code)]

mod error;
mod event;
mod fd_kind;
mod source;
mod wait;

pub use error::FenceError;
pub use event::{Fence, FenceState};
pub use source::FenceSource;
pub use wait::{WaitOutcome, wait_all};

#[cfg(test)]
mod tests;
