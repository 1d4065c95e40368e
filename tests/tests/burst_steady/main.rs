//! While both processes are awake, an execution by burst allocates nothing and makes no system call on either
//! side.
//!
//! A file of its own: the allocator is the whole binary's, and threads of other tests that poll would keep
//! these from polling.

#[path = "../../src/counting_allocator.rs"]
mod counting_allocator;
mod network;
mod several;
mod trace;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nnhal_client::{
    Burst, BurstOptions, Devices, ExecuteOptions, Input, Memory, Model, ModelBuilder, OperandId,
    OperationType, Output, PrepareOptions, PreparedModel, Request, TensorType, WaitSettings,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, wait_until};
use trace::{Counter, SystemCalls, system_calls_of, total};

#[global_allocator]
static ALLOCATOR: counting_allocator::CountingAllocator = counting_allocator::CountingAllocator;

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// Executions that are looked at.
const EXECUTIONS: u64 = 10_000;

/// What is called to sleep, to wake who sleeps, to let others have the processor and to see whether they took
/// it.
const SLEEPING: [&str; 5] = [
    "futex",
    "futex_waitv",
    "sched_yield",
    "getrusage",
    "restart_syscall",
];

/// Who is put off its processor for a while lets the other side fall asleep. So many calls for that in all
/// executions are no matter of executions.
const SLEEPS: u64 = EXECUTIONS / 100;

/// Measurements until one was not disturbed by what else happens on the machine.
const ATTEMPTS: usize = 10;

/// The tests take turns: both need processors to poll on.
static TURN: Mutex<()> = Mutex::new(());

/// A worker that polls for its next request as long as it is allowed to.
fn start(device: &str, environment: Vec<(String, std::ffi::OsString)>) -> TestDaemon {
    start_with(device, environment, "")
}

/// The same with further settings of executions.
fn start_with(
    device: &str,
    environment: Vec<(String, std::ffi::OsString)>,
    execution_settings: &str,
) -> TestDaemon {
    let settings = format!("[execution]\npolling_window_us = 1000000\n{execution_settings}");
    let options = DaemonOptions {
        devices: vec![device.to_owned()],
        environment,
        ..DaemonOptions::with_settings(&settings)
    };
    TestDaemon::start(EXE, &options)
}

/// A model whose result is one more than its inputs, all of which have the same value.
struct Case {
    device: &'static str,
    inputs: usize,
    model: fn() -> Model,
}

const REFERENCE: Case = Case {
    device: "nnhal-reference",
    inputs: 1,
    model: one_more,
};

/// Which `nnhal-cpu` computes by what it has for few values.
const FEW: Case = Case {
    device: "nnhal-cpu",
    ..REFERENCE
};

/// With weights that it packs.
const NETWORK: Case = Case {
    device: "nnhal-cpu",
    inputs: 64,
    model: network,
};

fn one_more() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let sum = model.output(TensorType::float32(&[1]));
    add_one(&mut model, x, sum, &[1]);
    model.finish().unwrap()
}

