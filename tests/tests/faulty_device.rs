//! Work on a device that crashes, hangs or does not end: how the driver ends it, and whom it tells.

use nnhal::wire::{Call, Execute, Message, Reply};
use nnhal_hal::ErrorStatus;
use nnhal_os::time::{Clock, MonotonicClock};
use nnhal_tests::{
    DaemonOptions, RawClient, TestDaemon, add_execution, add_model, is_alive, shared_floats, wait_until,
};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

fn start_empty(settings: &str) -> TestDaemon {
    let devices = vec!["nnhal-empty".to_owned()];
    TestDaemon::start(
        EXE,
        &DaemonOptions {
            devices,
            ..DaemonOptions::with_settings(settings)
        },
    )
}

#[test]
fn crash_of_a_device_is_told_with_its_signal() {
    let faults = [
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("overflow", "SIGABRT"),
        ("exit", "exited with code 135"),
        ("panic", "told to panic"),
    ];
    for (fault, mention) in faults {
        let daemon = start_empty(&format!("[device.nnhal-empty]\nprepare = {fault:?}\n"));
        let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
        client
            .send(Call::PrepareModel(Box::new(add_model(1))), &[])
            .unwrap();
        let last = client.drain().pop().expect("how the worker ended");
        let Message::WorkerExit(worker_exit) = last else {
            panic!("{last:?}")
        };
        assert!(worker_exit.to_string().contains(mention), "{worker_exit}");
    }
}

#[test]
fn device_that_hangs_is_ended_by_the_watchdog() {
    let daemon =
        start_empty("[execution]\nhang_limit_ms = 50\n[device.nnhal-empty]\nfault = \"hang\"\nafter = 1\n");
    let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
    let (memory, _mapping) = shared_floats(&[0.0; 3]);
    let handle = client.register(&memory);
    let prepared_model = client.prepare(add_model(1)).unwrap();
    let execute = add_execution(prepared_model, handle, 1);
    assert!(client.call(Call::Execute(execute.clone()), &[]).is_ok());
    client.send(Call::Execute(execute), &[]).unwrap();
    let messages = client.drain();
    let is_told = |message: &Message| match message {
        Message::Goodbye { reason } => reason.contains("watchdog"),
        Message::WorkerExit(worker_exit) => worker_exit.last_words.contains("watchdog"),
        _ => false,
    };
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages.iter().all(is_told), "{messages:?}");
}

#[test]
fn client_that_goes_while_its_work_hangs_leaves_no_worker() {
    let daemon = start_empty("[execution]\nhang_limit_ms = 0\n[device.nnhal-empty]\nprepare = \"hang\"\n");
    let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
    client
        .send(Call::PrepareModel(Box::new(add_model(1))), &[])
        .unwrap();
    let worker = client.welcome.worker_pid;
    assert!(matches!(
        client.receive().unwrap().0,
        Message::Reply {
            result: Ok(Reply::Launched),
            ..
        }
    ));
    drop(client);
    wait_until("the worker is gone", || !is_alive(worker));
}

#[test]
fn work_that_is_cancelled_ends_with_a_failure_that_says_so() {
    let daemon = start_empty("[device.nnhal-empty]\nfault = \"loop\"\n");
    let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
    let (memory, _mapping) = shared_floats(&[0.0; 3]);
    let handle = client.register(&memory);
    let prepared_model = client.prepare(add_model(1)).unwrap();
    let id = client
        .send(Call::Execute(add_execution(prepared_model, handle, 1)), &[])
        .unwrap();
    // The first may come before the work has begun.
    let result = loop {
        client.send(Call::Cancel { id }, &[]).unwrap();
        match client.receive().unwrap().0 {
            Message::Reply { id: answered, result } if answered == id => break result,
            _ => {}
        }
    };
    let Ok(Reply::Executed(result)) = result else {
        panic!("{result:?}")
    };
    let failure = result.outcome.unwrap_err();
    assert_eq!(failure.status, ErrorStatus::GeneralFailure);
    assert!(failure.detail.contains("cancelled"), "{failure}");
}

#[test]
fn deadline_ends_work_that_does_not() {
    let daemon = start_empty("[device.nnhal-empty]\nfault = \"loop\"\n");
    let mut client = RawClient::connect(&daemon.runtime_dir(), "nnhal-empty");
    let (memory, _mapping) = shared_floats(&[0.0; 3]);
    let handle = client.register(&memory);
    let prepared_model = client.prepare(add_model(1)).unwrap();
    let mut status_with = |deadline_ns| {
        let execute = Execute {
            deadline_ns: Some(deadline_ns),
            ..add_execution(prepared_model, handle, 1)
        };
        let reply = client.call(Call::Execute(execute), &[]).unwrap();
        let Reply::Executed(result) = reply else {
            panic!("{reply:?}")
        };
        result.status()
    };
    let now = MonotonicClock.now().as_nanos();
    assert_eq!(status_with(now), ErrorStatus::MissedDeadlinePersistent);
    assert_eq!(
        status_with(now + 20_000_000),
        ErrorStatus::MissedDeadlineTransient
    );
}
