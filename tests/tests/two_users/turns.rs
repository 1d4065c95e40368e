//! Users who connect at the same time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nnhal::wire::directory;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, RawClient, SetOnDrop, TIMEOUT, TestDaemon};

use crate::common::{EXE, NOBODY, again_as, is_root, part, set_mode};

const TEST: &str = "turns::clients_that_hold_their_connections_keep_no_other_user_waiting";
const DEVICE: &str = "nnhal-reference";
const HELD: usize = 60;

/// What the process of the other user is told to do, and where.
const HOLD: &str = "hold ";
const HANG_UP: &str = "hang up ";

/// So often a user connects whose waits are measured.
const CONNECTS: usize = 9;

#[test]
fn clients_that_hold_their_connections_keep_no_other_user_waiting() {
    match part() {
        None => other_user_is_served(),
        Some(what) => match what.strip_prefix(HOLD) {
            Some(runtime_dir) => hold(Path::new(runtime_dir)),
            None => hang_up(Path::new(what.strip_prefix(HANG_UP).unwrap())),
        },
    }
}

/// Connects many times, and says nothing until it is told to end.
fn hold(runtime_dir: &Path) {
    let path = directory::socket_path(runtime_dir, DEVICE);
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    let held: Vec<_> = (0..HELD)
        .map(|_| Connection::connect(&path, deadline).unwrap())
        .collect();
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
}

/// Connects and hangs up as fast as it can until it is told to end.
fn hang_up(runtime_dir: &Path) {
    let path = directory::socket_path(runtime_dir, DEVICE);
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = SetOnDrop(&is_over);
            let _ = std::io::stdin().read(&mut [0]);
        });
        let mut count = 0_u64;
        while !is_over.load(Ordering::Relaxed) {
            // It may be refused for having too many.
            drop(Connection::connect(&path, deadline));
            count += 1;
            if count == HELD as u64 {
                println!("held");
            }
        }
    });
}

/// A process of another user, which does something.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

/// Has another user do something, and waits until that has begun.
fn begin(what: &str, runtime_dir: &Path) -> Other {
    let part = format!("{what}{}", runtime_dir.display());
    let mut child = again_as(NOBODY, TEST, &part)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("held\n") {
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "{line}");
    }
    Other { child, said }
}

fn end(mut other: Other) {
    drop(other.child.stdin.take());
    let mut rest = String::new();
    other.said.read_to_string(&mut rest).unwrap();
    assert!(other.child.wait().unwrap().success(), "{rest}");
}

/// How long a client of this user waits until it is served: the median of several.
fn wait_of_a_client(runtime_dir: &Path) -> Duration {
    let mut waits: Vec<_> = (0..CONNECTS)
        .map(|_| {
            let since = MonotonicClock.now();
            drop(RawClient::connect(runtime_dir, DEVICE));
            MonotonicClock.now().saturating_since(since)
        })
        .collect();
    waits.sort_unstable();
    waits[CONNECTS / 2]
}

fn other_user_is_served() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o755);
    let runtime_dir = directory.path().join("run");
    let settings = "[clients]\nother_users = true\n[workers]\nhello_timeout_ms = 60000\n";
    let daemon = TestDaemon::start_in(&runtime_dir, EXE, &DaemonOptions::with_settings(settings));
    let alone = wait_of_a_client(&runtime_dir);
    let holder = begin(HOLD, &runtime_dir);
    let _client = RawClient::connect(&runtime_dir, DEVICE);
    let workers = daemon.workers().len();
    assert!(workers < HELD, "it was served after {workers}");
    let beside_held = wait_of_a_client(&runtime_dir);
    end(holder);
    let other = begin(HANG_UP, &runtime_dir);
    let beside_hung_up = wait_of_a_client(&runtime_dir);
    end(other);
    println!(
        "a client waits {alone:?}; beside {HELD} connections of another user {beside_held:?}, beside one that connects \
         and hangs up {beside_hung_up:?}"
    );
}
