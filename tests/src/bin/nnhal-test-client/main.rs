//! A client that makes every call of the protocol, step by step, for the suites that harm processes.
//!
//! `nnhal-test-client RUNTIME_DIR DEVICE CACHE_DIR [--told] [--brief] [--stays MILLISECONDS]`. It says on
//! standard output `at STEP` before each step and `done STEP MICROSECONDS` or `failed STEP MICROSECONDS TEXT`
//! after it, `worker PID` when it has one, and at its end `kept FDS MAPS`: how many descriptors and shared
//! mappings it has more than at its beginning. With `--told` it waits before each step for a line on standard
//! input. With `--brief` each step executes once. With `--stays` it says `worker PID`; then it waits for a
//! line, executes by a burst for so long, and says `latency MICROSECONDS`, the 99th percentile of its
//! executions, again and again. A wrong result is a panic.

#![forbid(unsafe_code)]

mod dialogue;
mod session;
mod stay;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{fds_of, shared_mappings};
use signal_hook::consts::SIGCHLD;

use crate::dialogue::{is_allowed, say};
use crate::session::{STEPS, Session, TIMES};

/// How long it may take, once all is dropped, until nothing is left.
const LETS_GO_WITHIN: Duration = Duration::from_secs(5);

fn main() {
    // With a handler, a signal that comes while a thread waits with a limit ends the wait.
    let noticed = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGCHLD, noticed).expect("a handler for SIGCHLD");
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [runtime_dir, device, cache, how @ ..] = &arguments[..] else {
        panic!("nnhal-test-client RUNTIME_DIR DEVICE CACHE_DIR [--told] [--brief] [--stays MILLISECONDS]");
    };
    let [is_told, is_brief] = ["--told", "--brief"].map(|word| how.iter().any(|how| how == word));
    let device = device.to_str().expect("a device's name");
    if let Some(at) = how.iter().position(|word| word == "--stays") {
        let period = how.get(at + 1).and_then(|period| period.to_str()?.parse().ok());
        let period = Duration::from_millis(period.expect("milliseconds"));
        return stay::run(Path::new(runtime_dir), device, period);
    }
    let times = if is_brief { 1 } else { TIMES };
    let mut session = Session::new(PathBuf::from(runtime_dir), device, PathBuf::from(cache), times);
    let this = std::process::id();
    let mappings = shared_mappings(this);
    let fds = fds_of(this).max(fds_of(this));
    for (name, step) in STEPS {
        say(&format!("at {name}"));
        if is_told && !is_allowed() {
            return;
        }
        let since = MonotonicClock.now();
        let outcome = step(&mut session);
        let micros = MonotonicClock.now().saturating_since(since).as_micros();
        match outcome {
            Ok(()) => say(&format!("done {name} {micros}")),
            Err(text) => say(&format!("failed {name} {micros} {}", text.replace('\n', " "))),
        }
        if let Some(pid) = session.worker() {
            say(&format!("worker {pid}"));
        }
    }
    drop(session);
    let kept = || {
        // One of both readings may be wrong where system calls are made to fail.
        let fds = fds_of(this).min(fds_of(this)).saturating_sub(fds);
        (fds, shared_mappings(this).saturating_sub(mappings))
    };
    // A thread that finishes what its connection has left is waited for by nobody.
    let deadline = Deadline::after(MonotonicClock.now(), LETS_GO_WITHIN);
    let (fds, mappings) = loop {
        let found = kept();
        if found == (0, 0) || deadline.is_past(MonotonicClock.now()) {
            break found;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    };
    say(&format!("kept {fds} {mappings}"));
}
