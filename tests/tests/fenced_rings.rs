//! Fenced executions by rings: results, order, ends that are told by descriptors, and deaths of processes.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Clock, Deadline, Device, Devices, Error, ErrorKind, ErrorStatus,
    ExecuteOptions, Fence, FenceState, FencedExecution, Memory, ModelBuilder, MonotonicClock, OperationType,
    PrepareOptions, PreparedModel, Request, TensorType, Timing, WaitFor,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, burst_threads, fds_of, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";
/// Its executions go on until they are asked to end.
const ENDLESS: &str = "nnhal-empty";

/// How many rings a model has at most.
const MOST_OF_MODEL: usize = 4;

fn open(daemon: &TestDaemon, device: &str) -> Device {
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    devices.device(device).unwrap()
}

fn start(settings: &str) -> (TestDaemon, Device) {
    let options = DaemonOptions {
        devices: [REFERENCE, ENDLESS].map(str::to_owned).into(),
        ..DaemonOptions::with_settings(settings)
    };
    let daemon = TestDaemon::start(EXE, &options);
    let device = open(&daemon, REFERENCE);
    (daemon, device)
}

/// `output = input + 1`, one float, which is executed by rings from now on.
fn prepare(device: &Device) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let one = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::ADD, &[x, one, no_activation], &[sum]);
    let prepared = device.prepare(&model.finish().unwrap(), &PrepareOptions::new());
    let prepared = prepared.unwrap();
    let soon = ExecuteOptions::new().timeout(Duration::from_millis(50));
    // Whatever comes of it: the first execution goes by a message.
    let _ = prepared.execute(&step(&Memory::new(8).unwrap(), 0), &soon);
    prepared
}

/// A device whose executions do not end by themselves, and a model on it.
fn endless() -> (TestDaemon, Device, PreparedModel) {
    let settings = format!("[device.{ENDLESS}]\nfault = \"loop\"\n");
    let (daemon, _) = start(&settings);
    let device = open(&daemon, ENDLESS);
    let prepared = prepare(&device);
    (daemon, device, prepared)
}

/// Adds one to the float of this index, and writes the next.
fn step(memory: &Memory, index: u64) -> Request {
    let at = 4 * index;
    Request::new()
        .input(memory, at..at + 4)
        .output(memory, at + 4..at + 8)
}

/// A memory for so many steps, and the requests of all. The worker knows them by rings.
fn steps(prepared: &PreparedModel, count: u64) -> (Memory, Vec<Request>) {
    let memory = Memory::new(4 * count + 4).unwrap();
    let requests: Vec<Request> = (0..count).map(|index| step(&memory, index)).collect();
    for request in &requests {
        launch(prepared, request, &[]).wait(at_last()).unwrap();
    }
    (memory, requests)
}

fn launch(prepared: &PreparedModel, request: &Request, wait_for: &[&FencedExecution]) -> FencedExecution {
    let wait_for: Vec<_> = wait_for
        .iter()
        .map(|execution| WaitFor::Execution(execution))
        .collect();
    prepared
        .execute_fenced(request, &wait_for, &ExecuteOptions::new())
        .unwrap()
}

/// One on a device of endless executions, which is asked to end after that long.
fn launch_for(prepared: &PreparedModel, duration: Duration) -> FencedExecution {
    let request = step(&Memory::new(8).unwrap(), 0);
    let options = ExecuteOptions::new().timeout(duration);
    prepared.execute_fenced(&request, &[], &options).unwrap()
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_millis(5))
}

fn at_last() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

#[track_caller]
fn expect_running(execution: &FencedExecution) {
    let error = execution.wait(soon()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    let error = execution.info().unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
    assert!(error.to_string().contains("has not ended"), "{error}");
}

#[track_caller]
fn end_of(execution: &FencedExecution) -> Error {
    execution.wait(at_last()).unwrap_err()
}

/// What another process would get.
fn passed_on(execution: &FencedExecution) -> Fence {
    let fence = execution.fence().unwrap().unwrap();
    Fence::from_fd(fence.try_clone_fd().unwrap()).unwrap()
}

#[test]
fn executions_by_rings_need_no_descriptor() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, 3);
    let worker = device.worker().pid;
    let before = fds_of(worker);
    let mut kept = Vec::new();
    for round in 0..100_u8 {
        memory.write(0, &[f32::from(round)]).unwrap();
        let options = ExecuteOptions::new().measure_timing();
        let execution = prepared.execute_fenced(&requests[0], &[], &options).unwrap();
        let timing = execution.wait(at_last()).unwrap();
        assert_eq!(execution.info().unwrap(), timing);
        assert_eq!(timing.launched, timing.fenced);
        let Timing {
            time_on_device_us: device,
            time_in_driver_us: driver,
        } = timing.launched;
        assert!(device <= driver && driver != u64::MAX, "{timing:?}");
        assert_eq!(memory.read::<f32>(4, 1).unwrap(), [f32::from(round) + 1.0]);
        kept.push(execution);
    }
    assert_eq!(
        launch(&prepared, &requests[0], &[])
            .wait(at_last())
            .unwrap()
            .launched,
        Timing::NONE
    );
    assert_eq!((fds_of(worker), burst_threads(worker)), (before, 1));
}