fn add_one(model: &mut ModelBuilder, x: OperandId, sum: OperandId, dimensions: &[u32]) {
    let one = model.constant(TensorType::float32(dimensions), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
}

/// A convolution, a fully connected layer and an ADD, of means that are exact.
fn network() -> Model {
    const CHANNELS: u32 = 32;
    let mut model = ModelBuilder::new();
    let image = model.input(TensorType::float32(&[1, 8, 8, 1]));
    let filter = model.constant(
        TensorType::float32(&[CHANNELS, 8, 8, 1]),
        &[1.0 / 64.0_f32; CHANNELS as usize * 64],
    );
    let bias = model.constant(TensorType::float32(&[CHANNELS]), &[0.0_f32; CHANNELS as usize]);
    let channels = model.temporary(TensorType::float32(&[1, 1, 1, CHANNELS]));
    let [no_activation, one, valid] = [0, 1, 2].map(|value| model.scalar(value));
    let inputs = [image, filter, bias, valid, one, one, no_activation];
    model.operation(OperationType::CONV_2D, &inputs, &[channels]);
    let weights = model.constant(
        TensorType::float32(&[1, CHANNELS]),
        &[1.0 / CHANNELS as f32; CHANNELS as usize],
    );
    let bias = model.constant(TensorType::float32(&[1]), &[0.0_f32]);
    let mean = model.temporary(TensorType::float32(&[1, 1]));
    let inputs = [channels, weights, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[mean]);
    let sum = model.output(TensorType::float32(&[1, 1]));
    add_one(&mut model, mean, sum, &[1, 1]);
    model.finish().unwrap()
}

struct Subject {
    worker: u32,
    prepared: PreparedModel,
    burst: Burst,
    memory: Memory,
    inputs: Vec<f32>,
}

impl Subject {
    fn open(daemon: &TestDaemon, case: &Case) -> Subject {
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(case.device)
            .unwrap();
        let prepared = device.prepare(&(case.model)(), &PrepareOptions::new()).unwrap();
        let wait = WaitSettings::Fixed {
            window: Duration::from_secs(10),
        };
        Subject {
            worker: device.worker().pid,
            burst: prepared
                .burst(&BurstOptions::new().wait(wait).in_flight(2))
                .unwrap(),
            prepared,
            memory: Memory::new(4 * (case.inputs as u64 + 1)).unwrap(),
            inputs: vec![0.0; case.inputs],
        }
    }

    fn request(&self) -> Request {
        let size = self.memory.size();
        Request::new()
            .input(&self.memory, 0..size - 4)
            .output(&self.memory, size - 4..size)
    }

    fn write(&mut self, value: f32) {
        self.inputs.fill(value);
        self.memory.write(0, &self.inputs).unwrap();
    }

    fn expect_in_memory(&self, sum: f32) {
        let mut bytes = [0_u8; 4];
        self.memory.read_at(self.memory.size() - 4, &mut bytes).unwrap();
        assert_eq!(f32::from_le_bytes(bytes), sum);
    }

    /// Executes as often as said, in every way that a burst has.
    fn execute_in_turn(
        &mut self,
        request: &Request,
        registered: &nnhal_client::RegisteredRequest,
        executions: u64,
    ) {
        let options = ExecuteOptions::new();
        let timed = options.measure_timing();
        for round in 0..executions {
            let value = round as f32;
            self.write(value);
            match round % 4 {
                0 => {
                    self.burst.execute(request, &options).unwrap();
                }
                1 => {
                    self.burst.fire(registered, &timed).unwrap();
                }
                2 => {
                    self.burst.submit(registered, &options).unwrap();
                    self.burst.submit(registered, &options).unwrap();
                    while let Some(finished) = self.burst.next_finished(&options).unwrap() {
                        finished.result.unwrap();
                    }
                }
                _ => {
                    let mut sum = [0.0_f32];
                    self.burst
                        .run(
                            &[Input::from(&self.inputs)],
                            &mut [Output::from(&mut sum)],
                            &options,
                        )
                        .unwrap();
                    assert_eq!(sum, [value + 1.0]);
                    continue;
                }
            }
            self.expect_in_memory(value + 1.0);
        }
    }
}

/// Whether a worker has helper threads.
fn has_helper(worker: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.any(|name| name.trim() == "helper")
}

#[test]
fn executions_by_several_threads_allocate_nothing_in_the_driver() {
    const ELEMENTS: u32 = 200_000;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let counter = Counter::new();
    let daemon = start("nnhal-cpu", counter.environment());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device("nnhal-cpu").unwrap();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[ELEMENTS]));
    let sum = model.output(TensorType::float32(&[ELEMENTS]));
    let no_activation = model.scalar(0_i32);
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    let model = model.finish().unwrap();
    let prepared = device.prepare(&model, &PrepareOptions::new()).unwrap();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let bytes = u64::from(ELEMENTS) * 4;
    let memory = Memory::new(2 * bytes).unwrap();
    memory.write(0, &vec![1.5_f32; ELEMENTS as usize]).unwrap();
    let request = Request::new()
        .input(&memory, 0..bytes)
        .output(&memory, bytes..2 * bytes);
    let mut execute = |executions: u32| {
        for _ in 0..executions {
            burst.execute(&request, &ExecuteOptions::new()).unwrap();
        }
    };
    execute(20);
    let worker = device.worker().pid;
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        wait_until("there is a helper", || has_helper(worker));
    }
    let mut least = u32::MAX;
    for _ in 0..ATTEMPTS {
        let before = counter.allocations();
        execute(200);
        // The supervisor and the worker that waits for the next client are counted too, while they start.
        least = least.min(counter.allocations() - before);
        if least == 0 {
            return;
        }
    }
    panic!("the driver allocated {least} times in 200 executions");
}

fn expect_no_allocations(case: &Case) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let counter = Counter::new();
    let daemon = start(case.device, counter.environment());
    let mut subject = Subject::open(&daemon, case);
    assert!(counter.allocations() > 0, "the driver's processes count");
    let request = subject.request();
    let registered = subject.burst.register(&request).unwrap();
    subject.execute_in_turn(&request, &registered, 1000);
    expect_none_allocated(&counter, case.device, || {
        subject.execute_in_turn(&request, &registered, EXECUTIONS);
    });
}

