//! A device that computes by itself and signals fences: the queue of the example driver, across processes.

use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal_client::{
    BurstOptions, Clock, Deadline, Device, Devices, Error, ErrorStatus, ExecuteOptions, FenceState, Memory,
    Model, ModelBuilder, MonotonicClock, OperationType, PrepareOptions, PreparedModel, Request, TensorType,
    WaitFor,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, wait_until};
use vendor_driver::QUEUE;

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-vendor-driver");

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The device, whose hardware takes so long for an operation, with these settings of executions.
fn start(latency: Duration, execution: &str) -> (TestDaemon, Device) {
    let settings = format!(
        "[execution]\n{execution}\n[device.{QUEUE}]\nlatency_us = \"{}\"\n",
        latency.as_micros()
    );
    let options = DaemonOptions {
        devices: vec![QUEUE.to_owned()],
        ..DaemonOptions::with_settings(&settings)
    };
    let daemon = TestDaemon::start(EXE, &options);
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device(QUEUE).unwrap();
    (daemon, device)
}

/// `output = max(input + input, 0)`, four floats: two operations.
fn model() -> Model {
    let mut model = ModelBuilder::new();
    let ty = TensorType::float32(&[4]);
    let x = model.input(ty.clone());
    let no_activation = model.scalar(0_i32);
    let sum = model.temporary(ty.clone());
    let y = model.output(ty);
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.operation(OperationType::RELU, &[sum], &[y]);
    model.finish().unwrap()
}

fn prepare(device: &Device) -> PreparedModel {
    device.prepare(&model(), &PrepareOptions::new()).unwrap()
}

/// A memory with these inputs and room for the outputs.
fn memory(inputs: [f32; 4]) -> (Memory, Request) {
    let memory = Memory::new(32).unwrap();
    memory.write(0, &inputs).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    (memory, request)
}

