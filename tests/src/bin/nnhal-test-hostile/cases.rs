//! Cases, one after the other on each thread, and whoever notices that one does not end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal_os::poll;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

/// How long a call, and work, may take for these clients.
pub(crate) const LIMIT: Duration = Duration::from_millis(100);

/// How long a case may take, which makes some dozens of calls: what takes longer has hung.
const CASE_LIMIT: Duration = Duration::from_secs(30);

/// The case that a thread runs.
#[derive(Default)]
struct Running {
    seed: AtomicU64,
    /// When it began; 0 if none runs.
    since: AtomicU64,
}

/// What the threads have in common.
pub(crate) struct Cases {
    next: AtomicU64,
    spoilt: AtomicU64,
    wanted: u64,
    file: File,
    running: Vec<Running>,
}

impl Cases {
    /// Cases from a seed on, until so much is spoilt, on so many threads. The file has those that run.
    pub(crate) fn new(seed: u64, wanted: u64, file: File, threads: usize) -> Cases {
        Cases {
            next: AtomicU64::new(seed),
            spoilt: AtomicU64::new(0),
            wanted,
            file,
            running: (0..threads).map(|_| Running::default()).collect(),
        }
    }

    /// How much has been spoilt.
    pub(crate) fn spoilt(&self) -> u64 {
        self.spoilt.load(Ordering::Relaxed)
    }

    /// Runs cases on this thread, one after the other; each returns how much it has spoilt.
    pub(crate) fn run(&self, thread: usize, mut case: impl FnMut(u64) -> u64) {
        let running = &self.running[thread];
        while self.spoilt.load(Ordering::Relaxed) < self.wanted {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            self.file
                .write_all_at(&seed.to_le_bytes(), thread as u64 * 8)
                .expect("a file");
            running.seed.store(seed, Ordering::Relaxed);
            running
                .since
                .store(MonotonicClock.now().as_nanos(), Ordering::Release);
            let spoilt = case(seed);
            running.since.store(0, Ordering::Release);
            self.spoilt.fetch_add(spoilt, Ordering::Relaxed);
        }
    }

    /// Aborts the process if a case does not end, until `over` is rung.
    pub(crate) fn watch(&self, over: &impl std::os::fd::AsFd) {
        loop {
            let tick = Deadline::after(MonotonicClock.now(), Duration::from_millis(200));
            if !poll::one(over, PollFlags::POLLIN, tick)
                .expect("an eventfd")
                .is_empty()
            {
                return;
            }
            for running in &self.running {
                let since = running.since.load(Ordering::Acquire);
                let limit = Deadline::after(TimePoint::from_nanos(since), CASE_LIMIT);
                if since != 0 && limit.is_past(MonotonicClock.now()) {
                    let seed = running.seed.load(Ordering::Relaxed);
                    eprintln!("case {seed} did not end in {} s", CASE_LIMIT.as_secs());
                    std::process::abort();
                }
            }
        }
    }
}
