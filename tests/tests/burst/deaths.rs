//! What bursts see when the driver's processes die, and what is left then.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{BurstOptions, Clock, Error, MonotonicClock, Remedy, Role, WaitSettings};
use nnhal_os::time::TimePoint;
use nnhal_tests::{DaemonOptions, TestDaemon, is_alive, wait_until};

use crate::common::{EMPTY, EXE, REFERENCE, add, open, prepare, start};

fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

fn kill_process(pid: u32) {
    send(Signal::SIGKILL, pid);
}

fn expect_death(error: &Error, worker: u32) {
    assert!(error.is_dead_object(), "{error}");
    assert_eq!(error.remedy(), Remedy::Reconnect);
    let process = error.process().unwrap();
    assert_eq!((process.role, process.pid), (Role::Worker, worker));
    let expected = format!("the driver's worker, process {worker}, was killed by SIGKILL");
    assert!(error.to_string().contains(&expected), "{error}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Times from the kill of a worker in the middle of an execution that never ends to the error of a burst that
/// waits like this.
fn times_to_notice(wait: WaitSettings) -> Vec<Duration> {
    let options = DaemonOptions {
        devices: vec![EMPTY.to_owned()],
        ..DaemonOptions::with_settings(&format!("[device.{EMPTY}]\nfault = \"loop\"\nafter = 1\n"))
    };
    let daemon = TestDaemon::start(EXE, &options);
    let time_one = || {
        let device = open(&daemon, EMPTY);
        let worker = device.worker().pid;
        let mut burst = prepare(&device, 1)
            .burst(&BurstOptions::new().wait(wait))
            .unwrap();
        add(&mut burst, 1.0).unwrap();
        let asked = AtomicBool::new(false);
        let noticed = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                asked.store(true, Ordering::SeqCst);
                let error = add(&mut burst, 1.0).unwrap_err();
                (error, MonotonicClock.now())
            });
            wait_until("the execution is asked for", || asked.load(Ordering::SeqCst));
            let killed = MonotonicClock.now();
            kill_process(worker);
            let (error, seen) = waiting.join().unwrap();
            expect_death(&error, worker);
            seen.saturating_since(killed)
        });
        // Every later execution has the same error at once.
        expect_death(&add(&mut burst, 1.0).unwrap_err(), worker);
        noticed
    };
    (0..5).map(|_| time_one()).collect()
}

#[test]
fn killed_worker_is_noticed_in_50_ms_by_who_polls() {
    let window = Duration::from_secs(60);
    let noticed = median(times_to_notice(WaitSettings::Fixed { window }));
    assert!(noticed < Duration::from_millis(50), "{noticed:?}");
}

#[test]
fn killed_worker_is_noticed_in_50_ms_by_who_sleeps() {
    let noticed = median(times_to_notice(WaitSettings::Sleep));
    assert!(noticed < Duration::from_millis(50), "{noticed:?}");
}

