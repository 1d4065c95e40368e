//! What clients see when the driver's processes die: threats T17, T22, T23.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    BurstOptions, Clock, Deadline, Device, Devices, Error, ExecuteOptions, Input, Memory, Model,
    ModelBuilder, MonotonicClock, OperationType, Output, PrepareOptions, PreparedModel, Remedy, Request,
    Role, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, children_of, fds_of, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";
const EMPTY: &str = "nnhal-empty";

fn start() -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::default())
}

/// A device whose executions have this fault.
fn start_faulty(fault: &str) -> TestDaemon {
    let options = DaemonOptions {
        devices: vec![EMPTY.to_owned()],
        ..DaemonOptions::with_settings(&format!("[device.{EMPTY}]\nfault = {fault:?}\n"))
    };
    TestDaemon::start(EXE, &options)
}

fn open(daemon: &TestDaemon, name: &str) -> Device {
    Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(name)
        .unwrap()
}

fn add_model() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let y = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

fn prepare(device: &Device) -> PreparedModel {
    device.prepare(&add_model(), &PrepareOptions::new()).unwrap()
}

fn add(prepared: &PreparedModel, value: f32) -> Result<f32, Error> {
    let mut sum = [0.0_f32];
    prepared.run(
        &[Input::from(&[value])],
        &mut [Output::from(&mut sum)],
        &ExecuteOptions::new(),
    )?;
    Ok(sum[0])
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// Whether a process is in a system call that this one waits in, as opposed to running.
fn is_asleep(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

fn expect_death(error: &Error, worker: u32, how: &str) {
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.remedy(), Remedy::Reconnect);
    let process = error.process().unwrap();
    assert_eq!((process.role, process.pid), (Role::Worker, worker));
    let (error, process) = (
        error.to_string(),
        format!("the driver's worker, process {worker}, "),
    );
    assert!(error.contains(&process) && error.contains(how), "{error}");
}

/// Median time, over several deaths, from the kill to the error.
fn time_to_notice(daemon: &TestDaemon, how_many: usize, before: impl Fn(&Device)) -> Duration {
    let mut times = Vec::new();
    for _ in 0..how_many {
        let device = open(daemon, EMPTY);
        let prepared = prepare(&device);
        let worker = device.worker().pid;
        before(&device);
        let (error, noticed) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let error = add(&prepared, 1.0).unwrap_err();
                (error, MonotonicClock.now())
            });
            wait_until("the execution runs", || is_asleep(worker));
            let killed = MonotonicClock.now();
            signal(worker, Signal::SIGKILL);
            let (error, seen) = waiting.join().unwrap();
            (error, seen.saturating_since(killed))
        });
        expect_death(&error, worker, "was killed by SIGKILL");
        times.push(noticed);
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn killed_worker_is_noticed_at_once_and_named() {
    let daemon = start_faulty("loop");
    let median = time_to_notice(&daemon, 5, |_| ());
    assert!(median < Duration::from_millis(50), "{median:?}");
    wait_until("the workers are reaped", || daemon.workers().len() <= 1);
}

#[test]
fn killed_worker_is_noticed_while_its_supervisor_is_stopped() {
    let daemon = start_faulty("loop");
    let device = open(&daemon, EMPTY);
    let prepared = prepare(&device);
    let worker = device.worker().pid;
    let pending = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&prepared, 1.0));
        wait_until("the execution runs", || is_asleep(worker));
        signal(daemon.pid(), Signal::SIGSTOP);
        signal(worker, Signal::SIGKILL);
        waiting.join().unwrap()
    });
    signal(daemon.pid(), Signal::SIGCONT);
    let error = pending.unwrap_err();
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.process().unwrap().pid, worker);
}

#[test]
fn killed_worker_is_noticed_after_its_supervisor() {
    let daemon = start_faulty("loop");
    let device = open(&daemon, EMPTY);
    let prepared = prepare(&device);
    let worker = device.worker().pid;
    signal(daemon.pid(), Signal::SIGKILL);
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&prepared, 1.0).unwrap_err());
        signal(worker, Signal::SIGKILL);
        waiting.join().unwrap()
    });
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.process().unwrap().pid, worker);
}

#[test]
fn every_way_to_die_is_told() {
    for (fault, how) in [
        ("abort", "SIGABRT"),
        ("segfault", "was killed by SIGSEGV"),
        ("overflow", "SIGABRT"),
        ("exit", "exited with code 135"),
    ] {
        let daemon = start_faulty(fault);
        let device = open(&daemon, EMPTY);
        let worker = device.worker().pid;
        let error = add(&prepare(&device), 1.0).unwrap_err();
        expect_death(&error, worker, how);
        // Everything that is tried afterwards says the same.
        let error = device.status().unwrap_err();
        expect_death(&error, worker, how);
        expect_death(&device.ended().unwrap(), worker, how);
    }
}

/// A way to execute a request to its end.
type Way = fn(&PreparedModel, &Request, &ExecuteOptions) -> Result<(), Error>;

