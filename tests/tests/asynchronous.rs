//! Asynchronous executions by rings: results, ends that are asked for, and deaths of processes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use nnhal_client::{
    Clock, Completed, Deadline, Device, Devices, Error, ErrorKind, ErrorStatus, ExecuteOptions, Memory,
    ModelBuilder, MonotonicClock, OperationType, PendingExecution, PrepareOptions, PreparedModel, Request,
    TensorType,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, activities_of, burst_threads, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";
/// Its executions go on until they are asked to end.
const ENDLESS: &str = "nnhal-empty";

/// How many rings a model has at most.
const MOST_OF_MODEL: usize = 4;

fn start(device: &str, settings: &str) -> (TestDaemon, Device) {
    let options = DaemonOptions {
        devices: vec![device.to_owned()],
        ..DaemonOptions::with_settings(settings)
    };
    let daemon = TestDaemon::start(EXE, &options);
    let device = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(device)
        .unwrap();
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
    let _ = prepared.execute(&Arguments::new(0.0).request, &soon);
    prepared
}

/// A device whose executions do not end by themselves, and a model on it.
fn endless(settings: &str) -> (TestDaemon, Device, PreparedModel) {
    let settings = format!("{settings}[device.{ENDLESS}]\nfault = \"loop\"\n");
    let (daemon, device) = start(ENDLESS, &settings);
    let prepared = prepare(&device);
    (daemon, device, prepared)
}

/// A memory with an input and room for the output, and the request on it.
struct Arguments {
    memory: Memory,
    request: Request,
}

impl Arguments {
    fn new(input: f32) -> Arguments {
        let memory = Memory::new(8).unwrap();
        memory.write(0, &[input]).unwrap();
        let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
        Arguments { memory, request }
    }

    #[track_caller]
    fn expect_output(&self, expected: f32) {
        assert_eq!(self.memory.read::<f32>(4, 1).unwrap(), [expected]);
    }
}

fn launch(prepared: &PreparedModel) -> PendingExecution {
    let arguments = Arguments::new(1.0);
    prepared
        .start(&arguments.request, &ExecuteOptions::new())
        .unwrap()
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), Duration::from_millis(5))
}

fn at_last() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

type Outcome = Result<Completed, Error>;

#[track_caller]
fn expect_running(pending: &mut PendingExecution) {
    let error = pending.wait(soon()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
}

#[track_caller]
fn expect_cancelled(outcome: Outcome) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
    assert!(error.to_string().contains("cancelled"), "{error}");
}

/// Says which thread has woken it.
struct Woken(Mutex<mpsc::Sender<Pid>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().send(gettid()).unwrap();
    }
}

/// A future that is polled by this thread.
struct Awaited {
    waker: Waker,
    woken: mpsc::Receiver<Pid>,
    pending: PendingExecution,
}

impl Awaited {
    fn new(pending: PendingExecution) -> Awaited {
        let (sender, woken) = mpsc::channel();
        Awaited {
            waker: Arc::new(Woken(Mutex::new(sender))).into(),
            woken,
            pending,
        }
    }

    fn poll(&mut self) -> Poll<Outcome> {
        Pin::new(&mut self.pending).poll(&mut Context::from_waker(&self.waker))
    }

    fn end(mut self) -> Outcome {
        loop {
            if let Poll::Ready(outcome) = self.poll() {
                return outcome;
            }
            self.woken.recv_timeout(TIMEOUT).unwrap();
        }
    }
}

/// Has the outcome told to a callback.
fn told(pending: PendingExecution) -> mpsc::Receiver<Outcome> {
    let (sender, outcome) = mpsc::channel();
    pending.on_end(move |end| sender.send(end).unwrap()).unwrap();
    outcome
}

/// The ways to learn of the end.
const WAYS: [fn(PendingExecution) -> Outcome; 4] = [
    |mut pending| pending.wait(at_last()),
    |pending| Awaited::new(pending).end(),
    |pending| told(pending).recv_timeout(TIMEOUT).unwrap(),
    // One after the other.
    |pending| {
        let mut awaited = Awaited::new(pending);
        match awaited.poll() {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => awaited.pending.wait(at_last()),
        }
    },
];

