//! How a helper thread is lent work that lies on the stack of the thread that it helps.
//!
//! Each helper has a [`Mailbox`], one word of which says where the hand-over stands. Whoever holds the
//! mailbox's claim is its leader; only the leader posts, and only the mailbox's helper serves.
//!
//! | state | set by | meaning |
//! |---|---|---|
//! | `VACANT` | helper, as its last act | there is no helper thread |
//! | `IDLE` | helper, leader; from `ASLEEP` anybody | the helper looks for work |
//! | `ASLEEP` | helper, from `IDLE` | the helper sleeps on the word |
//! | `POSTED` | leader, from `IDLE` or `ASLEEP` | there is a job that the helper has not taken |
//! | `RUNNING` | helper, from `POSTED` | the helper works on the job |
//! | `AWAITED` | leader, from `RUNNING` | the same, and the leader sleeps on the word |
//! | `LEAVING` | leader, from `IDLE` or `ASLEEP` | the helper is to end |
//!
//! Every change is one atomic exchange, and sleep is a futex that compares the word, so no wake-up is lost. A
//! job that no helper has taken by the time that the leader is through is withdrawn (`POSTED` to `IDLE`): a
//! helper that is late holds nobody up.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use super::spin_policy::{Lingering, SpinPolicy};
use sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Futex, Ordering};

#[cfg(not(loom))]
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

    use nnhal_os::futex;
    use nnhal_os::time::Deadline;

    /// Sleeping on a word.
    #[derive(Debug)]
    pub(super) struct Futex;

    impl Futex {
        pub(super) fn new() -> Futex {
            Futex
        }

        /// Sleeps while `word` is `expected`, or shorter: the caller looks again.
        pub(super) fn wait(&self, word: &AtomicU32, expected: u32) {
            // It fails for no word that is mapped.
            let _ = futex::wait(word, expected, Deadline::NONE);
        }

        pub(super) fn wake(&self, word: &AtomicU32) {
            let _ = futex::wake(word, 1);
        }
    }
}

#[cfg(loom)]
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
    use loom::sync::{Condvar, Mutex};

    /// What a futex does: the value is compared and the thread queued in one step, as seen by wakers.
    #[derive(Debug)]
    pub(super) struct Futex {
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(super) fn new() -> Futex {
            Futex {
                queue: Mutex::new(()),
                woken: Condvar::new(),
            }
        }

        pub(super) fn wait(&self, word: &AtomicU32, expected: u32) {
            let queue = self.queue.lock().unwrap();
            if word.load(Ordering::SeqCst) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(super) fn wake(&self, _: &AtomicU32) {
            drop(self.queue.lock().unwrap());
            self.woken.notify_one();
        }
    }
}

const VACANT: u32 = 0;
const IDLE: u32 = 1;
const ASLEEP: u32 = 2;
const POSTED: u32 = 3;
const RUNNING: u32 = 4;
const AWAITED: u32 = 5;
const LEAVING: u32 = 6;

/// How often the leader looks whether a helper is done before it sleeps: some tens of microseconds.
const LOOKS: u32 = 1000;

/// What is handed over.
struct Job<'a> {
    /// Told the helper's number among those of the job, from 1 on.
    work: &'a (dyn Fn(usize) + Sync),
    /// What a helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    fn run(&self, number: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.work)(number))) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }
}

/// Where a leader posts a job for one helper thread, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Mailbox {
    state: AtomicU32,
    /// Whether a leader holds it.
    is_claimed: AtomicBool,
    /// While the state is `POSTED`, `RUNNING` or `AWAITED`: the job, which outlives these.
    job: AtomicPtr<Job<'static>>,
    number: AtomicUsize,
    futex: Futex,
}

/// Whether a claimed mailbox has a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupation {
    Helper,
    Nobody,
    /// Its helper is about to end.
    Leaving,
}

impl Default for Mailbox {
    fn default() -> Self {
        Mailbox {
            state: AtomicU32::new(VACANT),
            is_claimed: AtomicBool::new(false),
            job: AtomicPtr::new(std::ptr::null_mut()),
            number: AtomicUsize::new(0),
            futex: Futex::new(),
        }
    }
}

impl Mailbox {
    /// Makes the caller the leader of this mailbox, if there is none.
    pub(super) fn claim(&self) -> Option<Occupation> {
        let exchanged = self
            .is_claimed
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        exchanged.ok()?;
        Some(match self.state.load(Ordering::Acquire) {
            VACANT => Occupation::Nobody,
            LEAVING => Occupation::Leaving,
            _ => Occupation::Helper,
        })
    }

