//! Executions by several threads: as many as preference, setting and other clients leave, all of which are
//! gone when nobody needs them.
//!
//! The daemons here have two processors, however many there are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    BurstOptions, Deadline, Device, Devices, ExecuteOptions, ExecutionPreference, Memory, ModelBuilder,
    OperationType, PrepareOptions, PreparedModel, Priority, Request, TensorType,
};
use nnhal_os::sched::{NICE, allowed_cpus};
use nnhal_tests::{DaemonOptions, TestDaemon, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const EXTENT: u32 = 56;
const CHANNELS: u32 = 64;
const BYTES: u64 = (EXTENT * EXTENT * CHANNELS) as u64 * 4;

/// A daemon on two processors; none, with a note, where there are not so many.
fn start(settings: &str) -> Option<TestDaemon> {
    let allowed = allowed_cpus().unwrap();
    let [first, second, ..] = allowed[..] else {
        println!("SKIPPED: a single processor has no use for helpers");
        return None;
    };
    let options = DaemonOptions {
        devices: vec!["nnhal-cpu".to_owned()],
        ..DaemonOptions::with_settings(settings)
    };
    // A thread of its own, so that the test harness keeps its affinity.
    let started = std::thread::spawn(move || {
        let mut two = CpuSet::new();
        two.set(first).unwrap();
        two.set(second).unwrap();
        sched_setaffinity(Pid::from_raw(0), &two).unwrap();
        TestDaemon::start(EXE, &options)
    });
    Some(started.join().unwrap())
}

/// A client, with a model of so many convolutions in a row, each large enough for helpers.
struct Client {
    device: Device,
    prepared: PreparedModel,
    memory: Memory,
}

impl Client {
    fn new(daemon: &TestDaemon, layers: usize, preference: ExecutionPreference) -> Client {
        Client::with(daemon, layers, &PrepareOptions::new().preference(preference))
    }

    fn with(daemon: &TestDaemon, layers: usize, options: &PrepareOptions) -> Client {
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device("nnhal-cpu")
            .unwrap();
        let image = TensorType::float32(&[1, EXTENT, EXTENT, CHANNELS]);
        let mut model = ModelBuilder::new();
        let count = CHANNELS * CHANNELS;
        let weights: Vec<f32> = (0..count).map(|at| (at % 7) as f32 / 64.0 - 0.04).collect();
        let filter = TensorType::float32(&[CHANNELS, 1, 1, CHANNELS]);
        let filter = model.constant(filter, &weights);
        let bias: Vec<f32> = (0..CHANNELS).map(|at| at as f32 / 16.0).collect();
        let bias = model.constant(TensorType::float32(&[CHANNELS]), &bias);
        let scalars = [1, 1, 1, 0].map(|value| model.scalar(value));
        let mut last = model.input(image.clone());
        for layer in 1..=layers {
            let next = if layer == layers {
                model.output(image.clone())
            } else {
                model.temporary(image.clone())
            };
            let inputs = [&[last, filter, bias][..], &scalars].concat();
            model.operation(OperationType::CONV_2D, &inputs, &[next]);
            last = next;
        }
        let memory = Memory::new(2 * BYTES).unwrap();
        let values: Vec<f32> = (0..BYTES / 4).map(|at| (at % 13) as f32 / 13.0).collect();
        memory.write(0, &values).unwrap();
        Client {
            prepared: device.prepare(&model.finish().unwrap(), options).unwrap(),
            device,
            memory,
        }
    }

    fn worker(&self) -> u32 {
        self.device.worker().pid
    }

    fn request(&self) -> Request {
        Request::new()
            .input(&self.memory, 0..BYTES)
            .output(&self.memory, BYTES..2 * BYTES)
    }

    /// Executes once and returns the bytes of the result.
    fn execute(&self) -> Vec<u8> {
        self.prepared
            .execute(&self.request(), &ExecuteOptions::new())
            .unwrap();
        let mut result = vec![0; BYTES as usize];
        self.memory.read_at(BYTES, &mut result).unwrap();
        result
    }

    /// What the system says of each thread of the worker.
    fn of_threads(&self, what: &str) -> Vec<String> {
        let worker = self.worker();
        let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
        let told = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join(what)).ok());
        told.collect()
    }

    fn helpers(&self) -> usize {
        let names = self.of_threads("comm");
        names.iter().filter(|name| name.trim() == "helper").count()
    }

    /// Whether a thread of the worker runs or wants to.
    fn is_computing(&self) -> bool {
        // The state stands behind the name, which may have parentheses itself.
        let stats = self.of_threads("stat");
        let mut states = stats.iter().filter_map(|stat| stat.rsplit_once(") "));
        states.any(|(_, rest)| rest.starts_with('R'))
    }
}