#[test]
fn executions_wait_for_each_other_on_one_ring() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, 3);
    let worker = device.worker().pid;
    let before = fds_of(worker);
    for round in 0..60_u8 {
        let first = f32::from(round);
        memory.write(0, &[first, 0.0, 0.0, 0.0]).unwrap();
        let a = launch(&prepared, &requests[0], &[]);
        let b = launch(&prepared, &requests[1], &[&a]);
        let c = launch(&prepared, &requests[2], &[&b]);
        // Whoever is waited for first.
        let mut all = [&a, &b, &c];
        all.rotate_left(usize::from(round % 3));
        c.wait(at_last()).unwrap();
        assert_eq!(memory.read::<f32>(12, 1).unwrap(), [first + 3.0]);
        for execution in all {
            execution.info().unwrap();
            execution.wait(at_last()).unwrap();
        }
    }
    assert_eq!((fds_of(worker), burst_threads(worker)), (before, 1));
}

#[test]
fn chains_are_as_long_as_one_likes() {
    const STEPS: u64 = 20;
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, STEPS);
    for _ in 0..5 {
        memory.write(0, &[0.0_f32; STEPS as usize + 1]).unwrap();
        let mut chain: Vec<FencedExecution> = Vec::new();
        for request in &requests {
            let before: Vec<_> = chain.iter().rev().take(2).collect();
            let next = launch(&prepared, request, &before);
            chain.push(next);
        }
        chain.last().unwrap().wait(at_last()).unwrap();
        let expected: Vec<f32> = (0..=STEPS as u16).map(f32::from).collect();
        assert_eq!(memory.read::<f32>(0, expected.len()).unwrap(), expected);
        chain
            .iter()
            .for_each(|execution| assert!(execution.wait(at_last()).is_ok()));
    }
}

#[test]
fn more_at_once_than_there_are_rings() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let memories: Vec<Memory> = (0..24).map(|_| Memory::new(8).unwrap()).collect();
    for round in 0..10_u8 {
        let launched = memories.iter().map(|memory| {
            memory.write(0, &[f32::from(round), 0.0]).unwrap();
            launch(&prepared, &step(memory, 0), &[])
        });
        let launched: Vec<FencedExecution> = launched.collect();
        for (execution, memory) in launched.iter().zip(&memories).rev() {
            execution.wait(at_last()).unwrap();
            assert_eq!(memory.read::<f32>(4, 1).unwrap(), [f32::from(round) + 1.0]);
        }
    }
    let bursts = burst_threads(device.worker().pid);
    assert!((1..=MOST_OF_MODEL).contains(&bursts), "{bursts}");
}

#[test]
fn what_is_wrong_is_said_at_once() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, 1);
    let wrong = Request::new().input(&memory, 0..2).output(&memory, 4..8);
    let late = ExecuteOptions::new().deadline(Deadline::at(MonotonicClock.now()));
    for _ in 0..3 {
        let refused = prepared.execute_fenced(&wrong, &[], &ExecuteOptions::new());
        let error = refused.unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        let error = prepared.execute_fenced(&requests[0], &[], &late).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::MissedDeadlinePersistent, "{error}");
        launch(&prepared, &requests[0], &[]).wait(at_last()).unwrap();
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn outputs_must_be_known_also_of_requests_that_are_known() {
    let (_daemon, device) = start("");
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[0]));
    let y = model.output(TensorType::float32(&[0]));
    model.operation(OperationType::RELU, &[x], &[y]);
    let prepared = device.prepare(&model.finish().unwrap(), &PrepareOptions::new());
    let prepared = prepared.unwrap();
    let memory = Memory::new(32).unwrap();
    let open = Request::new()
        .input_with_dimensions(&memory, 0..16, &[4])
        .output(&memory, 16..32);
    let options = ExecuteOptions::new();
    for _ in 0..3 {
        prepared.start(&open, &options).unwrap().wait(at_last()).unwrap();
        let error = prepared.execute_fenced(&open, &[], &options).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        assert!(
            error.to_string().contains("needs every output dimension"),
            "{error}"
        );
    }
}

