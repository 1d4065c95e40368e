//! Fences of a burst's fenced requests. One is made only when the client asks for it.
//!
//! The thread that carries requests out says each end by one exchange of a word of this process, and looks
//! further only if somebody asks for a fence just then.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::diag::tags;
use nnhal::fence::{Fence, FenceError, FenceSource};
use nnhal_hal::{ErrorStatus, Failure};

use crate::usage::{Permit, Quotas};

/// The most fences of one burst that have not been signalled.
const MOST: usize = 64;

/// That a request has ended, whose sequence is the lower half.
const HAS_ENDED: u64 = 1 << 32;

/// That there are fences to be signalled.
const IS_AWAITED: u64 = 1 << 33;

/// The fences of one burst, as those see it who ask for them.
#[derive(Debug)]
pub(super) struct Fences {
    quotas: Quotas,
    /// Which request has ended last, and whether anybody wants to know of others.
    word: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    awaited: Vec<Awaited>,
    /// No request will end any more.
    is_over: bool,
}

/// A fence to be signalled.
#[derive(Debug)]
struct Awaited {
    sequence: u32,
    source: FenceSource,
    _permit: Permit,
}

impl Fences {
    pub(super) fn new(quotas: Quotas) -> Fences {
        Fences {
            quotas,
            word: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fence for the end of the fenced request of this sequence; `None` if that has ended.
    pub(super) fn of(&self, sequence: u32) -> Result<Option<OwnedFd>, Failure> {
        if has_ended(self.word.load(Ordering::SeqCst), sequence) {
            return Ok(None);
        }
        let permit = self.quotas.descriptor()?;
        let (source, fence) = Fence::create().map_err(no_fence)?;
        let fd = fence.try_clone_fd().map_err(no_fence)?;
        let awaited = Awaited {
            sequence,
            source,
            _permit: permit,
        };
        let mut state = self.lock();
        if state.is_over {
            return Err(Failure::general("the burst has ended, and the request with it"));
        }
        if state.awaited.len() >= MOST {
            return Err(Failure::new(
                ErrorStatus::ResourceExhaustedTransient,
                format!("{MOST} fences of the burst have not been signalled, as many as it may have"),
            ));
        }
        // From here on the request's end is told, unless it has come by now.
        if has_ended(self.word.fetch_or(IS_AWAITED, Ordering::SeqCst), sequence) {
            return Ok(None);
        }
        state.awaited.push(awaited);
        Ok(Some(fd))
    }

    /// Signals the fences of the request that has ended. Those of earlier ones, which were no fenced
    /// requests, fail.
    #[cold]
    fn tell(&self, ended: u32, is_good: bool) {
        let mut state = self.lock();
        let awaited = std::mem::take(&mut state.awaited);
        let word = HAS_ENDED | u64::from(ended);
        let is_due = |awaited: &Awaited| has_ended(word, awaited.sequence);
        let (due, left): (Vec<_>, Vec<_>) = awaited.into_iter().partition(is_due);
        if !left.is_empty() {
            state.awaited = left;
            self.word.fetch_or(IS_AWAITED, Ordering::SeqCst);
        }
        drop(state);
        for Awaited { sequence, source, .. } in due {
            let told = match sequence == ended && is_good {
                true => source.signal(),
                false => source.fail(),
            };
            if let Err(error) = told {
                tracing::warn!(target: tags::DRIVER, %error, "a fence could not be signalled");
            }
        }
    }

    /// Fails all fences: nothing will end any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let awaited = std::mem::take(&mut state.awaited);
        drop(state);
        drop(awaited);
    }
}

/// Whether the request of this sequence is the one that ended last by this word, or came before it. Sequences
/// count up, and begin again behind the last.
fn has_ended(word: u64, sequence: u32) -> bool {
    // The upper half says whether there is one.
    word & HAS_ENDED != 0 && (word as u32).wrapping_sub(sequence).cast_signed() >= 0
}

fn no_fence(error: FenceError) -> Failure {
    Failure::new(ErrorStatus::ResourceExhaustedTransient, error.to_string())
}

/// Ends of the fenced requests of a burst, as those see it who carry them out. The burst ends with it.
#[derive(Debug)]
pub(super) struct Ends {
    fences: Arc<Fences>,
    /// What went wrong with the last one; nothing if it went well.
    failure: Option<Box<Failure>>,
}

impl Ends {
    pub(super) fn new(quotas: Quotas) -> Ends {
        Ends {
            fences: Arc::new(Fences::new(quotas)),
            failure: None,
        }
    }

