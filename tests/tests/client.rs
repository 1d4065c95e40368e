//! The client library against the real daemon: every way to execute, and every kind of error.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{
    Arguments, BufferDesc, BufferRole, Clock, Deadline, Device, Devices, DevicesOptions, ErrorKind,
    ErrorStatus, ExecuteOptions, Input, Memory, Model, ModelBuilder, MonotonicClock, OperationType, Output,
    PrepareOptions, PreparedModel, Remedy, Request, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, children_of, fds_of, is_alive, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";
const FAST: &str = "nnhal-cpu";

fn start() -> (TestDaemon, Device) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let device = open(&daemon, REFERENCE);
    (daemon, device)
}

fn open(daemon: &TestDaemon, name: &str) -> Device {
    Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(name)
        .unwrap()
}

/// `output = input + 1, 2, 3, 4`, with as many rows as the input has if `rows` is 0.
fn add_model(rows: u32) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[rows, 4]));
    let y = model.constant(TensorType::float32(&[4]), &[1.0_f32, 2.0, 3.0, 4.0]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[rows, 4]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

fn prepare(device: &Device, rows: u32) -> PreparedModel {
    device.prepare(&add_model(rows), &PrepareOptions::new()).unwrap()
}

/// Arguments of `add_model(1)` with ones as the input.
fn ones(prepared: &PreparedModel) -> Arguments {
    let mut arguments = prepared.new_arguments().unwrap();
    arguments.write(0, &[1.0_f32; 4]).unwrap();
    arguments
}

fn expect_sum(arguments: &Arguments) {
    assert_eq!(arguments.read::<f32>(0).unwrap(), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn values_go_in_and_come_out() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, 1);
    for round in 0..3 {
        let mut sum = [0.0_f32; 4];
        let input = [round as f32; 4];
        prepared
            .run(
                &[Input::from(&input)],
                &mut [Output::from(&mut sum)],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert_eq!(sum, [1.0, 2.0, 3.0, 4.0].map(|value: f32| value + round as f32));
    }
}

#[test]
fn open_dimensions_are_given_and_reported() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, 0);
    let mut sums = [9.0_f32; 12];
    let completed = prepared
        .run(
            &[Input::from(&[0.0_f32; 8]).with_dimensions(&[2, 4])],
            &mut [Output::from(&mut sums)],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert_eq!(completed.output_shapes[0].dimensions, [2, 4]);
    assert_eq!(sums, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0]);

    let error = prepared
        .run(
            &[Input::from(&[0.0_f32; 8]).with_dimensions(&[2, 4])],
            &mut [Output::from(&mut sums[..4])],
            &ExecuteOptions::new(),
        )
        .unwrap_err();
    assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
    assert_eq!(error.output_shapes()[0].dimensions, [2, 4]);
    assert!(!error.output_shapes()[0].is_sufficient);
}

#[test]
fn execution_is_waited_for_awaited_or_told_to_a_callback() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, 1);
    let options = ExecuteOptions::new().measure_timing();

    let arguments = ones(&prepared);
    let completed = prepared.execute(arguments.request(), &options).unwrap();
    expect_sum(&arguments);
    assert!(completed.timing.time_on_device_us <= completed.timing.time_in_driver_us);
    assert_ne!(completed.timing.time_in_driver_us, u64::MAX);

    let arguments = ones(&prepared);
    let mut pending = prepared
        .start(arguments.request(), &ExecuteOptions::new())
        .unwrap();
    let completed = pending.wait(Deadline::NONE).unwrap();
    expect_sum(&arguments);
    assert_eq!(completed.timing.time_in_driver_us, u64::MAX);

    let arguments = ones(&prepared);
    block_on(prepared.start(arguments.request(), &options).unwrap()).unwrap();
    expect_sum(&arguments);

    let arguments = ones(&prepared);
    let (sender, done) = mpsc::channel();
    let pending = prepared.start(arguments.request(), &options).unwrap();
    pending
        .on_end(move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    done.recv().unwrap().unwrap();
    expect_sum(&arguments);
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn many_threads_share_one_prepared_model() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, 1);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let prepared = &prepared;
            scope.spawn(move || {
                for round in 0..30 {
                    let value = (thread * 100 + round) as f32;
                    let mut sum = [0.0_f32; 4];
                    prepared
                        .run(
                            &[Input::from(&[value; 4])],
                            &mut [Output::from(&mut sum)],
                            &ExecuteOptions::new(),
                        )
                        .unwrap();
                    assert_eq!(sum, [value + 1.0, value + 2.0, value + 3.0, value + 4.0]);
                }
            });
        }
    });
}

