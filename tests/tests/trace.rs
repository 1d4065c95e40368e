//! The trace of an application and its worker in one file.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use nnhal::diag::trace::{MAX_SPANS, trace_bytes};
use nnhal::wire::{Call, Reply};
use nnhal_client::runtime::{CompilationOptions, RunInput, RunOutput, Runtime};
use nnhal_client::{
    BurstOptions, Clock, Deadline, Devices, ExecuteOptions, Fence, Memory, Model, ModelBuilder,
    MonotonicClock, OperationType, PrepareOptions, Request, SpanKind, TRACE_VARIABLE, TensorType, WaitFor,
    WorkerSpans,
};
use nnhal_hal::ErrorStatus;
use nnhal_os::shm::SharedMemory;
use nnhal_tests::{DaemonOptions, RawClient, TIMEOUT, TestDaemon, add_model};
use serde_json::Value;

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const DEVICE: &str = "nnhal-cpu";

fn start() -> TestDaemon {
    let options = DaemonOptions {
        devices: vec![DEVICE.into()],
        ..DaemonOptions::default()
    };
    TestDaemon::start(EXE, &options)
}

/// `tanh(x + x)`, four floats.
fn model() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    let sum = model.temporary(TensorType::float32(&[4]));
    let y = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.operation(OperationType::TANH, &[sum], &[y]);
    model.finish().unwrap()
}

/// What the test below traces: executions in every form, and one by the runtime.
#[test]
#[ignore = "a program for another test to run"]
fn traced_program() {
    let device = Devices::open().unwrap().device(DEVICE).unwrap();
    // They go into the file.
    let error = device.record_spans().unwrap_err();
    assert!(error.to_string().contains(TRACE_VARIABLE), "{error}");
    let prepared = device.prepare(&model(), &PrepareOptions::new()).unwrap();
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let options = ExecuteOptions::new();
    prepared.execute(&request, &options).unwrap();
    let default_deadline = || Deadline::after(MonotonicClock.now(), TIMEOUT);
    prepared
        .start(&request, &options)
        .unwrap()
        .wait(default_deadline())
        .unwrap();
    let (source, fence) = Fence::create().unwrap();
    let fenced = prepared
        .execute_fenced(&request, &[WaitFor::Fence(&fence)], &options)
        .unwrap();
    source.signal().unwrap();
    fenced.wait(default_deadline()).unwrap();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let registered = burst.register(&request).unwrap();
    (0..3).for_each(|_| drop(burst.fire(&registered, &options).unwrap()));
    let runtime = Runtime::open().unwrap();
    let compilation = runtime.compile(&model(), &CompilationOptions::new()).unwrap();
    let mut output = [0; 16];
    compilation
        .execute(
            &[RunInput::bytes(&[0; 16])],
            &mut [RunOutput::bytes(&mut output)],
            &options,
        )
        .unwrap();
}

/// The events of the file, whose last bracket is its reader's to add.
fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let whole = format!("{}]", text.trim_end().trim_end_matches(','));
    serde_json::from_str(&whole).unwrap()
}

fn micros(event: &Value, field: &str) -> f64 {
    event[field].as_f64().unwrap()
}

/// Whether a span lies in another by the common clock. The file has nanoseconds.
fn is_within(inner: &Value, outer: &Value) -> bool {
    let end = |event| micros(event, "ts") + micros(event, "dur");
    micros(inner, "ts") >= micros(outer, "ts") - 0.001 && end(inner) <= end(outer) + 0.001
}