    pub(super) fn fences(&self) -> &Arc<Fences> {
        &self.fences
    }

    /// Refuses a request that waits for the one before, if that has failed.
    #[inline]
    pub(super) fn expect_good(&self) -> Result<(), Box<Failure>> {
        self.failure
            .as_ref()
            .map_or(Ok(()), |failure| Err(behind(failure)))
    }

    /// The fenced request of this sequence has ended: with a failure of its own, or of one before it.
    #[inline]
    pub(super) fn end(&mut self, sequence: u32, end: End) {
        let is_good = end == End::Good;
        match end {
            End::Good if self.failure.is_none() => {}
            End::Good => self.failure = None,
            End::Failed(failure) => self.failure = Some(failure),
            End::NotRun => {}
        }
        let word = HAS_ENDED | u64::from(sequence);
        let before = self.fences.word.swap(word, Ordering::SeqCst);
        if before & IS_AWAITED != 0 {
            self.fences.tell(sequence, is_good);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.fences.end();
    }
}

/// How a fenced request has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Good,
    Failed(Box<Failure>),
    /// It was not run, since the one before it has failed.
    NotRun,
}

#[cold]
fn behind(failure: &Failure) -> Box<Failure> {
    let detail = format!(
        "an execution that this one waited for has failed: {}",
        failure.detail
    );
    Failure::new(failure.status, detail).into()
}

#[cfg(test)]
mod tests {
    use nnhal::fence::FenceState;

    use super::*;

    fn state(fd: Option<OwnedFd>) -> FenceState {
        Fence::from_handle(fd).unwrap().state().unwrap()
    }

    fn ends() -> Ends {
        Ends::new(Quotas::alone())
    }

    fn failed() -> End {
        End::Failed(Failure::general("no").into())
    }

    #[test]
    fn fences_tell_the_ends_of_their_requests() {
        let mut ends = ends();
        let fences = Arc::clone(ends.fences());
        let fds = [2, 1, 3, 3].map(|sequence| fences.of(sequence).unwrap());
        let fences_of = fds.map(|fd| Fence::from_handle(fd).unwrap());
        let states = || fences_of.each_ref().map(|fence| fence.state().unwrap());
        use FenceState::{Failed, Pending, Signalled};
        assert_eq!(states(), [Pending; 4]);
        ends.end(1, End::Good);
        assert_eq!(states(), [Pending, Signalled, Pending, Pending]);
        ends.end(2, failed());
        assert_eq!(states(), [Failed, Signalled, Pending, Pending]);
        assert!(fences.of(1).unwrap().is_none() && fences.of(2).unwrap().is_none());
        ends.end(3, End::Good);
        assert_eq!(states(), [Failed, Signalled, Signalled, Signalled]);
    }

    #[test]
    fn fence_of_what_never_ends_fails_with_what_comes_after_it_or_with_the_burst() {
        let mut ends = ends();
        let fences = Arc::clone(ends.fences());
        let passed = Fence::from_handle(fences.of(u32::MAX).unwrap()).unwrap();
        let last = Fence::from_handle(fences.of(7).unwrap()).unwrap();
        // Sequences begin again behind the last.
        ends.end(1, End::Good);
        assert_eq!(passed.state().unwrap(), FenceState::Failed);
        assert_eq!(last.state().unwrap(), FenceState::Pending);
        drop(ends);
        assert_eq!(last.state().unwrap(), FenceState::Failed);
        assert!(fences.of(8).is_err());
    }

    #[test]
    fn burst_has_so_many_fences() {
        let mut ends = ends();
        let fences = Arc::clone(ends.fences());
        let fds: Vec<_> = (0..MOST).map(|_| fences.of(5).unwrap()).collect();
        let failure = fences.of(5).unwrap_err();
        assert_eq!(failure.status, ErrorStatus::ResourceExhaustedTransient);
        ends.end(5, End::Good);
        for fd in fds {
            assert_eq!(state(fd), FenceState::Signalled);
        }
        assert!(fences.of(6).unwrap().is_some());
    }

    #[test]
    fn request_behind_one_that_has_failed_is_refused_until_one_goes_well() {
        let mut ends = ends();
        assert_eq!(ends.expect_good(), Ok(()));
        ends.end(1, failed());
        let before = ends.expect_good().unwrap_err().detail;
        assert_eq!(before, "an execution that this one waited for has failed: no");
        // What is said does not grow.
        ends.end(2, End::NotRun);
        assert_eq!(ends.expect_good().unwrap_err().detail, before);
        ends.end(3, End::Good);
        assert_eq!(ends.expect_good(), Ok(()));
    }
}