    /// The leader no longer needs this mailbox. Its helper looks for work of others, or of the next
    /// execution, for a while if that has been worth it, and sleeps then.
    pub(super) fn release(&self) {
        self.is_claimed.store(false, Ordering::Release);
    }

    /// The leader of a mailbox without a helper is about to start a thread that will [`Mailbox::serve`].
    pub(super) fn expect_helper(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// There will be no such thread.
    pub(super) fn expect_nobody(&self) {
        self.state.store(VACANT, Ordering::Release);
    }

    /// The leader sends the helper, if there is one, away.
    pub(super) fn dismiss(&self) {
        let is_there = |state| matches!(state, IDLE | ASLEEP).then_some(LEAVING);
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_there);
        if before == Ok(ASLEEP) {
            self.futex.wake(&self.state);
        }
    }

    /// Wakes the helper if it sleeps: there will be work soon.
    pub(super) fn rouse(&self) {
        // Most are awake, which is seen without an exchange.
        if self.state.load(Ordering::Relaxed) != ASLEEP {
            return;
        }
        let roused = self
            .state
            .compare_exchange(ASLEEP, IDLE, Ordering::AcqRel, Ordering::Relaxed);
        if roused.is_ok() {
            self.futex.wake(&self.state);
        }
    }

    fn post(&self, job: &Job<'_>, number: usize) {
        self.number.store(number, Ordering::Relaxed);
        let job = std::ptr::from_ref(job).cast_mut().cast::<Job<'static>>();
        self.job.store(job, Ordering::Relaxed);
        if self.state.swap(POSTED, Ordering::AcqRel) == ASLEEP {
            self.futex.wake(&self.state);
        }
    }

    /// Returns when the helper has no job: takes it back, or waits until the helper is done.
    fn take_back(&self) {
        let withdrawn = self
            .state
            .compare_exchange(POSTED, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if withdrawn.is_ok() {
            return;
        }
        for _ in 0..if cfg!(loom) { 0 } else { LOOKS } {
            if self.state.load(Ordering::Acquire) != RUNNING {
                return;
            }
            nnhal_os::cpu::relax();
        }
        let awaited = self
            .state
            .compare_exchange(RUNNING, AWAITED, Ordering::AcqRel, Ordering::Acquire);
        if awaited.is_ok() {
            while self.state.load(Ordering::Acquire) == AWAITED {
                self.futex.wait(&self.state, AWAITED);
            }
        }
    }

    /// The life of a helper thread: works on what is posted until it is sent away.
    #[allow(unsafe_code)]
    pub(super) fn serve(&self) {
        let mut spin_policy = SpinPolicy::new();
        let mut lingering = Lingering::default();
        // Whether it was told that there will be work soon.
        let mut is_roused = false;
        loop {
            match self.state.load(Ordering::Acquire) {
                POSTED => {
                    let taken =
                        self.state
                            .compare_exchange(POSTED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
                    if taken.is_err() {
                        continue;
                    }
                    lingering.was_worth_it();
                    is_roused = false;
                    let job = self.job.load(Ordering::Relaxed);
                    // SAFETY: this thread has just changed the state from `POSTED`, before which the leader
                    // stored this pointer, so it is the job of the latest `share` on this mailbox. `share`
                    // neither returns nor unwinds before `take_back` has seen the state leave `RUNNING` and
                    // `AWAITED`, which only this thread does, after its last use of the job.
                    let job = unsafe { &*job };
                    job.run(self.number.load(Ordering::Relaxed));
                    if self.state.swap(IDLE, Ordering::AcqRel) == AWAITED {
                        self.futex.wake(&self.state);
                    }
                    spin_policy = SpinPolicy::new();
                }
                IDLE => {
                    let is_wanted =
                        is_roused || self.is_claimed.load(Ordering::Relaxed) || lingering.is_worth_it();
                    if is_wanted && spin_policy.lasts() {
                        nnhal_os::cpu::relax();
                        continue;
                    }
                    lingering.end();
                    is_roused = false;
                    // If this fails there is something to do.
                    let _ = self
                        .state
                        .compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
                }
                ASLEEP => {
                    self.futex.wait(&self.state, ASLEEP);
                    is_roused = self.state.load(Ordering::Relaxed) == IDLE;
                    spin_policy = SpinPolicy::new();
                }
                _ => {
                    self.state.store(VACANT, Ordering::Release);
                    return;
                }
            }
        }
    }
}

/// Takes the job back from all mailboxes that it may have been posted to.
struct Lent<'a> {
    mailboxes: &'a [Mailbox],
    chosen: u64,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        chosen(self.mailboxes, self.chosen).for_each(Mailbox::take_back);
    }
}

