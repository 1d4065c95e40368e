//! Devices that come and go, as their clients see it.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nnhal_client::{Clock, Deadline, DeviceChange, DeviceWatch, Devices, ErrorKind, MonotonicClock};
use nnhal_os::fork::run_in_copy;
use nnhal_os::poll;
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const VENDOR_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-vendor-driver");

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

fn now() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::ZERO)
}

fn came(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("+{name}")).collect()
}

fn went(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("-{name}")).collect()
}

/// The next changes, this many; their order is the drivers' business.
fn changes(watch: &mut DeviceWatch, count: usize) -> BTreeSet<String> {
    let mut next = || match watch.wait(default_deadline()).unwrap() {
        Some(DeviceChange::Came(name)) => format!("+{name}"),
        Some(DeviceChange::Went(name)) => format!("-{name}"),
        None => panic!("nothing changed"),
    };
    (0..count).map(|_| next()).collect()
}

fn options(device: &str) -> DaemonOptions {
    DaemonOptions {
        devices: vec![device.to_owned()],
        ..DaemonOptions::default()
    }
}

const OURS: [&str; 2] = ["nnhal-cpu", "nnhal-reference"];
const THEIRS: [&str; 4] = [
    vendor_driver::ARITHMETIC,
    vendor_driver::EVERYTHING,
    vendor_driver::FIBONACCI,
    vendor_driver::QUEUE,
];

#[test]
fn drivers_come_and_go_in_a_directory_that_was_not_there() {
    let above = tempfile::tempdir().unwrap();
    let runtime_dir = above.path().join("not").join("yet");
    let mut watch = Devices::open_in(&runtime_dir).unwrap().watch().unwrap();
    assert_eq!(watch.wait(now()).unwrap(), None);

    let mut ours = TestDaemon::start_in(&runtime_dir, EXE, &DaemonOptions::default());
    assert_eq!(changes(&mut watch, 2), came(&OURS));
    let theirs = TestDaemon::start_in(&runtime_dir, VENDOR_EXE, &DaemonOptions::default());
    assert_eq!(changes(&mut watch, THEIRS.len()), came(&THEIRS));
    assert_eq!(watch.wait(now()).unwrap(), None);

    // Who watches later is told what there is.
    let mut second = Devices::open_in(&runtime_dir).unwrap().watch().unwrap();
    let all = [OURS.as_slice(), THEIRS.as_slice()].concat();
    assert_eq!(changes(&mut second, all.len()), came(&all));

    // One is killed, which leaves its sockets behind; the other ends in order and takes them away.
    drop(theirs);
    assert_eq!(changes(&mut watch, THEIRS.len()), went(&THEIRS));
    ours.signal(Signal::SIGTERM);
    assert!(ours.wait().success());
    assert_eq!(changes(&mut watch, 2), went(&OURS));
    assert_eq!(changes(&mut second, all.len()).len(), all.len());
}

#[test]
fn driver_started_anew_counts_as_gone_and_come_and_says_the_same_of_itself() {
    let above = tempfile::tempdir().unwrap();
    let runtime_dir = above.path().join("run");
    let devices = Devices::open_in(&runtime_dir).unwrap();
    let first = TestDaemon::start_in(&runtime_dir, EXE, &DaemonOptions::default());
    let mut watch = devices.watch().unwrap();
    assert_eq!(changes(&mut watch, 2), came(&OURS));
    let before = devices.list().unwrap();
    drop(first);
    let _second = TestDaemon::start_in(&runtime_dir, EXE, &DaemonOptions::default());
    let both = went(&OURS).union(&came(&OURS)).cloned().collect();
    assert_eq!(changes(&mut watch, 4), both);
    assert_eq!(devices.list().unwrap(), before);
}

#[test]
fn descriptor_is_readable_while_there_are_changes() {
    let above = tempfile::tempdir().unwrap();
    let runtime_dir = above.path().join("run");
    let mut watch = Devices::open_in(&runtime_dir).unwrap().watch().unwrap();
    let wait_until_readable = |watch: &DeviceWatch| {
        let ready = poll::one(watch.as_fd(), nix::poll::PollFlags::POLLIN, default_deadline()).unwrap();
        assert!(!ready.is_empty());
    };
    let _daemon = TestDaemon::start_in(&runtime_dir, VENDOR_EXE, &DaemonOptions::default());
    for _ in THEIRS {
        let change = loop {
            // What is no device makes it readable as well.
            wait_until_readable(&watch);
            if let Some(change) = watch.wait(now()).unwrap() {
                break change;
            }
        };
        assert!(matches!(change, DeviceChange::Came(_)), "{change:?}");
    }
    assert_eq!(watch.wait(now()).unwrap(), None);
}

#[test]
fn wait_ends_with_its_deadline() {
    let daemon = TestDaemon::start(EXE, &options("nnhal-reference"));
    let mut watch = Devices::open_in(daemon.runtime_dir()).unwrap().watch().unwrap();
    assert_eq!(changes(&mut watch, 1), came(&["nnhal-reference"]));
    let deadline = Deadline::after(MonotonicClock.now(), Duration::from_millis(20));
    assert_eq!(watch.wait(deadline).unwrap(), None);
    assert!(deadline.is_past(MonotonicClock.now()));
}

#[test]
fn watch_refuses_to_work_in_a_fork() {
    let daemon = TestDaemon::start(EXE, &options("nnhal-reference"));
    let mut watch = Devices::open_in(daemon.runtime_dir()).unwrap().watch().unwrap();
    let status = run_in_copy(|| match watch.wait(now()) {
        Err(error) if matches!(error.kind(), ErrorKind::Forked) => 0,
        _ => 1,
    });
    assert!(matches!(status.unwrap(), WaitStatus::Exited(_, 0)));
    assert_eq!(changes(&mut watch, 1), came(&["nnhal-reference"]));
}
