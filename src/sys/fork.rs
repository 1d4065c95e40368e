//! Telling a process from a copy of it.
//!
//! `fork()` duplicates handles that only one process may use: sockets, rings, threads that exist in the parent only.
//! A [`ForkStamp`] taken in the parent is no longer current in the child, however the fork was made, and asking costs
//! one load: the kernel wipes the page that holds the stamp when it copies the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

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
        match PAGE.get() {
            Some(Some(word)) => word.load(Ordering::Relaxed) == self.0,
            _ => current() == self.0,
        }
    }
}

/// The word that a fork wipes; `None` where the kernel cannot do that.
static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();

/// The last stamp that was given out here or in a process that this one is a copy of.
static LAST: AtomicU64 = AtomicU64::new(0);

fn current() -> u64 {
    let Some(word) = PAGE.get_or_init(wiped_by_fork) else {
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

fn wiped_by_fork() -> Option<&'static AtomicU64> {
    let mut page = MmapMut::map_anon(size_of::<u64>()).ok()?;
    // SAFETY: the range is this mapping and nothing else; the advice takes effect in forked processes only.
    let advised = unsafe { libc::madvise(page.as_mut_ptr().cast(), page.len(), libc::MADV_WIPEONFORK) };
    if advised != 0 {
        return None;
    }
    let word: *const AtomicU64 = page.as_ptr().cast();
    std::mem::forget(page);
    // SAFETY: the mapping is page-aligned, readable, writable and at least eight bytes long, holds zeros, is never
    // unmapped since it has just been forgotten, and is accessed through this reference only.
    Some(unsafe { &*word })
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
        // What a fork does to the page, without a fork in a process full of test threads.
        if let Some(Some(word)) = PAGE.get() {
            word.store(0, Ordering::Relaxed);
            assert!(!stamp.is_current());
            assert_ne!(ForkStamp::take(), stamp);
            word.store(stamp.0, Ordering::Relaxed);
        }
    }
}