/// The mailboxes whose bits are set.
pub(super) fn chosen(mailboxes: &[Mailbox], bits: u64) -> impl Iterator<Item = &Mailbox> {
    let is_set = move |&(at, _): &(usize, &Mailbox)| bits >> at & 1 == 1;
    mailboxes
        .iter()
        .enumerate()
        .filter(is_set)
        .map(|(_, mailbox)| mailbox)
}

/// Has the calling thread do `lead`, and the helpers of the mailboxes in `bits`, which the caller has claimed
/// and which have helpers, `help(1)`, `help(2)` and so on, if they come in time. Returns when all who came
/// are done.
///
/// # Panics
/// If `lead` or `help` does.
pub(super) fn share(mailboxes: &[Mailbox], bits: u64, lead: impl FnOnce(), help: &(dyn Fn(usize) + Sync)) {
    let job = Job {
        work: help,
        panic: Mutex::new(None),
    };
    {
        let _lent = Lent {
            mailboxes,
            chosen: bits,
        };
        for (before, mailbox) in chosen(mailboxes, bits).enumerate() {
            mailbox.post(&job, before + 1);
        }
        lead();
    }
    let panic = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{ASLEEP, IDLE, Mailbox, Ordering, POSTED, RUNNING, VACANT};

    #[test]
    fn only_helpers_that_sleep_are_roused() {
        for (before, after) in [
            (ASLEEP, IDLE),
            (IDLE, IDLE),
            (POSTED, POSTED),
            (RUNNING, RUNNING),
            (VACANT, VACANT),
        ] {
            let mailbox = Mailbox::default();
            mailbox.state.store(before, Ordering::Relaxed);
            mailbox.rouse();
            assert_eq!(mailbox.state.load(Ordering::Relaxed), after);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Every interleaving of small sessions. Run with
    //! `RUSTFLAGS="--cfg loom" cargo test --release -p nnhal-cpu --lib threads:: --target-dir target/loom`.
    //!
    //! A lost wake-up shows as a deadlock, which loom reports; work that goes on after `share` has returned,
    //! as a count that changes.

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use super::{Mailbox, Occupation, share};

    fn model(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(run);
    }

    #[test]
    fn helper_is_woken_for_every_job_and_for_its_end() {
        model(|| {
            let mailboxes: Arc<[Mailbox; 1]> = Arc::new([Mailbox::default()]);
            assert_eq!(mailboxes[0].claim(), Some(Occupation::Nobody));
            mailboxes[0].expect_helper();
            let theirs = Arc::clone(&mailboxes);
            let helper = thread::spawn(move || theirs[0].serve());
            for _ in 0..2 {
                let done = AtomicUsize::new(0);
                mailboxes[0].rouse();
                share(&mailboxes[..], 1, &|_| {
                    done.fetch_add(1, Ordering::Relaxed);
                });
                let count = done.load(Ordering::Relaxed);
                assert!((1..=2).contains(&count));
                // Nobody is at work on it any more.
                thread::yield_now();
                assert_eq!(done.load(Ordering::Relaxed), count);
            }
            mailboxes[0].dismiss();
            mailboxes[0].release();
            helper.join().unwrap();
            assert_eq!(mailboxes[0].claim(), Some(Occupation::Nobody));
        });
    }

    #[test]
    fn what_helpers_wrote_is_seen() {
        model(|| {
            let mailboxes: Arc<[Mailbox; 1]> = Arc::new([Mailbox::default()]);
            mailboxes[0].claim();
            mailboxes[0].expect_helper();
            let theirs = Arc::clone(&mailboxes);
            let helper = thread::spawn(move || theirs[0].serve());
            let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
            struct Shared([loom::cell::UnsafeCell<usize>; 2]);
            let cells = Shared(cells);
            // SAFETY: each number's thread writes its own cell; loom checks that no access is concurrent with
            // another.
            #[allow(unsafe_code)]
            unsafe impl Sync for Shared {}
            let shared = &cells;
            share(&mailboxes[..], 1, &move |number| {
                // SAFETY: as above.
                #[allow(unsafe_code)]
                shared.0[number].with_mut(|cell| unsafe { *cell += 1 });
            });
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let sum: usize = cells
                .0
                .iter()
                .map(|cell| cell.with(|cell| unsafe { *cell }))
                .sum();
            assert!(sum >= 1);
            mailboxes[0].dismiss();
            helper.join().unwrap();
        });
    }
}