/// Name and nice value of a thread, by what the system says of it.
fn name_and_nice_value(stat: &str) -> Option<(String, i32)> {
    let (_, named) = stat.split_once('(')?;
    let (name, rest) = named.rsplit_once(") ")?;
    // The 19th field; the state is the third.
    Some((name.to_owned(), rest.split(' ').nth(16)?.parse().ok()?))
}

#[test]
fn threads_of_low_priority_are_nice_and_no_others() {
    let Some(daemon) = start("") else { return };
    for (priority, nice) in [(Priority::Low, NICE), (Priority::Medium, 0), (Priority::High, 0)] {
        let client = Client::with(&daemon, 1, &PrepareOptions::new().priority(priority));
        let request = client.request();
        let fenced = client
            .prepared
            .execute_fenced(&request, &[], &ExecuteOptions::new())
            .unwrap();
        fenced.wait(Deadline::NONE).unwrap();
        let mut burst = client.prepared.burst(&BurstOptions::new()).unwrap();
        burst.execute(&request, &ExecuteOptions::new()).unwrap();
        let mut found = BTreeMap::new();
        wait_until("it has a thread of each kind", || {
            client.execute();
            let stats = client.of_threads("stat");
            found = stats
                .iter()
                .filter_map(|stat| name_and_nice_value(stat))
                .collect();
            ["executor", "burst", "helper"]
                .iter()
                .all(|name| found.contains_key(*name))
        });
        for (name, value) in found {
            let works = ["executor", "burst", "helper"].contains(&&*name);
            assert_eq!(value, if works { nice } else { 0 }, "{priority:?}: {name}");
        }
    }
}

const FAST: ExecutionPreference = ExecutionPreference::FastSingleAnswer;

#[test]
fn preference_and_setting_decide_on_helpers_and_results_are_the_same() {
    let (Some(daemon), Some(limited)) = (start(""), start("[execution]\nthreads = 1\n")) else {
        return;
    };
    let frugal = Client::new(&daemon, 1, ExecutionPreference::LowPower);
    let expected = frugal.execute();
    assert_eq!(frugal.helpers(), 0);
    let single = Client::new(&limited, 1, FAST);
    assert_eq!((single.execute() == expected, single.helpers()), (true, 0));
    for preference in [FAST, ExecutionPreference::SustainedSpeed] {
        let fast = Client::new(&daemon, 1, preference);
        assert_eq!(fast.helpers(), 0, "none before it is needed");
        for _ in 0..3 {
            assert!(fast.execute() == expected);
        }
        // A thread bears its name from when it has first run.
        wait_until("it has a helper", || fast.helpers() == 1);
    }
}

#[test]
fn helpers_of_an_idle_worker_end() {
    let Some(daemon) = start("[execution]\nidle_release_ms = 50\n") else {
        return;
    };
    let client = Client::new(&daemon, 1, FAST);
    for _ in 0..2 {
        wait_until("a helper was made", || {
            client.execute();
            client.helpers() == 1
        });
        wait_until("the helper has ended", || client.helpers() == 0);
    }
}

#[test]
fn client_of_a_busy_machine_has_no_helper() {
    let Some(daemon) = start("") else { return };
    let other = Client::new(&daemon, 1, FAST);
    let expected = other.execute();
    // It was alone, so it has one.
    wait_until("it has a helper", || other.helpers() == 1);
    drop(other);
    wait_until("an execution of the busy one was there all the while", || {
        let has_ended = AtomicBool::new(false);
        let busy = Client::new(&daemon, 60, FAST);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                busy.execute();
                has_ended.store(true, Ordering::SeqCst);
            });
            let other = Client::new(&daemon, 1, FAST);
            // It makes one in its first operation, so from then on it counts.
            wait_until("the busy one computes", || busy.helpers() == 1);
            for _ in 0..3 {
                assert!(other.execute() == expected);
            }
            let helpers = other.helpers();
            // It may have ended though its client was not told yet.
            if has_ended.load(Ordering::SeqCst) || !busy.is_computing() {
                return false;
            }
            assert_eq!(helpers, 0, "two clients have two processors");
            true
        })
    });
}

#[test]
fn killed_worker_leaves_neither_threads_nor_counts() {
    let Some(daemon) = start("") else { return };
    let busy = Client::new(&daemon, 60, FAST);
    std::thread::scope(|scope| {
        let execution = scope.spawn(|| {
            let request = Request::new()
                .input(&busy.memory, 0..BYTES)
                .output(&busy.memory, BYTES..2 * BYTES);
            while busy.prepared.execute(&request, &ExecuteOptions::new()).is_ok() {}
        });
        wait_until("the busy one computes", || busy.helpers() == 1);
        kill(Pid::from_raw(busy.worker().cast_signed()), Signal::SIGKILL).unwrap();
        execution.join().unwrap();
    });
    wait_until("the worker is gone", || !is_alive(busy.worker()));
    let next = Client::new(&daemon, 1, FAST);
    wait_until("the next client has a helper", || {
        next.execute();
        next.helpers() == 1
    });
}
