//! Users who connect at the same time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use nnhal::wire::directory;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_tests::{DaemonOptions, RawClient, TIMEOUT, TestDaemon};

use crate::common::{EXE, NOBODY, again_as, is_root, part, set_mode};

const TEST: &str = "turns::clients_that_hold_their_connections_keep_no_other_user_waiting";
const DEVICE: &str = "nnhal-reference";
const HELD: usize = 60;

#[test]
fn clients_that_hold_their_connections_keep_no_other_user_waiting() {
    match part() {
        None => other_user_is_served(),
        Some(runtime_dir) => hold(Path::new(&runtime_dir)),
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

fn other_user_is_served() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o755);
    let runtime_dir = directory.path().join("run");
    let settings = "[clients]\nother_users = true\n[workers]\nhello_timeout_ms = 60000\n";
    let daemon = TestDaemon::start_in(&runtime_dir, EXE, &DaemonOptions::with_settings(settings));
    let mut holder = again_as(NOBODY, TEST, runtime_dir.to_str().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("held\n") {
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "{line}");
    }
    let _client = RawClient::connect(&runtime_dir, DEVICE);
    let workers = daemon.workers().len();
    assert!(workers < HELD, "it was served after {workers}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}