/// N040 is about the arguments.
#[test]
fn refused_models_and_requests_say_what_and_where() {
    let (_daemon, device) = start();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, 4]));
    let sum = model.output(TensorType::float32(&[1, 4]));
    model.operation(OperationType::ADD, &[x, x], &[sum]);
    let error = device
        .prepare(&model.finish().unwrap(), &PrepareOptions::new())
        .unwrap_err();
    assert_eq!(error.status(), ErrorStatus::InvalidArgument);
    assert_eq!(error.remedy(), Remedy::GiveUp);
    assert_eq!(error.process(), Some(device.worker()));
    assert!(error.to_string().contains("ADD"), "{error}");

    let prepared = prepare(&device, 1);
    let memory = Memory::new(16).unwrap();
    let request = Request::new().input(&memory, 0..12).output(&memory, 0..16);
    let error = prepared.execute(&request, &ExecuteOptions::new()).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::InvalidArgument);
    assert!(error.to_string().contains("input 0"), "{error}");
    let error = prepared.start(&request, &ExecuteOptions::new()).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::InvalidArgument);

    let late = ExecuteOptions::new().deadline(Deadline::from_raw(1));
    let error = prepared.execute(ones(&prepared).request(), &late).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlinePersistent, "{error}");
}

#[test]
fn operations_that_are_not_supported_have_a_reason() {
    let (_daemon, device) = start();
    let supported = device.supported_operations(&add_model(1)).unwrap();
    assert_eq!(supported, [nnhal_client::OperationSupport::Supported]);
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::new(nnhal_client::OperandType::TENSOR_OEM_BYTE, &[4]));
    let y = model.output(TensorType::new(nnhal_client::OperandType::TENSOR_OEM_BYTE, &[4]));
    model.operation(OperationType::OEM_OPERATION, &[x], &[y]);
    let model = model.finish().unwrap();
    match &device.supported_operations(&model).unwrap()[..] {
        [nnhal_client::OperationSupport::Unsupported { reason }] => assert!(!reason.is_empty()),
        other => panic!("{other:?}"),
    }
    let error = device.prepare(&model, &PrepareOptions::new()).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
}

#[test]
fn memory_that_is_none_is_refused_by_the_driver() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, 1);
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = Memory::from_fd(reader.into(), 0, 64, false).unwrap();
    let memory = Memory::new(16).unwrap();
    let request = Request::new().input(&pipe, 0..16).output(&memory, 0..16);
    let error = prepared.execute(&request, &ExecuteOptions::new()).unwrap_err();
    assert!(error.failure().is_some(), "{error}");
    assert!(error.to_string().contains("pipe"), "{error}");
}

#[test]
fn constants_and_arguments_in_files_are_used_from_their_offset() {
    use std::os::unix::fs::FileExt;
    let (_daemon, device) = start();
    let file = tempfile::tempfile().unwrap();
    let bytes = |values: &[f32]| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    file.write_all_at(&bytes(&[5.0, 6.0, 7.0, 8.0]), 4100).unwrap();
    file.write_all_at(&bytes(&[1.0; 4]), 5000).unwrap();
    file.set_len(6000).unwrap();
    let constants = Memory::from_fd(file.try_clone().unwrap().into(), 4100, 16, false).unwrap();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let y = model.constant_in_memory(TensorType::float32(&[4]), &constants, 0..16);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    let prepared = device
        .prepare(&model.finish().unwrap(), &PrepareOptions::new())
        .unwrap();
    let input = Memory::from_fd(file.into(), 4904, 200, false).unwrap();
    let output = Memory::new(16).unwrap();
    let request = Request::new().input(&input, 96..112).output(&output, 0..16);
    prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(output.read::<f32>(0, 4).unwrap(), [6.0, 7.0, 8.0, 9.0]);
}

