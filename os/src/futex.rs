//! Sleeping on a word of memory that processes share.
//!
//! The words may lie in memory a peer can write, so a value read here means nothing but "sleep or look
//! again": callers loop around [`wait`] and decide by their own checks. The futexes are shared ones (keyed by
//! file and offset), since the two sides map the same page at different addresses.

use std::sync::atomic::AtomicU32;

use nix::errno::Errno;

use super::SysError;
use crate::time::Deadline;

/// Why [`wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Somebody woke this thread, or the kernel did for no reason.
    Woken,
    /// The word did not hold the expected value any more, so the thread never slept.
    Changed,
    /// The deadline passed.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Sleeps while `word` holds `expected`, until woken or until `deadline`.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Result<Wait, SysError> {
    let timeout = deadline.to_timespec();
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
    // SAFETY: `word` lives for the call and is aligned; `timeout` is null or points to a timespec on this
    // stack frame; FUTEX_WAIT_BITSET without FUTEX_CLOCK_REALTIME takes an absolute CLOCK_MONOTONIC time.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            timeout,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    ended("futex(WAIT)", done)
}

/// Why a call that sleeps has returned, right after it has.
fn ended(call: &'static str, returned: libc::c_long) -> Result<Wait, SysError> {
    if returned >= 0 {
        return Ok(Wait::Woken);
    }
    match Errno::last() {
        Errno::EAGAIN => Ok(Wait::Changed),
        Errno::ETIMEDOUT => Ok(Wait::TimedOut),
        Errno::EINTR => Ok(Wait::Interrupted),
        errno => Err(SysError { call, errno }),
    }
}

/// Most words that [`wait_on_any`] takes: what the kernel does.
pub const MAX_WORDS: usize = libc::FUTEX_WAITV_MAX as usize;

/// Sleeps while each word holds what is expected of it, until woken by one of them or until `deadline`. The
/// kernel has this since Linux 5.16: see [`can_wait_on_any`]. With more than [`MAX_WORDS`] it fails.
pub fn wait_on_any<'a>(
    words: impl IntoIterator<Item = (&'a AtomicU32, u32)>,
    deadline: Deadline,
) -> Result<Wait, SysError> {
    let mut waiters = [Waiter::default(); MAX_WORDS];
    let mut count = 0;
    for (word, expected) in words {
        let waiter = waiters.get_mut(count).ok_or(SysError {
            call: "futex_waitv",
            errno: Errno::EINVAL,
        })?;
        *waiter = Waiter {
            expected: expected.into(),
            address: word.as_ptr() as u64,
            flags: FUTEX_32,
            reserved: 0,
        };
        count += 1;
    }
    let timeout = deadline.to_timespec();
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
    // SAFETY: the first `count` waiters are filled in as the kernel wants them, with words that live for
    // `'a`, which outlasts the call, and are aligned; `timeout` is null or points to a timespec on this stack
    // frame, of the size that the kernel reads.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            count,
            0,
            timeout,
            libc::CLOCK_MONOTONIC,
        )
    };
    ended("futex_waitv", woken)
}

/// Whether [`wait_on_any`] works here: older kernels lack it, and sandboxes may forbid it.
#[must_use]
pub fn can_wait_on_any() -> bool {
    let word = AtomicU32::new(1);
    wait_on_any([(&word, 0)], Deadline::NONE).is_ok()
}

/// A word as the kernel's `struct futex_waitv`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Waiter {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

// The kernel reads its own timespec here, of 64-bit parts wherever Linux runs.
const _: () = assert!(size_of::<libc::timespec>() == 16);

/// A word of 32 bits that processes share (`FUTEX2_SIZE_U32`).
const FUTEX_32: u32 = 2;

/// Wakes at most `count` threads that sleep on `word`, in this or any other process that maps it.
///
/// Returns how many were woken.
pub fn wake(word: &AtomicU32, count: i32) -> Result<usize, SysError> {
    // SAFETY: `word` lives for the call and is aligned; FUTEX_WAKE does not access its value.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    usize::try_from(woken).map_err(|_| SysError::last("futex(WAKE)"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::time::{Clock, MonotonicClock, TimePoint};

    #[test]
    fn changed_word_returns_at_once() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, Deadline::NONE).unwrap(), Wait::Changed);
    }

    #[test]
    fn past_deadline_times_out() {
        let word = AtomicU32::new(0);
        let past = Deadline::at(TimePoint::from_nanos(1));
        assert_eq!(wait(&word, 0, past).unwrap(), Wait::TimedOut);
        let soon = Deadline::after(MonotonicClock.now(), std::time::Duration::from_millis(1));
        assert_eq!(wait(&word, 0, soon).unwrap(), Wait::TimedOut);
        assert!(soon.is_past(MonotonicClock.now()));
    }

    #[test]
    fn wait_on_several_words_ends_when_one_changes_or_at_the_deadline() {
        assert!(can_wait_on_any());
        let words = [const { AtomicU32::new(0) }; 3];
        let all = || words.iter().map(|word| (word, 0));
        let soon = Deadline::after(MonotonicClock.now(), std::time::Duration::from_millis(1));
        assert_eq!(wait_on_any(all(), soon).unwrap(), Wait::TimedOut);
        assert!(soon.is_past(MonotonicClock.now()));
        words[2].store(1, Ordering::SeqCst);
        assert_eq!(wait_on_any(all(), Deadline::NONE).unwrap(), Wait::Changed);
        words[2].store(0, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while words[1].load(Ordering::SeqCst) == 0 {
                    wait_on_any(all(), Deadline::NONE).unwrap();
                }
            });
            words[1].store(1, Ordering::SeqCst);
            wake(&words[1], i32::MAX).unwrap();
            sleeper.join().unwrap();
        });
    }

    #[test]
    fn too_many_words_are_refused() {
        let words: Vec<AtomicU32> = (0..=MAX_WORDS).map(|_| AtomicU32::new(1)).collect();
        let outcome = wait_on_any(words.iter().map(|word| (word, 0)), Deadline::NONE);
        assert_eq!(outcome.unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn wake_reaches_a_sleeper_in_another_thread() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 0 {
                    wait(&word, 0, Deadline::NONE).unwrap();
                }
            });
            word.store(1, Ordering::SeqCst);
            wake(&word, i32::MAX).unwrap();
            sleeper.join().unwrap();
        });
    }
}
