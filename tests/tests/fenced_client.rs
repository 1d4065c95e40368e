//! Fenced executions and device buffers through the client library, between connections and across deaths.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::Pid;
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, BurstOptions, Clock, Deadline, Device, Devices, ErrorKind, ErrorStatus,
    ExecuteOptions, Fence, FenceState, Memory, Model, ModelBuilder, MonotonicClock, OperationType,
    PrepareOptions, PreparedModel, Request, TensorType, Timing, WaitFor,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

fn open(daemon: &TestDaemon, name: &str) -> Device {
    Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(name)
        .unwrap()
}

fn start() -> (TestDaemon, Device) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let device = open(&daemon, "nnhal-reference");
    (daemon, device)
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// `output = input + input`, four floats.
fn double_model() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.finish().unwrap()
}

fn prepare(device: &Device) -> PreparedModel {
    device.prepare(&double_model(), &PrepareOptions::new()).unwrap()
}

/// A memory with four inputs and room for four outputs.
fn memory() -> (Memory, Request) {
    let memory = Memory::new(32).unwrap();
    memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    (memory, request)
}

fn role(model_index: u32) -> BufferRole {
    BufferRole {
        model_index,
        io_index: 0,
        frequency: 1.0,
    }
}

/// A buffer between the output of one model and the input of another.
fn between(device: &Device, from: &PreparedModel, to: &PreparedModel) -> Buffer {
    device
        .allocate(&BufferDesc::default(), &[from, to], &[role(1)], &[role(0)])
        .unwrap()
}

#[test]
fn three_models_are_chained_by_fences_and_buffers_without_the_client() {
    let (_daemon, device) = start();
    let [first, second, third] = [prepare(&device), prepare(&device), prepare(&device)];
    let (one, two) = (
        between(&device, &first, &second),
        between(&device, &second, &third),
    );
    let (memory, _) = memory();
    let options = ExecuteOptions::new();
    let (gate, closed) = Fence::create().unwrap();
    let requests = [
        Request::new().input(&memory, 0..16).output_buffer(&one),
        Request::new().input_buffer(&one).output_buffer(&two),
        Request::new().input_buffer(&two).output(&memory, 16..32),
    ];
    let a = first
        .execute_fenced(&requests[0], &[WaitFor::Fence(&closed)], &options)
        .unwrap();
    let b = second
        .execute_fenced(&requests[1], &[WaitFor::Execution(&a)], &options)
        .unwrap();
    let c = third
        .execute_fenced(&requests[2], &[WaitFor::Execution(&b)], &options)
        .unwrap();
    // N046: before the end there is nothing to tell.
    assert_eq!(c.info().unwrap_err().status(), ErrorStatus::GeneralFailure);
    assert_eq!(memory.read::<f32>(16, 4).unwrap(), [0.0; 4]);
    gate.signal().unwrap();
    c.wait(default_deadline()).unwrap();
    assert_eq!(memory.read::<f32>(16, 4).unwrap(), [8.0, 16.0, 24.0, 32.0]);
    let held = Memory::new(16).unwrap();
    two.copy_to(&held).unwrap();
    assert_eq!(held.read::<f32>(0, 4).unwrap(), [4.0, 8.0, 12.0, 16.0]);
}

#[test]
fn fence_of_one_worker_starts_an_execution_in_another() {
    let (daemon, device) = start();
    let other = open(&daemon, "nnhal-reference");
    assert_ne!(device.worker().pid, other.worker().pid);
    let (producer, consumer) = (prepare(&device), prepare(&other));
    let (gate, closed) = Fence::create().unwrap();
    let (memory, produce) = memory();
    let result = Memory::new(16).unwrap();
    let consume = Request::new().input(&memory, 16..32).output(&result, 0..16);
    let options = ExecuteOptions::new().measure_timing();
    let produced = producer
        .execute_fenced(&produce, &[WaitFor::Fence(&closed)], &options)
        .unwrap();
    let consumed = consumer
        .execute_fenced(&consume, &[WaitFor::Execution(&produced)], &options)
        .unwrap();
    gate.signal().unwrap();
    let timing = consumed.wait(default_deadline()).unwrap();
    assert_eq!(result.read::<f32>(0, 4).unwrap(), [4.0, 8.0, 12.0, 16.0]);
    for Timing {
        time_on_device_us: device,
        time_in_driver_us: driver,
    } in [timing.launched, timing.fenced]
    {
        assert!(device <= driver && driver != u64::MAX);
    }
    assert!(timing.fenced.time_in_driver_us <= timing.launched.time_in_driver_us);
}

