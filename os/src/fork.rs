//! Telling a process from a copy of it.
//!
//! `fork()` duplicates handles that only one process may use: sockets, rings, threads that exist in the
//! parent only. A [`ForkStamp`] taken in the parent is no longer current in the child, however the fork was
//! made, and asking costs one load: the kernel wipes the page that holds the stamp when it copies the
//! process.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use memmap2::MmapMut;
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::SysError;

/// Names the process that took it, as opposed to its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForkStamp(u64);

impl ForkStamp {
    /// The stamp of the calling process.
    pub fn take() -> ForkStamp {
        ForkStamp(current())
    }

    /// Whether the calling process is the one that took the stamp.
    #[inline]
    pub fn is_current(self) -> bool {
        match page() {
            Some(word) => word.load(Ordering::Relaxed) == self.0,
            None => current() == self.0,
        }
    }
}

/// A value that each process has for itself. A child of `fork()` begins with a fresh one, whatever has become
/// of its parent's, such as a lock that another thread held at that moment, and that nobody in the child
/// gives back. Values are never dropped.
pub struct PerProcess<T: 'static> {
    make: fn() -> T,
    /// Of this process, or of one that it is a copy of.
    latest: AtomicPtr<(ForkStamp, T)>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// With values that `make` makes.
    pub const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess {
            make,
            latest: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The value of the calling process.
    pub fn get(&self) -> &'static T {
        let mut latest = self.latest.load(Ordering::Acquire);
        loop {
            // SAFETY: what is stored here is null or was leaked below, once it was whole, and is never freed.
            if let Some((stamp, value)) = unsafe { latest.as_ref() }
                && stamp.is_current()
            {
                return value;
            }
            let fresh: &'static mut _ = Box::leak(Box::new((ForkStamp::take(), (self.make)())));
            // Who comes second leaves a value that nobody uses, which happens a few times in a process.
            match self
                .latest
                .compare_exchange(latest, fresh, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => latest = self.latest.load(Ordering::Acquire),
                Err(other) => latest = other,
            }
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// What [`run_in_copy`] says of work that panicked: the code with which Rust programs end by a panic.
pub const PANICKED: u8 = 101;

/// Runs `work` in a copy of this process and waits for its end. The copy has the calling thread only and ends
/// with the code that `work` returns, or [`PANICKED`]; nothing of the caller's is dropped in it.
///
/// This is for tests of what a library's handles do in a forked process. A lock that another thread holds at
/// the moment stays locked in the copy, so that `work` may wait for ever if threads are busy.
///
/// # Errors
/// The system has no room for another process.
pub fn run_in_copy(work: impl FnOnce() -> u8) -> Result<WaitStatus, SysError> {
    // SAFETY: the copy has this thread and its own copy of all memory. What other threads were about to
    // change under a lock stays locked for ever, hence is never seen half changed; the C library sees to its
    // own state, its allocator included. The copy never returns from this function.
    let child = match unsafe { fork() }.map_err(SysError::of("fork"))? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let work = std::panic::AssertUnwindSafe(work);
            let code = std::panic::catch_unwind(work).unwrap_or(PANICKED);
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(i32::from(code)) }
        }
    };
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            result => return result.map_err(SysError::of("waitpid")),
        }
    }
}

/// The word that a fork wipes; null before the first stamp, [`NEVER_WIPED`] where the kernel cannot do that.
/// There is no lock around its making, since a child may be forked meanwhile.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

static NEVER_WIPED: AtomicU64 = AtomicU64::new(0);

/// The word that a fork wipes, if there is one already.
#[inline]
fn page() -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Acquire);
    if std::ptr::eq(page, &raw const NEVER_WIPED) {
        return None;
    }
    // SAFETY: what is stored there is null or the start of a mapping that is never unmapped, is page-aligned,
    // readable, writable and at least eight bytes long, and is accessed as an atomic only.
    unsafe { page.as_ref() }
}

/// The same, made if need be; `None` where the kernel cannot do that.
fn page_or_new() -> Option<&'static AtomicU64> {
    if PAGE.load(Ordering::Acquire).is_null() {
        let fresh = wiped_by_fork();
        let start = fresh
            .as_ref()
            .map_or((&raw const NEVER_WIPED).cast_mut(), |page| {
                page.as_ptr().cast::<AtomicU64>().cast_mut()
            });
        let stored = PAGE.compare_exchange(std::ptr::null_mut(), start, Ordering::AcqRel, Ordering::Relaxed);
        if stored.is_ok() {
            // It stays for good. That of a thread that came second goes.
            std::mem::forget(fresh);
        }
    }
    page()
}

/// The last stamp that was given out here or in a process that this one is a copy of.
static LAST: AtomicU64 = AtomicU64::new(0);

fn current() -> u64 {
    let Some(word) = page_or_new() else {
        return u64::from(std::process::id());
    };
    match word.load(Ordering::Relaxed) {
        // The first stamp of this process, or the first since it was forked off.
        0 => {
            let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(stamped) => stamped,
            }
        }
        stamped => stamped,
    }
}

/// A page of zeros that a fork wipes.
fn wiped_by_fork() -> Option<MmapMut> {
    let mut page = MmapMut::map_anon(size_of::<u64>()).ok()?;
    // SAFETY: the range is this mapping and nothing else; the advice takes effect in forked processes only.
    let advised = unsafe { libc::madvise(page.as_mut_ptr().cast(), page.len(), libc::MADV_WIPEONFORK) };
    (advised == 0).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because wiping the word is seen by all threads of the process.
    #[test]
    fn stamp_is_current_until_the_word_is_wiped() {
        let stamp = ForkStamp::take();
        assert_eq!(stamp, ForkStamp::take());
        assert!(stamp.is_current());
        assert!(!ForkStamp(stamp.0 + 1).is_current());
        let ended = run_in_copy(|| {
            let is_foreign = !stamp.is_current();
            let own = ForkStamp::take();
            u8::from(is_foreign && own.is_current() && own != stamp)
        });
        assert!(matches!(ended, Ok(WaitStatus::Exited(_, 1))), "{ended:?}");
        let ended = run_in_copy(|| std::panic::resume_unwind(Box::new(())));
        assert!(matches!(ended, Ok(WaitStatus::Exited(_, code)) if code == i32::from(PANICKED)));
        // A lock that is held when the process is copied is held by nobody in the copy.
        static LOCK: PerProcess<std::sync::Mutex<u8>> = PerProcess::new(|| std::sync::Mutex::new(7));
        let mut held = LOCK.get().lock().unwrap();
        *held = 8;
        let ended = run_in_copy(|| LOCK.get().try_lock().map_or(0, |value| *value));
        assert!(matches!(ended, Ok(WaitStatus::Exited(_, 7))), "{ended:?}");
        drop(held);
        assert_eq!(*LOCK.get().lock().unwrap(), 8);
        // What a fork does to the page, without a fork in a process full of test threads.
        if let Some(word) = page() {
            word.store(0, Ordering::Relaxed);
            assert!(!stamp.is_current());
            assert_ne!(ForkStamp::take(), stamp);
            word.store(stamp.0, Ordering::Relaxed);
        }
    }
}