#[test]
fn worker_forgets_what_the_client_drops() {
    let (_daemon, device) = start();
    let worker = device.worker().pid;
    let prepared = prepare(&device, 1);
    let execute = || {
        let memory = Memory::new(32).unwrap();
        let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
        prepared.execute(&request, &ExecuteOptions::new()).unwrap();
        memory
    };
    // The second execution opens rings, which stay.
    drop((execute(), execute()));
    // Releases are told, not waited for, but the worker handles calls in their order.
    device.status().unwrap();
    let before = fds_of(worker);
    let kept: Vec<Memory> = (0..20).map(|_| execute()).collect();
    assert!(
        fds_of(worker) >= before,
        "workers may map memories without keeping their descriptors"
    );
    drop(kept);
    wait_until("the worker has forgotten the memories", || {
        fds_of(worker) <= before
    });
}

#[test]
fn device_ends_its_worker_when_the_last_handle_goes() {
    let (daemon, device) = start();
    let worker = device.worker().pid;
    let prepared = prepare(&device, 1);
    drop(device);
    assert!(is_alive(worker));
    expect_runs(&prepared);
    drop(prepared);
    wait_until("the worker has ended", || {
        !children_of(daemon.pid()).contains(&worker)
    });
}

fn expect_runs(prepared: &PreparedModel) {
    let arguments = ones(prepared);
    prepared
        .execute(arguments.request(), &ExecuteOptions::new())
        .unwrap();
    expect_sum(&arguments);
}

#[test]
fn objects_of_different_connections_do_not_mix() {
    let (daemon, device) = start();
    let other = open(&daemon, REFERENCE);
    let prepared = prepare(&other, 1);
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let error = device
        .allocate(&BufferDesc::default(), &[&prepared], &[role], &[])
        .unwrap_err();
    assert!(error.to_string().contains("another connection"), "{error}");
    // Memories are shared with whoever needs them.
    let here = prepare(&device, 1);
    let arguments = ones(&here);
    here.execute(arguments.request(), &ExecuteOptions::new()).unwrap();
    prepared
        .execute(arguments.request(), &ExecuteOptions::new())
        .unwrap();
    expect_sum(&arguments);
}

#[test]
fn client_that_is_turned_away_is_told_why() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings("[clients]\nmax = 2\n"));
    let _held = [open(&daemon, REFERENCE), open(&daemon, FAST)];
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    for _ in 0..20 {
        for error in [devices.device(FAST).unwrap_err(), devices.fastest().unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::Handshake { .. }), "{error}");
            assert!(error.to_string().contains("serves 2 clients"), "{error}");
        }
    }
}

#[test]
fn looking_for_devices_needs_room_for_one_client_only() {
    let options = DaemonOptions {
        log: Some("info".to_owned()),
        ..DaemonOptions::with_settings("[clients]\nmax = 1\n")
    };
    let daemon = TestDaemon::start(EXE, &options);
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    assert_eq!(devices.names().unwrap(), [FAST, REFERENCE]);
    devices.device("acme-npu").unwrap_err();
    assert!(!daemon.log().contains("turned away"));
    for _ in 0..5 {
        let infos = devices.list().unwrap();
        assert!(
            infos.iter().map(|info| &*info.name).eq([FAST, REFERENCE]),
            "{infos:?}"
        );
        let fastest = devices.fastest().unwrap();
        assert_eq!(fastest.name(), FAST);
        let worker = fastest.worker().pid;
        drop(fastest);
        wait_until("the worker has been reaped", || {
            !children_of(daemon.pid()).contains(&worker)
        });
    }
}

#[test]
fn private_driver_is_started_and_leaves_nothing_behind() {
    let devices = DevicesOptions::new()
        .private()
        .driver(EXE, Vec::<String>::new())
        .open()
        .unwrap();
    assert_eq!(devices.names().unwrap(), [FAST, REFERENCE]);
    let device = devices.fastest().unwrap();
    assert_eq!(device.name(), FAST);
    assert!(device.is_private());
    let (worker, supervisor) = (device.worker().pid, device.supervisor().pid);
    assert!(children_of(std::process::id()).contains(&supervisor));
    let directory = runtime_dir_of(supervisor);
    assert!(directory.is_dir(), "{}", directory.display());
    assert_eq!(device.runtime_dir(), directory);
    // The same driver has the other device.
    assert_eq!(devices.device(REFERENCE).unwrap().supervisor().pid, supervisor);
    drop(devices);
    let prepared = prepare(&device, 1);
    drop(device);
    expect_runs(&prepared);
    assert!(is_alive(worker) && is_alive(supervisor));
    drop(prepared);
    assert!(!children_of(std::process::id()).contains(&supervisor));
    wait_until("the worker has ended", || !is_alive(worker));
    assert!(!directory.exists());
}

