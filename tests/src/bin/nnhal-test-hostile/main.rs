//! Clients of a driver that lies, in a process of their own, which may crash or hang.
//!
//!     nnhal-test-hostile messages|rings|rust SEED COUNT FILE
//!     nnhal-test-hostile c SEED COUNT FILE LIBRARY
//!
//! It runs cases from SEED on until COUNT messages and states of rings were spoilt, and prints how many that
//! were. FILE always has the cases that are running, eight bytes each. A case that does not end in time is
//! told, and the process aborts.

mod c_api;
mod rust_api;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, poll};
use nnhal_tests::hostile_driver::{HostileDriver, single};

/// How long a call, and work, may take for these clients.
pub(crate) const LIMIT: Duration = Duration::from_millis(100);

/// How long a case may take, which makes some dozens of calls: what takes longer has hung.
const CASE_LIMIT: Duration = Duration::from_secs(30);

/// How many cases run at once: most of them wait most of the time.
const THREADS: usize = 8;

/// Messages and states of one case without sockets.
const SINGLES: u64 = 200;

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
    fn watch(&self, over: &impl std::os::fd::AsFd) {
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

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seed, wanted, file, rest @ ..] = &arguments[..] else {
        panic!("nnhal-test-hostile KIND SEED COUNT FILE [LIBRARY]");
    };
    let threads = if kind == "rust" { THREADS } else { 1 };
    let cases = Cases {
        next: AtomicU64::new(seed.parse().expect("a seed")),
        spoilt: AtomicU64::new(0),
        wanted: wanted.parse().expect("a count"),
        file: File::create(file).expect("a file"),
        running: (0..threads).map(|_| Running::default()).collect(),
    };
    let over = eventfd::create().expect("an eventfd");
    std::thread::scope(|scope| {
        scope.spawn(|| cases.watch(&over));
        match (kind.as_str(), rest) {
            ("messages", []) => cases.run(0, |seed| {
                single::read_messages(seed, SINGLES);
                SINGLES
            }),
            ("rings", []) => cases.run(0, |seed| {
                single::use_rings(seed, SINGLES);
                SINGLES
            }),
            ("rust", []) => std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let cases = &cases;
                    scope.spawn(move || rust_cases(cases, thread));
                }
            }),
            ("c", [library]) => c_api::run(&cases, Path::new(library)),
            _ => panic!("no such kind of cases"),
        }
        eventfd::add(&over, 1).expect("an eventfd");
    });
    println!("{}", cases.spoilt.load(Ordering::Relaxed));
}

/// Clients of a driver of this thread's own.
fn rust_cases(cases: &Cases, thread: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let driver = HostileDriver::start(directory.path(), 0, 0);
    cases.run(thread, |seed| {
        let before = driver.spoilt();
        driver.begin_case(seed);
        rust_api::run(seed, directory.path());
        driver.spoilt() - before
    });
}