/// A device buffer that nothing was written to, and a request that reads it.
fn unreadable(device: &Device, prepared: &PreparedModel) -> (Buffer, Request, Memory) {
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let buffer = device.allocate(&BufferDesc::default(), &[prepared], &[role], &[]);
    let (buffer, memory) = (buffer.unwrap(), Memory::new(4).unwrap());
    let request = Request::new().input_buffer(&buffer).output(&memory, 0..4);
    (buffer, request, memory)
}

#[test]
fn failure_in_the_middle_of_a_chain_fails_those_behind_it_and_no_others() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, 3);
    let (_buffer, failing, _) = unreadable(&device, &prepared);
    let fails = |execution: &FencedExecution| {
        let error = end_of(execution);
        assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
        error.to_string()
    };
    fails(&launch(&prepared, &failing, &[]));
    for round in 0..10_u8 {
        memory.write(0, &[f32::from(round), 0.0, 0.0, 0.0]).unwrap();
        let a = launch(&prepared, &requests[0], &[]);
        let b = launch(&prepared, &failing, &[&a]);
        let c = launch(&prepared, &requests[1], &[&b]);
        let d = launch(&prepared, &requests[2], &[&c]);
        if round % 2 == 0 {
            a.wait(at_last()).unwrap();
        }
        let reason = "an execution that this one waited for has failed";
        assert!(fails(&d).contains(reason));
        assert!(fails(&c).contains(reason));
        assert!(!fails(&b).contains(reason));
        a.wait(at_last()).unwrap();
        assert_eq!(
            memory.read::<f32>(0, 4).unwrap(),
            [f32::from(round), f32::from(round) + 1.0, 0.0, 0.0]
        );
        assert_eq!(passed_on(&a).state().unwrap(), FenceState::Signalled);
        for failed in [&b, &c, &d] {
            assert_eq!(passed_on(failed).state().unwrap(), FenceState::Failed);
            // What is known to have failed is nothing to wait for.
            let behind = [WaitFor::Execution(failed)];
            let refused = prepared.execute_fenced(&requests[1], &behind, &ExecuteOptions::new());
            assert_eq!(refused.unwrap_err().status(), ErrorStatus::InvalidArgument);
        }
        // The ring has forgotten it.
        launch(&prepared, &requests[1], &[&a]).wait(at_last()).unwrap();
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn threads_that_wait_for_executions_of_one_ring_get_each_their_own() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let (memory, requests) = steps(&prepared, 3);
    let (_buffer, failing, _) = unreadable(&device, &prepared);
    end_of(&launch(&prepared, &failing, &[]));
    for _ in 0..50 {
        let a = launch(&prepared, &requests[0], &[]);
        let b = launch(&prepared, &requests[1], &[&a]);
        let c = launch(&prepared, &failing, &[&b]);
        let outcomes = std::thread::scope(|scope| {
            [c, b, a]
                .map(|execution| scope.spawn(move || execution.wait(at_last())))
                .map(|thread| thread.join().unwrap())
        });
        assert_eq!(outcomes.map(|outcome| outcome.is_ok()), [false, true, true]);
    }
    assert_eq!(memory.read::<f32>(8, 1).unwrap(), [2.0]);
}

#[test]
fn execution_goes_on_without_its_handles_and_lets_go_of_all() {
    let (_daemon, device) = start("");
    let prepared = prepare(&device);
    let worker = device.worker().pid;
    let (memory, requests) = steps(&prepared, 3);
    for round in 0..20_u8 {
        memory.write(0, &[f32::from(round), -1.0, -1.0, -1.0]).unwrap();
        let a = launch(&prepared, &requests[0], &[]);
        let b = launch(&prepared, &requests[1], &[&a]);
        drop(launch(&prepared, &requests[2], &[&b]));
        drop((a, b));
        let expected = f32::from(round) + 3.0;
        wait_until("the last has ended", || {
            memory.read::<f32>(12, 1).unwrap() == [expected]
        });
    }
    assert!((1..=MOST_OF_MODEL).contains(&burst_threads(worker)));
    drop((prepared, device));
    wait_until("the worker has ended with its client", || !is_alive(worker));
}