#[test]
fn killed_worker_leaves_the_other_client_alone_and_nothing_behind() {
    let mut daemon = start();
    let (victim, other) = (open(&daemon, REFERENCE), open(&daemon, REFERENCE));
    let mut doomed = prepare(&victim, 1).burst(&BurstOptions::new()).unwrap();
    let mut sound = prepare(&other, 1).burst(&BurstOptions::new()).unwrap();
    let (worker, other_worker) = (victim.worker().pid, other.worker().pid);
    let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut shared = HashSet::new();
    let noticed = std::thread::scope(|scope| {
        let doomed = scope.spawn(|| -> (Error, TimePoint) {
            let mut value = 0.0;
            loop {
                match add(&mut doomed, value) {
                    Ok(sum) => assert_eq!(sum, value + 1.0),
                    Err(error) => return (error, MonotonicClock.now()),
                }
                value += 1.0;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut value = 0.0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(add(&mut sound, value).unwrap(), value + 1.0);
                value += 1.0;
            }
            assert_eq!(add(&mut sound, 7.0).unwrap(), 8.0);
        });
        wait_until("the burst is in its middle", || {
            rounds.load(Ordering::Relaxed) > 100
        });
        shared.extend(shared_memories_of(worker));
        shared.extend(shared_memories_of(other_worker));
        let killed = MonotonicClock.now();
        kill_process(worker);
        let (error, seen) = doomed.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        expect_death(&error, worker);
        seen.saturating_since(killed)
    });
    assert!(noticed < Duration::from_millis(50), "{noticed:?}");

    assert!(shared.len() >= 2, "each burst has its rings");
    drop((doomed, victim));
    drop((sound, other));
    wait_until("both workers are gone", || {
        !is_alive(worker) && !is_alive(other_worker)
    });
    let directory = daemon.runtime_dir();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert_eq!(daemon.workers(), Vec::<u32>::new());
    assert!(
        !directory.exists(),
        "a private driver's directory goes with it, sockets and all"
    );
    assert!(
        shared.is_disjoint(&shared_memories_of(std::process::id())),
        "what the bursts shared is unmapped"
    );
}

/// The inodes of the memories that a process has mapped and could share.
fn shared_memories_of(pid: u32) -> HashSet<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:"))
        .map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap())
        .collect()
}

#[test]
fn killed_supervisor_disturbs_no_burst_and_leaves_no_process() {
    let daemon = start();
    let devices = [open(&daemon, REFERENCE), open(&daemon, REFERENCE)];
    let mut bursts = devices
        .each_ref()
        .map(|device| prepare(device, 1).burst(&BurstOptions::new()).unwrap());
    let workers = devices.each_ref().map(|device| device.worker().pid);
    let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for burst in &mut bursts {
            scope.spawn(|| {
                let mut value = 0.0;
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(add(burst, value).unwrap(), value + 1.0);
                    value += 1.0;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let after = |count: u64| rounds.load(Ordering::Relaxed) + count;
        let target = after(200);
        wait_until("the bursts are in their middle", || {
            rounds.load(Ordering::Relaxed) > target
        });
        kill_process(daemon.pid());
        wait_until("the supervisor is dead", || !is_alive(daemon.pid()));
        let target = after(200);
        wait_until("the bursts go on", || rounds.load(Ordering::Relaxed) > target);
        is_over.store(true, Ordering::Relaxed);
    });
    drop((bursts, devices));
    wait_until("the workers end with their clients", || {
        workers.iter().all(|worker| !is_alive(*worker))
    });
}

#[test]
fn signals_to_all_processes_of_the_driver_tear_no_work_off() {
    let mut daemon = start();
    let device = open(&daemon, REFERENCE);
    let mut burst = prepare(&device, 1).burst(&BurstOptions::new()).unwrap();
    let rounds = AtomicU64::new(0);
    let error = std::thread::scope(|scope| {
        let executing = scope.spawn(|| {
            let mut value = 0.0;
            loop {
                match add(&mut burst, value) {
                    Ok(sum) => assert_eq!(sum, value + 1.0),
                    Err(error) => return error,
                }
                value += 1.0;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let go_on = || {
            let target = rounds.load(Ordering::Relaxed) + 200;
            wait_until("the burst goes on", || {
                rounds.load(Ordering::Relaxed) > target || executing.is_finished()
            });
        };
        go_on();
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
            daemon
                .workers()
                .into_iter()
                .for_each(|worker| send(signal, worker));
            go_on();
            assert!(!executing.is_finished(), "{signal} ended the burst");
        }
        daemon.signal(Signal::SIGTERM);
        executing.join().unwrap()
    });
    assert!(daemon.wait().success());
    // Whether the worker or its end answers the request that comes too late is a matter of moments.
    let text = error.to_string();
    assert!(
        text.contains("burst execution") && text.contains("the driver is ending"),
        "{text}"
    );
    assert!(!text.contains("killed"), "{text}");
}