#[test]
fn failure_of_a_producer_is_signalled_to_other_workers_and_told_by_its_handle() {
    let (daemon, device) = start();
    let other = open(&daemon, "nnhal-reference");
    let (producer, consumer) = (prepare(&device), prepare(&other));
    let (gate, closed) = Fence::create().unwrap();
    let (_memory, request) = memory();
    let options = ExecuteOptions::new();
    let produced = producer
        .execute_fenced(&request, &[WaitFor::Fence(&closed)], &options)
        .unwrap();
    let consumed = consumer
        .execute_fenced(&request, &[WaitFor::Execution(&produced)], &options)
        .unwrap();
    gate.fail().unwrap();
    for execution in [&produced, &consumed] {
        let error = execution.wait(default_deadline()).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
        let fence = execution.fence().unwrap().unwrap();
        assert_eq!(fence.state().unwrap(), FenceState::Failed);
    }
}

#[test]
fn fence_of_a_worker_that_dies_fails_in_other_workers() {
    let (daemon, device) = start();
    let other = open(&daemon, "nnhal-reference");
    let (producer, consumer) = (prepare(&device), prepare(&other));
    let (_gate, closed) = Fence::create().unwrap();
    let (_memory, request) = memory();
    let options = ExecuteOptions::new();
    let produced = producer
        .execute_fenced(&request, &[WaitFor::Fence(&closed)], &options)
        .unwrap();
    let consumed = consumer
        .execute_fenced(&request, &[WaitFor::Execution(&produced)], &options)
        .unwrap();
    kill(Pid::from_raw(device.worker().pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert_eq!(
        consumed.wait(default_deadline()).unwrap_err().status(),
        ErrorStatus::GeneralFailure
    );
    let error = produced.wait(default_deadline()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeadObject { .. }), "{error}");
    consumer.execute(&request, &options).unwrap();
}

#[test]
fn limits_of_a_fenced_execution_are_kept() {
    let (_daemon, device) = start();
    let prepared = prepare(&device);
    let (_gate, closed) = Fence::create().unwrap();
    let (_memory, request) = memory();
    let soon = ExecuteOptions::new().timeout(Duration::from_millis(400));
    let late = prepared
        .execute_fenced(&request, &[WaitFor::Fence(&closed)], &soon)
        .unwrap();
    let status = late.wait(default_deadline()).unwrap_err().status();
    assert_eq!(status, ErrorStatus::MissedDeadlineTransient);
    let waiting = prepared
        .execute_fenced(&request, &[WaitFor::Fence(&closed)], &ExecuteOptions::new())
        .unwrap();
    let error = waiting
        .wait(Deadline::after(MonotonicClock.now(), Duration::from_millis(5)))
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
}

#[test]
fn cycle_of_fences_over_two_workers_ends_by_timeout_and_holds_nobody_up() {
    let settings = "[execution]\nslots = 1\n[limits]\nthreads = 1\n";
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(settings));
    let (device, other) = (open(&daemon, "nnhal-reference"), open(&daemon, "nnhal-reference"));
    let (one, two) = (prepare(&device), prepare(&other));
    let (_memory, request) = memory();
    let limit = Duration::from_millis(400);
    // The limit counts from when it is set, which other tests can make long before the launch.
    let set = MonotonicClock.now();
    let limited = ExecuteOptions::new().timeout(limit);
    // What polls as an epoll descriptor may be chosen later: here the end of what waits for the end of this.
    let later = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let closed = Fence::from_fd(later.0.try_clone().unwrap()).unwrap();
    let first = one
        .execute_fenced(&request, &[WaitFor::Fence(&closed)], &limited)
        .unwrap();
    let second = two
        .execute_fenced(&request, &[WaitFor::Execution(&first)], &limited)
        .unwrap();
    let end = second.fence().unwrap().unwrap();
    later.add(end, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    for prepared in [&one, &two] {
        // T21: neither slot nor thread is held.
        prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    }
    let statuses =
        [&first, &second].map(|execution| execution.wait(default_deadline()).unwrap_err().status());
    let missed = ErrorStatus::MissedDeadlineTransient;
    assert!(statuses.contains(&missed), "T21: {statuses:?}");
    // The one that ends first is a failed fence to the other.
    let is_expected = |status: &ErrorStatus| [missed, ErrorStatus::GeneralFailure].contains(status);
    assert!(statuses.iter().all(is_expected), "T21: {statuses:?}");
    let took = MonotonicClock.now().saturating_since(set);
    assert!(took >= limit && took < TIMEOUT, "T21: {took:?}");
    for prepared in [&one, &two] {
        prepared
            .execute_fenced(&request, &[], &ExecuteOptions::new())
            .unwrap()
            .wait(default_deadline())
            .unwrap();
    }
}

#[test]
fn execution_waits_for_any_number_of_fences_of_any_kind() {
    const FENCES: usize = 200;
    let (_daemon, device) = start();
    let prepared = prepare(&device);
    let (memory, request) = memory();
    let options = ExecuteOptions::new();
    let open_fds = nnhal_tests::fds_of(device.worker().pid);
    for round in 0..3 {
        memory.write(16, &[0.0_f32; 4]).unwrap();
        let (mut sources, mut fences): (Vec<_>, Vec<_>) =
            (0..FENCES).map(|_| Fence::create().unwrap()).unzip();
        // Whatever polls readable once it is done: a pipe, and a timer that has nothing to do with anybody.
        let (end, start) = std::io::pipe().unwrap();
        fences.push(Fence::from_fd(end.into()).unwrap());
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).unwrap();
        let at = Expiration::OneShot(TimeSpec::from_duration(Duration::from_millis(20)));
        timer.set(at, TimerSetTimeFlags::empty()).unwrap();
        fences.push(Fence::from_fd(timer.as_fd().try_clone_to_owned().unwrap()).unwrap());
        let wait_for: Vec<_> = fences.iter().map(WaitFor::Fence).collect();
        let launched = prepared.execute_fenced(&request, &wait_for, &options).unwrap();
        // The one that is signalled last is each time another kind: attached, registered, the pipe.
        let last = (round < 2).then(|| sources.swap_remove([0, FENCES - 1][round % 2]));
        for source in sources {
            source.signal().unwrap();
        }
        if last.is_some() {
            (&start).write_all(b"x").unwrap();
        }
        let pending = launched.fence().unwrap().unwrap();
        let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(60));
        assert_eq!(pending.wait(soon).unwrap(), FenceState::Pending, "round {round}");
        assert_eq!(memory.read::<f32>(16, 4).unwrap(), [0.0; 4]);
        match last {
            Some(last) => last.signal().unwrap(),
            None => (&start).write_all(b"x").unwrap(),
        }
        launched.wait(default_deadline()).unwrap();
        assert_eq!(memory.read::<f32>(16, 4).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    }
    let worker = device.worker().pid;
    nnhal_tests::wait_until("the worker has closed them", || {
        nnhal_tests::fds_of(worker) < open_fds + FENCES / 10
    });
}