#[test]
fn deadlines_end_executions_and_their_fences() {
    let (daemon, device, prepared) = endless();
    let other = prepare(&open(&daemon, REFERENCE));
    let (memory, requests) = steps(&other, 1);
    for _ in 0..3 {
        let execution = launch_for(&prepared, Duration::from_millis(700));
        expect_running(&execution);
        let fence = passed_on(&execution);
        assert_eq!(fence.state().unwrap(), FenceState::Pending);
        memory.write(4, &[7.0_f32]).unwrap();
        // In another process.
        let behind = launch(&other, &requests[0], &[&execution]);
        assert_eq!(end_of(&execution).status(), ErrorStatus::MissedDeadlineTransient);
        assert_eq!(fence.wait(at_last()).unwrap(), FenceState::Failed);
        assert_eq!(end_of(&behind).status(), ErrorStatus::GeneralFailure);
        assert_eq!(memory.read::<f32>(4, 1).unwrap(), [7.0]);
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn death_of_the_worker_is_told_to_all_who_wait() {
    let (daemon, device, prepared) = endless();
    let other = prepare(&open(&daemon, REFERENCE));
    let (_memory, requests) = steps(&other, 1);
    let for_ever = Duration::from_secs(3600);
    let asked = launch_for(&prepared, for_ever);
    let unasked = launch_for(&prepared, for_ever);
    expect_running(&asked);
    let fence = passed_on(&asked);
    let behind = launch(&other, &requests[0], &[&asked]);
    let worker = Pid::from_raw(device.worker().pid.cast_signed());
    let outcomes = std::thread::scope(|scope| {
        let waiting = [&asked, &asked, &unasked].map(|execution| scope.spawn(|| end_of(execution)));
        kill(worker, Signal::SIGKILL).unwrap();
        waiting.map(|thread| thread.join().unwrap())
    });
    for error in outcomes {
        assert!(error.is_dead_object(), "{error}");
    }
    assert_eq!(fence.wait(at_last()).unwrap(), FenceState::Failed);
    assert_eq!(passed_on(&unasked).state().unwrap(), FenceState::Failed);
    assert_eq!(end_of(&behind).status(), ErrorStatus::GeneralFailure);
    let request = step(&Memory::new(8).unwrap(), 0);
    let later = prepared.execute_fenced(&request, &[], &ExecuteOptions::new());
    assert!(later.unwrap_err().is_dead_object());
}

#[test]
fn executions_outlive_the_supervisor() {
    let (daemon, _device, prepared) = endless();
    let execution = launch_for(&prepared, Duration::from_secs(2));
    let fence = passed_on(&execution);
    daemon.signal(Signal::SIGKILL);
    wait_until("the supervisor is dead", || !is_alive(daemon.pid()));
    // The worker makes one without it, too.
    let again = passed_on(&execution.clone());
    assert_eq!(end_of(&execution).status(), ErrorStatus::MissedDeadlineTransient);
    for fence in [fence, again] {
        assert_eq!(fence.wait(at_last()).unwrap(), FenceState::Failed);
    }
}

#[test]
fn driver_that_ends_waits_for_executions_and_tells_their_ends() {
    let (daemon, device, prepared) = endless();
    let execution = launch_for(&prepared, Duration::from_secs(2));
    daemon.signal(Signal::SIGTERM);
    wait_until("the driver takes nothing new", || device.status().is_err());
    let fence = passed_on(&execution);
    assert_eq!(end_of(&execution).status(), ErrorStatus::MissedDeadlineTransient);
    assert_eq!(fence.wait(at_last()).unwrap(), FenceState::Failed);
}

#[test]
fn fence_that_is_asked_for_while_others_wait_is_of_the_same_end() {
    let (_daemon, _device, prepared) = endless();
    let execution = launch_for(&prepared, Duration::from_millis(500));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| end_of(&execution));
        let fences = [(); 3].map(|()| scope.spawn(|| passed_on(&execution)));
        assert_eq!(
            waits.join().unwrap().status(),
            ErrorStatus::MissedDeadlineTransient
        );
        for fence in fences {
            assert_eq!(fence.join().unwrap().wait(at_last()).unwrap(), FenceState::Failed);
        }
    });
}