fn outputs(memory: &Memory) -> Vec<f32> {
    memory.read(16, 4).unwrap()
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

fn is_missed(error: &Error) -> bool {
    matches!(
        error.status(),
        ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent
    )
}

#[test]
fn every_form_of_execution_computes_on_the_queue() {
    let latency = Duration::from_millis(2);
    let (_daemon, device) = start(latency, "");
    let prepared = prepare(&device);
    let options = ExecuteOptions::new().measure_timing();
    let (memory, request) = memory([1.0, -2.0, 3.0, -4.0]);
    let expect = |case: &str| {
        assert_eq!(outputs(&memory), [2.0, 0.0, 6.0, 0.0], "{case}");
        memory.write(16, &[9.0_f32; 4]).unwrap();
    };

    let completed = prepared.execute(&request, &options).unwrap();
    // Two operations.
    let least = 2 * u64::try_from(latency.as_micros()).unwrap();
    assert!(completed.timing.time_on_device_us >= least, "{completed:?}");
    assert!(completed.timing.time_in_driver_us >= least, "{completed:?}");
    expect("synchronous");

    let mut started = prepared.start(&request, &options).unwrap();
    started.wait(soon()).unwrap();
    expect("asynchronous");

    let fenced = prepared.execute_fenced(&request, &[], &options).unwrap();
    fenced.wait(soon()).unwrap();
    expect("fenced");

    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    for _ in 0..3 {
        burst.execute(&request, &options).unwrap();
        expect("burst");
    }
    let registered = burst.register(&request).unwrap();
    for _ in 0..3 {
        burst.fire(&registered, &options).unwrap();
        expect("registered");
    }
}

#[test]
fn two_executions_are_in_the_queue_at_once() {
    let (_daemon, device) = start(Duration::from_millis(20), "slots = 2");
    let prepared = prepare(&device);
    let options = ExecuteOptions::new();
    let (first_memory, first) = memory([1.0; 4]);
    let (second_memory, second) = memory([2.0; 4]);
    let first = prepared.execute_fenced(&first, &[], &options).unwrap();
    let second = prepared.execute_fenced(&second, &[], &options).unwrap();
    // A third one follows the first by its fence, while the second computes.
    let (third_memory, third) = memory([3.0; 4]);
    let third = prepared
        .execute_fenced(&third, &[WaitFor::Execution(&first)], &options)
        .unwrap();
    for execution in [&third, &second, &first] {
        execution.wait(soon()).unwrap();
    }
    for (memory, expected) in [(&first_memory, 2.0), (&second_memory, 4.0), (&third_memory, 6.0)] {
        assert_eq!(outputs(memory), [expected; 4]);
    }
}

#[test]
fn ends_of_executions_on_rings_are_told_to_another_process() {
    let (daemon, device) = start(Duration::from_millis(100), "slots = 2");
    let prepared = prepare(&device);
    let other = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(QUEUE)
        .unwrap();
    assert_ne!(other.worker().pid, device.worker().pid);
    let consumer = prepare(&other);
    let options = ExecuteOptions::new();
    let (first_memory, first) = memory([1.0, -2.0, 3.0, -4.0]);
    prepared.execute(&first, &options).unwrap();
    // Where the first writes.
    let result = Memory::new(16).unwrap();
    let second = Request::new().input(&first_memory, 16..32).output(&result, 0..16);
    for _ in 0..2 {
        first_memory.write(16, &[-1.0_f32; 4]).unwrap();
        let first = prepared.execute_fenced(&first, &[], &options).unwrap();
        let second = consumer
            .execute_fenced(&second, &[WaitFor::Execution(&first)], &options)
            .unwrap();
        let fence = first.fence().unwrap().unwrap().clone();
        second.wait(soon()).unwrap();
        assert_eq!(fence.state().unwrap(), FenceState::Signalled);
        first.wait(soon()).unwrap();
        assert_eq!(result.read::<f32>(0, 4).unwrap(), [4.0, 0.0, 12.0, 0.0]);
    }
}

#[test]
fn deadline_ends_what_is_in_the_queue() {
    let (_daemon, device) = start(Duration::from_millis(300), "");
    let prepared = prepare(&device);
    let (memory, request) = memory([1.0; 4]);
    let short = || ExecuteOptions::new().timeout(Duration::from_millis(50));
    let error = prepared.execute(&request, &short()).unwrap_err();
    assert!(is_missed(&error), "{error}");
    let fenced = prepared.execute_fenced(&request, &[], &short()).unwrap();
    let error = fenced.wait(soon()).unwrap_err();
    assert!(is_missed(&error), "{error}");
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let error = burst.execute(&request, &short()).unwrap_err();
    assert!(is_missed(&error), "{error}");
    assert_eq!(outputs(&memory), [0.0; 4]);
    // The hardware has let go of each, so the same executions can be used again.
    burst.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(outputs(&memory), [2.0; 4]);
    prepared.execute(&request, &ExecuteOptions::new()).unwrap();
}

#[test]
fn cancelled_execution_leaves_the_queue() {
    let (_daemon, device) = start(FOR_EVER, "slots = 2");
    let prepared = prepare(&device);
    let (_memory, request) = memory([1.0; 4]);
    let options = ExecuteOptions::new();
    // The hardware takes its time for the first, and has the second wait.
    let mut started = [(); 2].map(|()| prepared.start(&request, &options).unwrap());
    for pending in started.iter_mut().rev() {
        pending.cancel();
        let error = pending.wait(soon()).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
        assert!(error.to_string().contains("cancelled"), "{error}");
    }
    device.status().unwrap();
}

/// Whether a thread of a burst of this worker waits for a descriptor, as it does for a device's fence; `None`
/// where this process may not know in which system call another one is.
fn burst_waits_for_a_fence(worker: u32) -> Option<bool> {
    std::fs::read_to_string(format!("/proc/{worker}/syscall")).ok()?;
    let threads = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let waits = threads.filter_map(Result::ok).any(|thread| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let call = read("syscall");
        let number = call.split(' ').next().and_then(|number| number.parse().ok());
        read("comm").trim() == "burst" && number == Some(nix::libc::SYS_ppoll)
    });
    Some(waits)
}

#[test]
fn driver_that_is_to_end_lets_a_synchronous_execution_end() {
    let (mut daemon, device) = start(Duration::from_millis(300), "");
    let prepared = prepare(&device);
    let (memory, request) = memory([1.0; 4]);
    let execute = || prepared.execute(&request, &ExecuteOptions::new());
    // From the second one on executions go by rings.
    execute().unwrap();
    let worker = device.worker().pid;
    if burst_waits_for_a_fence(worker).is_none() {
        eprintln!("SKIPPED: this user may not know in which system call a worker is");
        return;
    }
    std::thread::scope(|scope| {
        let second = scope.spawn(execute);
        wait_until("it computes", || burst_waits_for_a_fence(worker) == Some(true));
        daemon.signal(Signal::SIGTERM);
        second.join().unwrap().unwrap();
    });
    assert_eq!(outputs(&memory), [2.0; 4]);
    execute().unwrap_err();
    assert!(daemon.wait().success(), "{}", daemon.log());
}

#[test]
fn fence_that_never_comes_is_the_watchdogs_to_end() {
    for is_burst in [false, true] {
        let (_daemon, device) = start(FOR_EVER, "hang_limit_ms = 200");
        let prepared = prepare(&device);
        let (_memory, request) = memory([1.0; 4]);
        let options = ExecuteOptions::new();
        let error = if is_burst {
            let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
            burst.execute(&request, &options).unwrap_err()
        } else {
            prepared.execute(&request, &options).unwrap_err()
        };
        assert!(error.is_dead_object(), "{error}");
        assert!(error.to_string().contains("watchdog"), "{error}");
    }
}
