//! Clients of a driver that lies (T44): no crash, and no wait without an end. Each kind of client runs in a
//! process of its own.
//!
//! `NNHAL_HOSTILE` says how many messages and states of rings are spoilt, in all; a few thousand without it.
//! `NNHAL_HOSTILE_SEED` is the first case.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nnhal_os::pidfd;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// What is spoilt without the variable, by each kind.
const FEW: u64 = 600;

/// How many are spoilt in a second at least, on a machine that has much else to do.
const SLOWEST: u64 = 5;

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

/// Runs a kind of client whose part of the whole is a hundredth so many times.
fn survive(kind: &str, percent: u64, library: Option<&Path>) {
    let count = number("NNHAL_HOSTILE").map_or(FEW, |all| (all * percent).div_ceil(100));
    let seed = number("NNHAL_HOSTILE_SEED").unwrap_or(1);
    let directory = tempfile::tempdir().unwrap();
    let running = directory.path().join("running");
    let mut child = Command::new(env!("CARGO_BIN_EXE_nnhal-test-hostile"))
        .args([kind, &seed.to_string(), &count.to_string()])
        .arg(&running)
        .args(library)
        .env("NNHAL_RUNTIME_DIR", directory.path())
        .env("NNHAL_CALL_TIMEOUT_MS", "100")
        .env("NNHAL_WORK_TIMEOUT_MS", "100")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let limit = Duration::from_secs(60 + count / SLOWEST);
    let process = pidfd::open(child.id().cast_signed()).unwrap();
    let has_ended = pidfd::wait_for_end(&process, Deadline::after(MonotonicClock.now(), limit)).unwrap();
    if !has_ended {
        let _ = child.kill();
    }
    let output = child.wait_with_output().unwrap();
    let cases: Vec<u64> = std::fs::read(&running)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert!(
        has_ended && output.status.success(),
        "{kind}: {}; one of the cases {cases:?}; each alone: NNHAL_HOSTILE=1 NNHAL_HOSTILE_SEED=CASE",
        if has_ended {
            output.status.to_string()
        } else {
            "did not end".to_owned()
        }
    );
    let said = String::from_utf8_lossy(&output.stdout);
    let (spoilt, asleep) = said.trim().split_once(' ').unwrap();
    let [spoilt, asleep] = [spoilt, asleep].map(|number| number.parse::<u64>().unwrap());
    println!(
        "{kind}: {spoilt} messages and states of rings were spoilt; {asleep} clients slept and were woken wrongly"
    );
    assert!(spoilt >= count);
    if kind == "rust" && number("NNHAL_HOSTILE_SEED").is_none() {
        assert!(asleep > 0, "no client has slept");
    }
}

#[test]
fn spoilt_messages_are_read_or_refused() {
    survive("messages", 45, None);
}

#[test]
fn rings_whose_words_are_overwritten_end_or_go_on() {
    survive("rings", 45, None);
}

#[test]
fn client_library_outlives_a_driver_that_lies() {
    survive("rust", 8, None);
}

#[test]
fn c_api_outlives_a_driver_that_lies() {
    // Names the crate, so that it is built.
    use neuralnetworks as _;
    let exe = std::env::current_exe().unwrap();
    survive("c", 2, Some(&exe.with_file_name("libneuralnetworks.so")));
}