/// Where a private driver was told to publish its sockets.
fn runtime_dir_of(supervisor: u32) -> PathBuf {
    let arguments = std::fs::read_to_string(format!("/proc/{supervisor}/cmdline")).unwrap();
    let mut arguments = arguments.split('\0').skip_while(|text| *text != "--runtime-dir");
    arguments.nth(1).unwrap().into()
}

/// The devices of a private driver, which is one for each level of its log.
fn private_devices(log: &str) -> Devices {
    let options = DevicesOptions::new().private();
    options.driver(EXE, ["--log", log]).open().unwrap()
}

#[test]
fn private_driver_that_is_killed_leaves_nothing_behind() {
    let devices = private_devices("error");
    let device = devices.device(REFERENCE).unwrap();
    let (worker, supervisor) = (device.worker().pid, device.supervisor().pid);
    let directory = runtime_dir_of(supervisor);
    kill(Pid::from_raw(supervisor.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until("the supervisor is dead", || !is_alive(supervisor));
    expect_runs(&prepare(&device, 1));
    // Another is started in its place, and does not take the directory of a process that lives.
    assert_eq!(devices.device(REFERENCE).unwrap().name(), REFERENCE);
    drop(devices);
    assert!(directory.is_dir());
    drop(device);
    assert!(!directory.exists());
    wait_until("the worker has ended", || !is_alive(worker));
}

#[test]
fn private_driver_is_replaced_also_while_it_dies() {
    // None of other tests, whose driver it would kill.
    let devices = private_devices("off");
    for _ in 0..8 {
        let supervisor = devices.device(REFERENCE).unwrap().supervisor().pid;
        kill(Pid::from_raw(supervisor.cast_signed()), Signal::SIGKILL).unwrap();
        let device = devices.device(REFERENCE).unwrap();
        assert_ne!(device.supervisor().pid, supervisor);
    }
}

#[test]
fn driver_whose_owner_is_killed_leaves_nothing_behind() {
    let mut daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let device = open(&daemon, REFERENCE);
    let directory = daemon.runtime_dir();
    drop(device);
    daemon.close_owner();
    assert!(daemon.wait().success());
    assert!(!directory.exists());
}

#[test]
fn private_driver_without_the_device_is_an_error_with_its_words() {
    let devices = DevicesOptions::new()
        .private()
        .driver(EXE, Vec::<String>::new())
        .open()
        .unwrap();
    let error = devices.device("acme-npu").unwrap_err();
    assert!(
        error.to_string().contains("there is no device \"acme-npu\""),
        "{error}"
    );
    let error = devices.device("no device").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoSuchDevice { .. }), "{error}");
}

#[test]
fn deadline_of_the_wait_is_kept() {
    let settings = "[device.nnhal-empty]\nfault = \"loop\"\n";
    let options = DaemonOptions {
        devices: vec!["nnhal-empty".to_owned()],
        ..DaemonOptions::with_settings(settings)
    };
    let daemon = TestDaemon::start(EXE, &options);
    let device = open(&daemon, "nnhal-empty");
    let prepared = prepare(&device, 1);
    let arguments = ones(&prepared);
    let impatient = ExecuteOptions::new().wait_at_most(Duration::from_millis(20));
    let error = prepared.execute(arguments.request(), &impatient).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::Retry);
    // The driver is asked to end it, so the worker is free again.
    device.status().unwrap();

    // Long enough that the request arrives in time on a busy machine: what arrives too late fails for good.
    let short = ExecuteOptions::new().timeout(Duration::from_millis(200));
    let error = prepared.execute(arguments.request(), &short).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::MissedDeadlineTransient, "{error}");

    let mut pending = prepared
        .start(arguments.request(), &ExecuteOptions::new())
        .unwrap();
    let soon = Deadline::after(MonotonicClock.now(), Duration::from_millis(5));
    assert!(matches!(
        pending.wait(soon).unwrap_err().kind(),
        ErrorKind::TimedOut { .. }
    ));
    pending.cancel();
    let error = pending.wait(Deadline::NONE).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
    drop(
        prepared
            .start(arguments.request(), &ExecuteOptions::new())
            .unwrap(),
    );
}