#[test]
fn application_and_worker_are_in_one_trace() {
    let daemon = start();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "traced_program"])
        .env("NNHAL_RUNTIME_DIR", daemon.runtime_dir())
        .env(TRACE_VARIABLE, folder.path().join("trace-%p.json"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let events = events(file);

    let name_of = |event: &Value| event["args"]["name"].as_str().unwrap().to_owned();
    let processes: Vec<(Value, String)> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| (event["pid"].clone(), name_of(event)))
        .collect();
    let (application, _) = &processes[0];
    let workers: BTreeSet<u64> = processes[1..]
        .iter()
        .map(|(pid, _)| pid.as_u64().unwrap())
        .collect();
    assert!(
        processes[1..]
            .iter()
            .all(|(_, name)| name == "worker for nnhal-cpu"),
        "{processes:?}"
    );
    assert!(!workers.is_empty());

    let spans = |of_application: bool, name: &str| -> Vec<&Value> {
        let found = events
            .iter()
            .filter(|event| event["name"] == name && event["ph"] != "e");
        found
            .filter(|event| (event["pid"] == *application) == of_application)
            .collect()
    };
    for (name, count) in [
        ("prepare model", 2),
        ("execute fenced", 1),
        ("burst request", 5),
        ("configure burst", 2),
        ("divide model", 1),
        ("prepare step", 1),
        ("compute", 1),
        ("step", 1),
    ] {
        assert_eq!(spans(true, name).len(), count, "{name} of the application");
    }
    for (name, count) in [
        ("validate model", 3),
        ("make model ready", 2),
        ("wait for fences", 1),
        ("burst request", 6),
        ("copy inputs", 7),
        ("run", 7),
        ("copy outputs", 7),
        ("ADD", 7),
        ("TANH", 7),
    ] {
        assert_eq!(spans(false, name).len(), count, "{name} of the worker");
    }
    for (index, name) in ["ADD", "TANH"].into_iter().enumerate() {
        for operation in spans(false, name) {
            assert_eq!(
                (&operation["cat"], &operation["args"]["index"]),
                (&"cpuexe".into(), &index.into())
            );
            let runs = spans(false, "run");
            let mut own = runs.iter().filter(|run| run["tid"] == operation["tid"]);
            assert!(own.any(|run| is_within(operation, run)), "{operation}");
        }
    }
    let outer = spans(true, "burst request");
    let runs = spans(false, "run");
    let in_bursts = runs.iter().filter(|run| {
        let bursts = spans(false, "burst request");
        bursts
            .iter()
            .any(|burst| burst["tid"] == run["tid"] && is_within(run, burst))
    });
    // The asynchronous one goes by a ring, too, but no call waits for it from its start to its end.
    let outside: Vec<_> = in_bursts
        .filter(|served| !outer.iter().any(|execution| is_within(served, execution)))
        .collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
}

/// The operations that a worker recorded, with their places.
fn operations(spans: &mut WorkerSpans) -> Vec<(OperationType, u64)> {
    let mut found = Vec::new();
    let lost = spans.drain(|span| {
        if span.kind == SpanKind::Operation {
            let code = u32::try_from(span.detail).unwrap();
            found.push((OperationType(code), span.subject));
        }
    });
    assert_eq!(lost, 0);
    found
}

#[test]
fn program_reads_the_operations_of_each_execution_when_it_has_ended() {
    let daemon = start();
    let device = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(DEVICE)
        .unwrap();
    let prepared = device.prepare(&model(), &PrepareOptions::new()).unwrap();
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let options = ExecuteOptions::new();
    prepared.execute(&request, &options).unwrap();
    let mut spans = device.record_spans().unwrap();
    assert_eq!(operations(&mut spans), []);
    let both = [(OperationType::ADD, 0), (OperationType::TANH, 1)];
    let default_deadline = || Deadline::after(MonotonicClock.now(), TIMEOUT);
    prepared.execute(&request, &options).unwrap();
    assert_eq!(operations(&mut spans), both);
    let mut pending = prepared.start(&request, &options).unwrap();
    pending.wait(default_deadline()).unwrap();
    assert_eq!(operations(&mut spans), both);
    let fenced = prepared.execute_fenced(&request, &[], &options).unwrap();
    fenced.wait(default_deadline()).unwrap();
    assert_eq!(operations(&mut spans), both);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let registered = burst.register(&request).unwrap();
    for _ in 0..2 {
        burst.fire(&registered, &options).unwrap();
        assert_eq!(operations(&mut spans), both);
    }
    let error = device.record_spans().unwrap_err();
    assert!(error.to_string().contains("traces already"), "{error}");
}

#[test]
fn memory_that_does_for_no_trace_is_refused_and_the_next_one_taken() {
    let daemon = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), DEVICE);
    let memory = |bytes| SharedMemory::create(bytes).unwrap();
    let mut start = |memory: &SharedMemory, size| client.call(Call::StartTrace { size }, &[memory.as_fd()]);
    for (bytes, size) in [
        (64, 0),
        (64, 128),
        (100, 100),
        (64, u64::MAX),
        (trace_bytes(MAX_SPANS) + 64, trace_bytes(MAX_SPANS) + 64),
    ] {
        let failure = start(&memory(bytes), size).unwrap_err();
        assert_eq!(
            failure.status,
            ErrorStatus::InvalidArgument,
            "{size} of {bytes}: {failure}"
        );
    }
    // What can be cut short is no memory of a trace: writing to it would end the worker.
    let file = tempfile::tempfile().unwrap();
    file.set_len(64).unwrap();
    let unsealed = SharedMemory::from_fd(file.into(), 64, 64).unwrap();
    let failure = start(&unsealed, 64).unwrap_err();
    assert!(failure.detail.contains("sealed against shrinking"), "{failure}");
    assert_eq!(start(&memory(64), 64), Ok(Reply::Done));
    let failure = start(&memory(64), 64).unwrap_err();
    assert_eq!(failure.status, ErrorStatus::GeneralFailure);
    client.prepare(add_model(1)).unwrap();
}