/// T17, whichever way the client executes.
#[test]
fn worker_that_hangs_is_ended_and_its_client_is_told() {
    let options = DaemonOptions {
        devices: vec![EMPTY.to_owned()],
        ..DaemonOptions::with_settings(&format!(
            "[execution]\nhang_limit_ms = 50\n[device.{EMPTY}]\nfault = \"hang\"\n"
        ))
    };
    let daemon = TestDaemon::start(EXE, &options);
    let other = open(&daemon, EMPTY);
    let memory = Memory::new(8).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
    let options = ExecuteOptions::new();
    let ways: [Way; 4] = [
        |prepared, request, options| prepared.execute(request, options).map(drop),
        |prepared, request, options| prepared.start(request, options)?.wait(Deadline::NONE).map(drop),
        |prepared, request, options| {
            let launched = prepared.execute_fenced(request, &[], options)?;
            launched.wait(Deadline::NONE).map(drop)
        },
        |prepared, request, options| {
            let mut burst = prepared.burst(&BurstOptions::new())?;
            burst.execute(request, options).map(drop)
        },
    ];
    for (number, way) in ways.iter().enumerate() {
        let device = open(&daemon, EMPTY);
        let prepared = prepare(&device);
        let worker = device.worker().pid;
        let started = MonotonicClock.now();
        let error = way(&prepared, &request, &options).unwrap_err();
        let noticed = MonotonicClock.now().saturating_since(started);
        assert!(error.is_dead_object(), "way {number}: {error}");
        assert_eq!(error.process().map(|process| process.pid), Some(worker));
        assert!(error.to_string().contains("watchdog"), "way {number}: {error}");
        assert!(noticed < Duration::from_secs(10), "way {number}: {noticed:?}");
        other.status().unwrap();
        let again = device.reopen().unwrap();
        again.status().unwrap();
    }
}

#[test]
fn panicking_device_fails_the_call_or_ends_its_worker_and_no_other() {
    let daemon = start_faulty("panic");
    let device = open(&daemon, EMPTY);
    let other = open(&daemon, EMPTY);
    let error = add(&prepare(&device), 1.0).unwrap_err();
    assert!(error.is_dead_object() || error.failure().is_some(), "{error}");
    other.status().unwrap();
}

#[test]
fn all_that_waits_is_told_and_what_is_opened_anew_works() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device);
    let memory = Memory::new(8).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
    prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    let worker = device.worker().pid;
    signal(worker, Signal::SIGKILL);
    let error = loop {
        if let Err(error) = prepared.execute(&request, &ExecuteOptions::new()) {
            break error;
        }
    };
    expect_death(&error, worker, "was killed by SIGKILL");
    let again = device.reopen().unwrap();
    assert_ne!(again.worker().pid, worker);
    let prepared = prepare(&again);
    // The memory is told to the new worker as it was to the old one.
    prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(memory.read::<f32>(4, 1).unwrap(), [1.0]);
}

#[test]
fn death_of_one_worker_leaves_other_clients_alone_and_nothing_behind() {
    let daemon = start();
    let (victim, other) = (open(&daemon, REFERENCE), open(&daemon, REFERENCE));
    let (doomed, sound) = (prepare(&victim), prepare(&other));
    let supervisor_fds = fds_of(daemon.pid());
    let is_over = AtomicBool::new(false);
    let worker = victim.worker().pid;
    std::thread::scope(|scope| {
        let doomed = scope.spawn(|| {
            let mut round = 0.0;
            let error = loop {
                match add(&doomed, round) {
                    Ok(sum) => assert_eq!(sum, round + 1.0),
                    Err(error) => break error,
                }
                round += 1.0;
            };
            is_over.store(true, Ordering::SeqCst);
            error
        });
        scope.spawn(|| {
            let mut round = 0.0;
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(add(&sound, round).unwrap(), round + 1.0);
                round += 1.0;
            }
            assert_eq!(add(&sound, 7.0).unwrap(), 8.0);
        });
        let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(30));
        wait_until("both have run for a while", || soon.is_past(MonotonicClock.now()));
        signal(worker, Signal::SIGKILL);
        expect_death(&doomed.join().unwrap(), worker, "was killed by SIGKILL");
    });
    drop((doomed, victim));
    wait_until("the worker is reaped and its descriptors closed", || {
        !children_of(daemon.pid()).contains(&worker) && fds_of(daemon.pid()) <= supervisor_fds
    });
    drop((sound, other));
    wait_until("no worker serves anybody", || daemon.workers().len() <= 1);
}

#[test]
fn death_of_the_supervisor_disturbs_neither_client_nor_worker() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device);
    assert_eq!(add(&prepared, 1.0).unwrap(), 2.0);
    signal(daemon.pid(), Signal::SIGKILL);
    wait_until("the supervisor is dead", || !is_alive(daemon.pid()));
    assert_eq!(add(&prepared, 2.0).unwrap(), 3.0);
    assert_eq!(add(&prepare(&device), 3.0).unwrap(), 4.0);
    let worker = device.worker().pid;
    drop((prepared, device));
    wait_until("the worker ends with its client", || !is_alive(worker));
}

#[test]
fn supervisor_that_is_dead_cannot_be_connected_to() {
    let mut daemon = start();
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    signal(daemon.pid(), Signal::SIGKILL);
    let _ = daemon.wait();
    let error = devices.device(REFERENCE).unwrap_err();
    assert!(error.to_string().contains("nobody listens"), "{error}");
    assert!(devices.names().unwrap().is_empty());
}