/// That `work` allocates nothing, here and in the driver.
fn expect_none_allocated(counter: &Counter, what: &str, mut work: impl FnMut()) {
    let mut least = u32::MAX;
    for _ in 0..ATTEMPTS {
        let (here, there) = (counting_allocator::of_this_thread(), counter.allocations());
        work();
        let of_client = counting_allocator::of_this_thread() - here;
        assert_eq!(of_client, 0, "{what}: allocations of the client");
        // The supervisor and the worker that waits for the next client are counted too, while they start.
        least = least.min(counter.allocations() - there);
        if least == 0 {
            return;
        }
    }
    panic!("{what}: the driver allocated {least} times");
}

#[test]
fn executions_allocate_on_neither_side() {
    expect_no_allocations(&REFERENCE);
}

#[test]
fn executions_of_few_values_on_the_fast_device_allocate_on_neither_side() {
    expect_no_allocations(&FEW);
}

#[test]
fn executions_of_a_network_on_the_fast_device_allocate_on_neither_side() {
    expect_no_allocations(&NETWORK);
}

/// What is wrong with the calls of both sides.
fn complaints_of(calls: &[SystemCalls; 2], of_tracing: &[SystemCalls; 2], most_sleeps: u64) -> Vec<String> {
    let sides = ["the client", "the worker"]
        .into_iter()
        .zip(calls.iter().zip(of_tracing));
    sides
        .filter_map(|(side, (calls, of_tracing))| {
            complaint(calls, of_tracing, most_sleeps).map(|complaint| format!("{side} {complaint}"))
        })
        .collect()
}

/// What is wrong with the calls of one side, if those of tracing nothing are taken off.
fn complaint(calls: &SystemCalls, of_tracing: &SystemCalls, most_sleeps: u64) -> Option<String> {
    let sleeps: u64 = SLEEPING.iter().filter_map(|name| calls.get(*name)).sum();
    let others: Vec<_> = calls
        .iter()
        .filter(|(name, _)| !SLEEPING.contains(&name.as_str()))
        .filter(|(name, count)| *count > of_tracing.get(*name).unwrap_or(&0))
        .collect();
    (!others.is_empty() || sleeps > most_sleeps).then(|| {
        format!("slept {sleeps} times, of which {most_sleeps} are no matter; beside that {others:?}")
    })
}

fn expect_no_system_calls(case: &Case) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = start(case.device, Vec::new());
    let mut subject = Subject::open(&daemon, case);
    let worker = subject.worker;
    let request = subject.request();
    let registered = subject.burst.register(&request).unwrap();
    subject.execute_in_turn(&request, &registered, 1000);

    // What is counted would be seen: messages are made of system calls.
    let prepared = subject.prepared.clone();
    // A wait that may be given up goes by a message.
    let options = ExecuteOptions::new().wait_at_most(TIMEOUT);
    let by_messages = system_calls_of(worker, || {
        for _ in 0..100 {
            prepared.execute(&request, &options).unwrap();
        }
    });
    let Some(by_messages) = by_messages else { return };
    assert!(
        by_messages.iter().all(|calls| total(calls) >= 200),
        "the trace saw {by_messages:?}"
    );

    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: two processes cannot poll at once on one processor");
        return;
    }
    expect_none_called(worker, case.device, SLEEPS, || {
        subject.execute_in_turn(&request, &registered, EXECUTIONS);
    });
}

/// That this thread and the worker make no system calls for `work`, but so many to sleep and to wake.
fn expect_none_called(worker: u32, what: &str, most_sleeps: u64, mut work: impl FnMut()) {
    let mut complaints = Vec::new();
    for _ in 0..ATTEMPTS {
        // Attaching interrupts what threads wait in, and this thread ends the trace of itself.
        let Some(of_tracing) = system_calls_of(worker, || ()) else {
            return;
        };
        let Some(calls) = system_calls_of(worker, &mut work) else {
            return;
        };
        complaints = complaints_of(&calls, &of_tracing, most_sleeps);
        if complaints.is_empty() {
            return;
        }
        eprintln!("{what}: {}; {calls:?} {of_tracing:?}", complaints.join("; "));
    }
    panic!("{what}: {}", complaints.join("; "));
}

#[test]
fn executions_make_no_system_call_on_either_side() {
    expect_no_system_calls(&REFERENCE);
}

#[test]
fn executions_of_few_values_on_the_fast_device_make_no_system_call_on_either_side() {
    expect_no_system_calls(&FEW);
}

#[test]
fn executions_of_a_network_on_the_fast_device_make_no_system_call_on_either_side() {
    expect_no_system_calls(&NETWORK);
}