#[test]
fn results_are_waited_for_awaited_and_told_to_callbacks() {
    let (_daemon, device) = start(REFERENCE, "");
    let prepared = prepare(&device);
    // More requests than are remembered, and the same again.
    let arguments: Vec<Arguments> = (0..12).map(|_| Arguments::new(0.0)).collect();
    for round in 0..100 {
        let arguments = &arguments[round % 7 * round % 12];
        let value = round as f32;
        arguments.memory.write(0, &[value]).unwrap();
        let options = ExecuteOptions::new().measure_timing();
        let pending = prepared.start(&arguments.request, &options).unwrap();
        let completed = WAYS[round % WAYS.len()](pending).unwrap();
        assert_ne!(completed.timing.time_in_driver_us, u64::MAX);
        arguments.expect_output(value + 1.0);
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn more_at_once_than_there_are_rings() {
    let (_daemon, device) = start(REFERENCE, "");
    let prepared = prepare(&device);
    let arguments: Vec<Arguments> = (0..24).map(|value| Arguments::new(value as f32)).collect();
    for _ in 0..10 {
        let options = ExecuteOptions::new();
        let started = arguments
            .iter()
            .map(|arguments| prepared.start(&arguments.request, &options).unwrap());
        let started: Vec<PendingExecution> = started.collect();
        for (index, (pending, arguments)) in started.into_iter().zip(&arguments).enumerate() {
            WAYS[index % WAYS.len()](pending).unwrap();
            arguments.expect_output(index as f32 + 1.0);
            arguments.memory.write(4, &[0.0_f32]).unwrap();
        }
    }
    let bursts = burst_threads(device.worker().pid);
    assert!((1..=MOST_OF_MODEL).contains(&bursts), "{bursts}");
}

#[test]
fn what_is_wrong_with_a_request_is_said_at_once() {
    let (_daemon, device) = start(REFERENCE, "");
    let prepared = prepare(&device);
    let Arguments { memory, .. } = Arguments::new(1.0);
    let wrong = Request::new().input(&memory, 0..2).output(&memory, 4..8);
    for _ in 0..3 {
        let error = prepared.start(&wrong, &ExecuteOptions::new()).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        launch(&prepared).wait(at_last()).unwrap();
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn execution_that_runs_is_cancelled_whoever_waits() {
    let (_daemon, device, prepared) = endless("");
    for way in WAYS.iter().cycle().take(12) {
        let mut pending = launch(&prepared);
        expect_running(&mut pending);
        pending.cancel();
        expect_cancelled(way(pending));
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn execution_is_cancelled_before_it_runs() {
    let (_daemon, _device, prepared) = endless("[execution]\nslots = 1\n");
    let mut runs = launch(&prepared);
    expect_running(&mut runs);
    for way in WAYS {
        let queued = launch(&prepared);
        queued.cancel();
        expect_cancelled(way(queued));
        expect_running(&mut runs);
    }
    runs.cancel();
    expect_cancelled(runs.wait(at_last()));
}

#[test]
fn cancelling_what_has_ended_harms_no_other() {
    let (_daemon, device, prepared) = endless("[execution]\nslots = 1\n");
    for _ in 0..4 {
        let mut ended = launch(&prepared);
        ended.cancel();
        expect_cancelled(ended.wait(at_last()));
        let mut next = launch(&prepared);
        ended.cancel();
        // Whatever was asked for has come when this is answered.
        device.status().unwrap();
        expect_running(&mut next);
        // Nor does it take back what is asked for the next.
        next.cancel();
        ended.cancel();
        expect_cancelled(next.wait(at_last()));
    }
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn stopped_worker_keeps_nobody_who_does_not_wait() {
    let (_daemon, device, prepared) = endless("");
    let (mut awaited, given_up) = (Awaited::new(launch(&prepared)), launch(&prepared));
    let worker = Pid::from_raw(device.worker().pid.cast_signed());
    kill(worker, Signal::SIGSTOP).unwrap();
    let began = MonotonicClock.now();
    assert!(awaited.poll().is_pending());
    drop(given_up);
    // More often than the socket has room for, and more often than is kept.
    for _ in 0..10_000 {
        awaited.pending.cancel();
    }
    expect_running(&mut awaited.pending);
    let took = MonotonicClock.now().saturating_since(began);
    kill(worker, Signal::SIGCONT).unwrap();
    assert!(took < TIMEOUT, "{took:?}");
    // What the socket had no room for is said before this.
    device.status().unwrap();
    expect_cancelled(awaited.end());
}

#[test]
fn execution_that_is_given_up_ends_and_lets_go_of_all() {
    let (_daemon, device, prepared) = endless("");
    for round in 0..20 {
        let mut awaited = Awaited::new(launch(&prepared));
        if round % 2 == 0 {
            assert!(awaited.poll().is_pending());
        }
    }
    let worker = device.worker().pid;
    assert!((1..=MOST_OF_MODEL).contains(&burst_threads(worker)));
    drop((prepared, device));
    wait_until("the worker has ended with its client", || !is_alive(worker));
}

#[test]
fn deadlines_end_executions_and_waits() {
    let (_daemon, device, prepared) = endless("");
    for way in WAYS {
        let options = ExecuteOptions::new().timeout(Duration::from_millis(500));
        let arguments = Arguments::new(1.0);
        let mut pending = prepared.start(&arguments.request, &options).unwrap();
        expect_running(&mut pending);
        let error = way(pending).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::MissedDeadlineTransient, "{error}");
    }
    // Also where the completer has it.
    let mut awaited = Awaited::new(launch(&prepared));
    assert!(awaited.poll().is_pending());
    expect_running(&mut awaited.pending);
    awaited.pending.cancel();
    expect_cancelled(awaited.end());
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn death_of_the_worker_is_told_whoever_waits() {
    for way in WAYS {
        let (_daemon, device, prepared) = endless("");
        let mut pending = launch(&prepared);
        expect_running(&mut pending);
        let worker = device.worker().pid.cast_signed();
        let outcome = std::thread::scope(|scope| {
            let waits = scope.spawn(|| way(pending));
            kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
            waits.join().unwrap()
        });
        let later = prepared.start(&Arguments::new(1.0).request, &ExecuteOptions::new());
        for error in [outcome.unwrap_err(), later.unwrap_err()] {
            assert!(error.is_dead_object(), "{error}");
        }
    }
}

#[test]
fn executions_outlive_the_supervisor() {
    let (daemon, _device, prepared) = endless("");
    let (mut waited_for, mut awaited) = (launch(&prepared), Awaited::new(launch(&prepared)));
    expect_running(&mut waited_for);
    assert!(awaited.poll().is_pending());
    daemon.signal(Signal::SIGKILL);
    wait_until("the supervisor is dead", || !is_alive(daemon.pid()));
    expect_running(&mut waited_for);
    waited_for.cancel();
    expect_cancelled(waited_for.wait(at_last()));
    awaited.pending.cancel();
    expect_cancelled(awaited.end());
}

#[test]
fn driver_that_ends_waits_for_executions_which_can_be_cancelled() {
    let (daemon, device, prepared) = endless("");
    let (mut waited_for, mut awaited) = (launch(&prepared), Awaited::new(launch(&prepared)));
    expect_running(&mut waited_for);
    assert!(awaited.poll().is_pending());
    daemon.signal(Signal::SIGTERM);
    wait_until("the driver takes nothing new", || device.status().is_err());
    waited_for.cancel();
    expect_cancelled(waited_for.wait(at_last()));
    awaited.pending.cancel();
    expect_cancelled(awaited.end());
}

#[test]
fn callbacks_start_the_next_execution() {
    fn go_on(prepared: Arc<PreparedModel>, left: u32, said: mpsc::Sender<Outcome>) {
        let pending = launch(&prepared);
        let callback = move |outcome: Outcome| match left {
            0 => said.send(outcome).unwrap(),
            _ => go_on(prepared, left - 1, said),
        };
        pending.on_end(callback).unwrap();
    }
    let (_daemon, device) = start(REFERENCE, "");
    let (said, heard) = mpsc::channel();
    // The last callback lets go of its model. This one keeps the model's burst open.
    let prepared = Arc::new(prepare(&device));
    go_on(Arc::clone(&prepared), 100, said);
    heard.recv_timeout(TIMEOUT).unwrap().unwrap();
    assert_eq!(burst_threads(device.worker().pid), 1);
}

#[test]
fn waker_that_panics_harms_no_other() {
    struct Panicking;
    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    let (_daemon, _device, prepared) = endless("");
    let (mut first, mut second) = (Awaited::new(launch(&prepared)), Awaited::new(launch(&prepared)));
    first.waker = Arc::new(Panicking).into();
    for awaited in [&mut first, &mut second] {
        assert!(awaited.poll().is_pending());
        awaited.pending.cancel();
    }
    expect_cancelled(second.end());
    expect_cancelled(first.pending.wait(at_last()));
}

#[test]
fn thread_that_takes_results_rests_while_none_is_due() {
    let (_daemon, _device, prepared) = endless("");
    let mut awaited = Awaited::new(launch(&prepared));
    assert!(awaited.poll().is_pending());
    awaited.pending.cancel();
    let completer = awaited.woken.recv_timeout(TIMEOUT).unwrap().as_raw();
    expect_cancelled(awaited.end());
    let activity = || activities_of(std::process::id()).get(&completer).copied();
    let before = activity();
    assert!(before.is_some());
    wait_until("it does nothing through many executions", || {
        let before = activity();
        for _ in 0..20 {
            let mut pending = launch(&prepared);
            expect_running(&mut pending);
            pending.cancel();
            expect_cancelled(pending.wait(at_last()));
        }
        activity() == before
    });
}
