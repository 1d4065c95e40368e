//! The helper threads of a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nnhal_os::cores::Cores;

use super::hand_over::{Mailbox, Occupation, chosen};

/// The name of helper threads, as the system shows it.
const HELPER_NAME: &str = "helper";

/// Stack of a helper. Kernels keep tiles on it and call nothing that is deep.
const STACK: usize = 256 * 1024;

/// Most helpers of a process.
pub const MAX_HELPERS: usize = 63;

/// Threads that help those that run executions. They are made when they are first needed, and end with this
/// value or by [`Helpers::end_idle`].
#[derive(Debug)]
pub struct Helpers {
    mailboxes: Arc<[Mailbox]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// No thread could be made; not tried again before memory has been given back.
    is_exhausted: AtomicBool,
    /// Whether the system prefers other threads to them.
    are_nice: bool,
}

impl Helpers {
    /// At most `most` of them, and at most [`MAX_HELPERS`]; none is made yet.
    #[must_use]
    pub fn new(most: usize) -> Helpers {
        Helpers {
            mailboxes: (0..most.min(MAX_HELPERS)).map(|_| Mailbox::default()).collect(),
            threads: Mutex::default(),
            is_exhausted: AtomicBool::new(false),
            are_nice: false,
        }
    }

    /// The same with the nice value [`nnhal_os::sched::NICE`], for executions whose own threads have it.
    #[must_use]
    pub fn nice(most: usize) -> Helpers {
        let mut helpers = Helpers::new(most);
        helpers.are_nice = true;
        helpers
    }

    /// Most that there can be.
    #[must_use]
    pub fn most(&self) -> usize {
        self.mailboxes.len()
    }

    /// Whether the system prefers other threads to them.
    pub(super) fn are_nice(&self) -> bool {
        self.are_nice
    }

    pub(super) fn mailboxes(&self) -> &[Mailbox] {
        &self.mailboxes
    }

    pub(super) fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        // The list is whole between any two statements of this module.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims at most `wanted` helpers, as bits by mailbox, making threads where there are none and some more
    /// may be.
    pub(super) fn claim(&self, wanted: usize, cores: &dyn Cores) -> u64 {
        let mut claimed = 0_u64;
        for (at, mailbox) in self.mailboxes.iter().enumerate() {
            if claimed.count_ones() as usize == wanted {
                break;
            }
            let has_helper = match mailbox.claim() {
                None => continue,
                Some(Occupation::Helper) => true,
                Some(Occupation::Nobody) => self.start(at, cores),
                Some(Occupation::Leaving) => false,
            };
            if has_helper {
                claimed |= 1 << at;
            } else {
                mailbox.release();
            }
        }
        claimed
    }

    /// Wakes those of the first `count` that sleep.
    pub(crate) fn rouse(&self, count: usize) {
        self.mailboxes.iter().take(count).for_each(Mailbox::rouse);
    }

    pub(super) fn release(&self, claimed: u64) {
        chosen(&self.mailboxes, claimed).for_each(Mailbox::release);
    }

    /// Starts the helper of a claimed mailbox.
    #[cold]
    fn start(&self, at: usize, cores: &dyn Cores) -> bool {
        if self.is_exhausted.load(Ordering::Relaxed) {
            return false;
        }
        // One that is refused now may be granted for the next execution.
        let Some(permit) = cores.permit_helper() else {
            return false;
        };
        let (mailboxes, is_nice) = (Arc::clone(&self.mailboxes), self.are_nice);
        self.mailboxes[at].expect_helper();
        let started = std::thread::Builder::new()
            .name(HELPER_NAME.to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let _permit = permit;
                if is_nice {
                    // It fails for one that is nicer.
                    let _ = nnhal_os::sched::become_nice();
                }
                mailboxes[at].serve();
            });
        match started {
            Ok(thread) => {
                self.threads().push(thread);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "no helper thread can be made; operations are computed by one thread");
                self.mailboxes[at].expect_nobody();
                self.is_exhausted.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Ends the helpers that belong to no execution at the moment.
    pub fn end_idle(&self) {
        for mailbox in self.mailboxes.iter() {
            if mailbox.claim().is_some() {
                mailbox.dismiss();
                mailbox.release();
            }
        }
        self.is_exhausted.store(false, Ordering::Relaxed);
        self.threads().retain(|thread| !thread.is_finished());
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        // Executions borrow this value, so no mailbox is claimed.
        self.mailboxes.iter().for_each(Mailbox::dismiss);
        for thread in self.threads().drain(..) {
            // What it panicked with, its leader has been told.
            let _ = thread.join();
        }
    }
}