#[test]
fn buffers_and_models_of_another_connection_are_refused() {
    let (daemon, device) = start();
    let other = open(&daemon, "nnhal-reference");
    let (own, foreign) = (prepare(&device), prepare(&other));
    let desc = BufferDesc::default();
    assert!(
        device
            .allocate(&desc, &[&own, &foreign], &[role(0), role(1)], &[])
            .is_err()
    );
    let buffer = other.allocate(&desc, &[&foreign], &[role(0)], &[]).unwrap();
    // The same token as the foreign one has, for the same role.
    let twin = device.allocate(&desc, &[&own], &[role(0)], &[]).unwrap();
    assert_eq!(twin.token(), buffer.token());
    let (memory, _) = memory();
    let request = Request::new().input_buffer(&buffer).output(&memory, 16..32);
    let options = ExecuteOptions::new();
    let mut burst = own.burst(&BurstOptions::new()).unwrap();
    for error in [
        own.execute(&request, &options).unwrap_err(),
        own.execute_fenced(&request, &[], &options).unwrap_err(),
        burst.execute(&request, &options).unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    }
}

#[test]
fn bursts_keep_what_they_compute_in_device_buffers() {
    let (_daemon, device) = start();
    let (first, second) = (prepare(&device), prepare(&device));
    let held = between(&device, &first, &second);
    let (memory, _) = memory();
    let write = Request::new().input(&memory, 0..16).output_buffer(&held);
    let read = Request::new().input_buffer(&held).output(&memory, 16..32);
    let options = ExecuteOptions::new();
    let mut producer = first.burst(&BurstOptions::new()).unwrap();
    let mut consumer = second.burst(&BurstOptions::new()).unwrap();
    let error = consumer.execute(&read, &options).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure, "E05: {error}");
    let written = producer.register(&write).unwrap();
    let wanted = consumer.register(&read).unwrap();
    for round in 1..=3_u8 {
        let input = [1.0_f32, 2.0, 3.0, 4.0].map(|value| value * f32::from(round));
        memory.write(0, &input).unwrap();
        producer.fire(&written, &options).unwrap();
        consumer.fire(&wanted, &options).unwrap();
        assert_eq!(memory.read::<f32>(16, 4).unwrap(), input.map(|value| value * 4.0));
    }
}

#[test]
fn memory_of_a_new_buffer_or_a_grown_output_shows_nothing_old() {
    let (_daemon, device) = start();
    let prepared = prepare(&device);
    let canary = Memory::new(16).unwrap();
    canary.write(0, &[0xA5_u8; 16]).unwrap();
    for _ in 0..50 {
        let buffer = device
            .allocate(&BufferDesc::default(), &[&prepared], &[role(0)], &[])
            .unwrap();
        let found = Memory::new(16).unwrap();
        // T33: what a buffer before it held cannot be read.
        assert_eq!(
            buffer.copy_to(&found).unwrap_err().status(),
            ErrorStatus::GeneralFailure
        );
        assert_eq!(found.read::<u8>(0, 16).unwrap(), [0; 16]);
        buffer.copy_from(&canary, &[]).unwrap();
        let (memory, _) = memory();
        let request = Request::new().input_buffer(&buffer).output(&memory, 16..32);
        prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    }
}
