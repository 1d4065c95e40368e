//! A client that forks (T24): what the parent opened is refused in the child, whose end and whose dropping of
//! it harm nothing; the child can open devices of its own. Alone in its binary, because a fork copies a whole
//! process.

use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use nix::sys::wait::WaitStatus;
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Burst, BurstOptions, Clock, Completed, Deadline, Device, Devices,
    DevicesOptions, Error, ErrorKind, ExecuteOptions, Fence, FencedExecution, Memory, ModelBuilder,
    MonotonicClock, OperationType, PendingExecution, PrepareOptions, PreparedModel, RegisteredRequest,
    Request, TensorType, WaitFor,
};
use nnhal_os::fork;
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, is_alive};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";

/// `output = input + input`, one float.
fn double_model() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.finish().unwrap()
}

/// A memory with an input and room for an output, and the request on it.
fn arguments(input: f32) -> (Memory, Request) {
    let memory = Memory::new(8).unwrap();
    memory.write(0, &[input]).unwrap();
    let request = Request::new().input(&memory, 0..4).output(&memory, 4..8);
    (memory, request)
}

fn output(memory: &Memory) -> f32 {
    memory.read::<f32>(4, 1).unwrap()[0]
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

fn poll(pending: &mut PendingExecution) -> Poll<Result<Completed, Error>> {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
}

/// Every kind of handle, in use.
struct Handles {
    device: Device,
    prepared: PreparedModel,
    burst: Burst,
    registered: RegisteredRequest,
    /// Has an execution under way.
    pipeline: Burst,
    pending: PendingExecution,
    /// Was awaited, too.
    awaited: PendingExecution,
    fenced: FencedExecution,
    buffer: Buffer,
    memory: Memory,
    request: Request,
    expected: Memory,
    pipelined: Memory,
    delayed: Memory,
}

impl Handles {
    /// `gate` holds the fenced execution back.
    fn new(device: Device, gate: &Fence) -> Handles {
        let prepared = device.prepare(&double_model(), &PrepareOptions::new()).unwrap();
        let options = ExecuteOptions::new();
        let (memory, request) = arguments(1.0);
        // The second one opens rings, which stay.
        (0..2).for_each(|_| drop(prepared.execute(&request, &options).unwrap()));
        let (pipelined, submitted) = arguments(2.0);
        let (delayed, held) = arguments(3.0);
        let (expected, other) = arguments(4.0);
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        let registered = burst.register(&request).unwrap();
        burst.fire(&registered, &options).unwrap();
        let mut pipeline = prepared.burst(&BurstOptions::new().in_flight(2)).unwrap();
        let in_flight = pipeline.register(&submitted).unwrap();
        pipeline.submit(&in_flight, &options).unwrap();
        let role = BufferRole {
            model_index: 0,
            io_index: 0,
            frequency: 1.0,
        };
        let buffer = device
            .allocate(&BufferDesc::default(), &[&prepared], &[role], &[])
            .unwrap();
        buffer.copy_from(&Memory::new(4).unwrap(), &[]).unwrap();
        let mut awaited = prepared.start(&other, &options).unwrap();
        // It may end at once: then its result is taken, and another is started.
        while poll(&mut awaited).is_ready() {
            awaited = prepared.start(&other, &options).unwrap();
        }
        Handles {
            pending: prepared.start(&request, &options).unwrap(),
            awaited,
            fenced: prepared
                .execute_fenced(&held, &[WaitFor::Fence(gate)], &options)
                .unwrap(),
            device,
            prepared,
            burst,
            registered,
            pipeline,
            buffer,
            memory,
            request,
            expected,
            pipelined,
            delayed,
        }
    }

    /// Tries everything; returns what was not refused for the reason that this is a fork.
    fn try_all(&mut self) -> Vec<String> {
        let options = ExecuteOptions::new();
        let model = double_model();
        let value = [1.0_f32];
        let mut result = [0.0_f32];
        let inputs = [nnhal_client::Input::from(&value)];
        let mut outputs = [nnhal_client::Output::from(&mut result)];
        let fresh = Memory::new(4).unwrap();
        let on_fresh = Request::new().input(&fresh, 0..4).output(&fresh, 0..4);
        let mut unrefused = Vec::new();
        let mut expect = |what: &str, outcome: Result<(), Error>| match outcome {
            Err(error) if matches!(error.kind(), ErrorKind::Forked) => {}
            other => unrefused.push(format!("{what}: {other:?}")),
        };
        expect("status", self.device.status().map(none_of));
        expect(
            "supported operations",
            self.device.supported_operations(&model).map(none_of),
        );
        expect(
            "prepare",
            self.device.prepare(&model, &PrepareOptions::new()).map(none_of),
        );
        expect(
            "execute",
            self.prepared.execute(&self.request, &options).map(none_of),
        );
        expect(
            "execute on new memory",
            self.prepared.execute(&on_fresh, &options).map(none_of),
        );
        expect("start", self.prepared.start(&self.request, &options).map(none_of));
        expect(
            "run",
            self.prepared.run(&inputs, &mut outputs, &options).map(none_of),
        );
        expect(
            "make a burst",
            self.prepared.burst(&BurstOptions::new()).map(none_of),
        );
        expect(
            "burst, execute",
            self.burst.execute(&self.request, &options).map(none_of),
        );
        expect(
            "burst, fire",
            self.burst.fire(&self.registered, &options).map(none_of),
        );
        expect("burst, register", self.burst.register(&self.request).map(none_of));
        expect(
            "burst, run",
            self.burst.run(&inputs, &mut outputs, &options).map(none_of),
        );
        expect(
            "burst, next finished",
            self.pipeline.next_finished(&options).map(none_of),
        );
        expect(
            "burst, look for finished",
            self.pipeline.try_next_finished().map(none_of),
        );
        expect(
            "wait for an execution",
            self.pending.wait(default_deadline()).map(none_of),
        );
        if let Poll::Ready(outcome) = poll(&mut self.awaited) {
            expect("await an execution", outcome.map(none_of));
        } else {
            expect("await an execution", Ok(()));
        }
        expect(
            "wait for a fenced execution",
            self.fenced.wait(default_deadline()).map(none_of),
        );
        expect("fenced info", self.fenced.info().map(none_of));
        let fenced = self.prepared.execute_fenced(&self.request, &[], &options);
        expect("execute fenced", fenced.map(none_of));
        expect("copy to", self.buffer.copy_to(&self.memory).map(none_of));
        expect("copy from", self.buffer.copy_from(&self.memory, &[]).map(none_of));
        unrefused
    }

    /// All goes on as if there had been no fork.
    fn expect_unharmed(mut self, gate: nnhal_client::FenceSource) {
        let options = ExecuteOptions::new();
        self.pending.wait(default_deadline()).unwrap();
        assert_eq!(output(&self.memory), 2.0);
        self.awaited.wait(default_deadline()).unwrap();
        assert_eq!(output(&self.expected), 8.0);
        self.pipeline
            .next_finished(&options)
            .unwrap()
            .unwrap()
            .result
            .unwrap();
        assert_eq!(output(&self.pipelined), 4.0);
        gate.signal().unwrap();
        self.fenced.wait(default_deadline()).unwrap();
        assert_eq!(output(&self.delayed), 6.0);
        for value in [5.0_f32, 6.0, 7.0] {
            self.memory.write(0, &[value]).unwrap();
            self.burst.fire(&self.registered, &options).unwrap();
            assert_eq!(output(&self.memory), 2.0 * value);
        }
        self.burst.execute(&self.request, &options).unwrap();
        self.prepared.execute(&self.request, &options).unwrap();
        self.buffer.copy_to(&Memory::new(4).unwrap()).unwrap();
        self.device.status().unwrap();
    }
}

fn none_of<T>(_: T) {}

/// Opens the device anew and executes.
fn work_alone(devices: &Devices) {
    let device = devices.device(REFERENCE).unwrap();
    let prepared = device.prepare(&double_model(), &PrepareOptions::new()).unwrap();
    let (memory, request) = arguments(21.0);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    burst.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(output(&memory), 42.0);
}

/// Forks while the handles are in use. `devices` is where the child finds devices of its own.
fn fork_with(handles: Handles, devices: &Devices, gate: nnhal_client::FenceSource) {
    let worker = handles.device.worker().pid;
    let mut handles = Some(handles);
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let ended = fork::run_in_copy(|| {
        let mut own = handles.take().unwrap();
        for unrefused in own.try_all() {
            writeln!(tell, "{unrefused}").unwrap();
        }
        drop(own);
        work_alone(devices);
        0
    });
    drop(tell);
    let mut unrefused = String::new();
    told.read_to_string(&mut unrefused).unwrap();
    assert_eq!(unrefused, "", "T24");
    assert!(matches!(ended, Ok(WaitStatus::Exited(_, 0))), "T24: {ended:?}");
    assert!(is_alive(worker));
    handles.unwrap().expect_unharmed(gate);
}

#[test]
fn handles_are_refused_in_a_fork_and_go_on_in_the_parent() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let (gate, closed) = Fence::create().unwrap();
    let handles = Handles::new(devices.device(REFERENCE).unwrap(), &closed);
    fork_with(handles, &devices, gate);
    // A private driver is a child of the parent alone, and ends with it alone.
    let devices = DevicesOptions::new()
        .private()
        .driver(EXE, Vec::<String>::new())
        .open()
        .unwrap();
    let (gate, closed) = Fence::create().unwrap();
    let handles = Handles::new(devices.device(REFERENCE).unwrap(), &closed);
    let supervisor = handles.device.supervisor().pid;
    fork_with(handles, &devices, gate);
    assert!(is_alive(supervisor));
    work_alone(&devices);
}
