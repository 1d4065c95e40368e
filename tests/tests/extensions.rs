//! Vendor extensions and a second vendor's driver: the example driver beside nnhal's own, in one directory.

use nnhal_client::{
    BurstOptions, Clock, Completed, Deadline, Device, DeviceType, Devices, DevicesOptions, ErrorStatus,
    ExecuteOptions, Input, Memory, Model, ModelBuilder, MonotonicClock, OperandType, OperationSupport,
    OperationType, Output, PrepareOptions, PreparedModel, Request, Result, SpanKind, TensorType,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, wait_until};
use vendor_driver::extension::{self, Quantization};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const VENDOR_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-vendor-driver");

const QUANTIZATION: Quantization = Quantization {
    scale: 0.5,
    zero_point: 100,
};

fn start_vendor() -> (TestDaemon, Devices) {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    (daemon, devices)
}

/// The extension's types under the prefix that it has in one model.
struct Types {
    int64: OperandType,
    quant64: OperandType,
    fibonacci: OperationType,
}

impl Types {
    fn of(model: &mut ModelBuilder) -> Types {
        let prefix = model.extension(extension::NAME);
        Types {
            int64: OperandType::extension(prefix, extension::INT64),
            quant64: OperandType::extension(prefix, extension::TENSOR_QUANT64_ASYMM),
            fibonacci: OperationType::extension(prefix, extension::FIBONACCI),
        }
    }

    fn numbers(&self, dimensions: &[u32]) -> TensorType {
        TensorType::new(self.quant64, dimensions).with_extension_params(&QUANTIZATION.to_bytes())
    }
}

/// The first Fibonacci numbers, as many as the input says, where the model declares `dimensions` for them.
fn fibonacci_model(dimensions: &[u32]) -> Model {
    let mut model = ModelBuilder::new();
    let types = Types::of(&mut model);
    let count = model.input(TensorType::new(types.int64, &[]));
    let numbers = model.output(types.numbers(dimensions));
    model.operation(types.fibonacci, &[count], &[numbers]);
    model.finish().unwrap()
}

fn prepare(device: &Device, model: &Model) -> PreparedModel {
    device.prepare(model, &PrepareOptions::new()).unwrap()
}

fn dequantized(values: &[i64]) -> Vec<f64> {
    values
        .iter()
        .map(|&value| QUANTIZATION.dequantize(value))
        .collect()
}

/// Why the one operation of a model is not supported.
fn refusal(device: &Device, model: &Model) -> String {
    match &device.supported_operations(model).unwrap()[..] {
        [OperationSupport::Unsupported { reason }] => reason.clone(),
        other => panic!("{other:?}"),
    }
}

fn status_and_text(result: Result<Completed>) -> (ErrorStatus, String) {
    let error = result.unwrap_err();
    (error.status(), error.to_string())
}

#[test]
fn drivers_of_two_vendors_publish_their_devices_in_one_directory() {
    let ours = TestDaemon::start(EXE, &DaemonOptions::default());
    let theirs = TestDaemon::start_in(&ours.runtime_dir(), VENDOR_EXE, &DaemonOptions::default());
    let devices = Devices::open_in(ours.runtime_dir()).unwrap();
    let all = devices.list().unwrap();
    let names: Vec<_> = all.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(
        names,
        [
            vendor_driver::ARITHMETIC,
            vendor_driver::EVERYTHING,
            vendor_driver::FIBONACCI,
            vendor_driver::QUEUE,
            "nnhal-cpu",
            "nnhal-reference"
        ]
    );
    let has_extension = |name: &str| {
        let info = all.iter().find(|info| info.name == name).unwrap();
        info.extensions == [extension::definition()]
    };
    assert!(has_extension(vendor_driver::FIBONACCI) && has_extension(vendor_driver::EVERYTHING));
    assert!(!has_extension(vendor_driver::ARITHMETIC) && !has_extension("nnhal-cpu"));
    assert_eq!(all[1].device_type, DeviceType::Other);

    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    assert_eq!(device.supervisor().pid, theirs.pid());
    let reference = devices.device("nnhal-reference").unwrap();
    assert_eq!(reference.supervisor().pid, ours.pid());
    drop(theirs);
    // A worker that was just being made holds the sockets until it has seen that its supervisor is gone.
    wait_until("only our devices are left", || {
        devices.names().unwrap() == ["nnhal-cpu", "nnhal-reference"]
    });
    assert!(reference.status().is_ok());
}

#[test]
fn operation_of_an_extension_is_computed_by_every_path() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    let prepared = prepare(&device, &fibonacci_model(&[7]));
    let expected = [1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0];

    let mut numbers = [0_i64; 7];
    let options = ExecuteOptions::new();
    prepared
        .run(
            &[Input::from(&[7_i64])],
            &mut [Output::from(&mut numbers)],
            &options,
        )
        .unwrap();
    assert_eq!(dequantized(&numbers), expected);
    assert_eq!(numbers[..3], [102, 102, 104]);

    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    numbers.fill(0);
    burst
        .run(
            &[Input::from(&[7_i64])],
            &mut [Output::from(&mut numbers)],
            &options,
        )
        .unwrap();
    assert_eq!(dequantized(&numbers), expected);

    // The sizes of the arguments come from what the device says of its types.
    let mut arguments = prepared.new_arguments().unwrap();
    arguments.write(0, &[7_i64]).unwrap();
    let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
    prepared
        .start(arguments.request(), &options)
        .unwrap()
        .wait(deadline)
        .unwrap();
    assert_eq!(dequantized(&arguments.read(0).unwrap()), expected);

    let mut arguments = prepared.new_arguments().unwrap();
    arguments.write(0, &[7_i64]).unwrap();
    prepared
        .execute_fenced(arguments.request(), &[], &options)
        .unwrap()
        .wait(deadline)
        .unwrap();
    assert_eq!(dequantized(&arguments.read(0).unwrap()), expected);
}

#[test]
fn types_of_an_extension_are_found_by_name_in_each_model() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    let mut model = ModelBuilder::new();
    assert_eq!(model.extension("com.acme.first"), 1);
    let types = Types::of(&mut model);
    assert_eq!(types.int64.extension_prefix(), 2);
    let count = model.constant(TensorType::new(types.int64, &[]), &[3_i64]);
    let numbers = model.output(types.numbers(&[3]));
    model.operation(types.fibonacci, &[count], &[numbers]);
    let prepared = prepare(&device, &model.finish().unwrap());
    let mut numbers = [0_i64; 3];
    prepared
        .run(&[], &mut [Output::from(&mut numbers)], &ExecuteOptions::new())
        .unwrap();
    assert_eq!(dequantized(&numbers), [1.0, 1.0, 2.0]);
}

#[test]
fn output_of_an_extension_type_may_be_open() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    let prepared = prepare(&device, &fibonacci_model(&[]));
    let memory = Memory::new(64).unwrap();
    memory.write(0, &[5_i64]).unwrap();
    let options = ExecuteOptions::new();
    let request = |room: u64| Request::new().input(&memory, 0..8).output(&memory, 8..8 + room);
    let completed = prepared.execute(&request(56), &options).unwrap();
    assert_eq!(completed.output_shapes[0].dimensions, [5]);
    assert_eq!(
        dequantized(&memory.read(8, 5).unwrap()),
        [1.0, 1.0, 2.0, 3.0, 5.0]
    );

    let error = prepared.execute(&request(39), &options).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize);
    assert_eq!(error.output_shapes()[0].dimensions, [5]);

    let error = prepared.execute_fenced(&request(56), &[], &options).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::InvalidArgument);
    assert!(
        error.to_string().contains("needs every output dimension"),
        "{error}"
    );
}

#[test]
fn wrong_arguments_of_an_extension_are_refused_with_the_reason() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    let prepared = prepare(&device, &fibonacci_model(&[0]));
    let memory = Memory::new(64).unwrap();
    let options = ExecuteOptions::new();
    let short = Request::new().input(&memory, 0..7).output(&memory, 8..64);
    let (status, text) = status_and_text(prepared.execute(&short, &options));
    assert_eq!(status, ErrorStatus::InvalidArgument);
    assert!(
        text.contains("input 0: has 7 bytes") && text.contains("takes 8"),
        "{text}"
    );
    let shaped = Request::new()
        .input_with_dimensions(&memory, 0..8, &[1])
        .output(&memory, 8..64);
    let (status, text) = status_and_text(prepared.execute(&shaped, &options));
    assert_eq!(status, ErrorStatus::InvalidArgument);
    assert!(text.contains("is a scalar with dimensions"), "{text}");
    for count in [0, -1, 94, i64::MIN, i64::MAX] {
        memory.write(0, &[count]).unwrap();
        let request = Request::new().input(&memory, 0..8).output(&memory, 8..64);
        let (status, text) = status_and_text(prepared.execute(&request, &options));
        assert_eq!(status, ErrorStatus::GeneralFailure);
        assert!(
            text.contains(&count.to_string()) && text.contains("from 1 to 93"),
            "{text}"
        );
    }
}

#[test]
fn models_that_misuse_an_extension_are_refused() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::FIBONACCI).unwrap();
    let with_input = |ty: fn(&Types) -> TensorType| {
        let mut model = ModelBuilder::new();
        let types = Types::of(&mut model);
        let count = model.input(ty(&types));
        let numbers = model.output(types.numbers(&[0]));
        model.operation(types.fibonacci, &[count], &[numbers]);
        model.finish().unwrap()
    };
    let invalid = |model: &Model| {
        let error = device.supported_operations(model).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument);
        error.to_string()
    };
    let text = invalid(&with_input(|types| TensorType::new(types.int64, &[1])));
    assert!(text.contains("with dimensions [1], must have none"), "{text}");
    let text = invalid(&with_input(|types| {
        TensorType::new(OperandType::extension(types.int64.extension_prefix(), 2), &[])
    }));
    assert!(text.contains("has no such type"), "{text}");
    let text = invalid(&with_input(|_| {
        TensorType::new(OperandType::extension(9, 0), &[])
    }));
    assert!(text.contains("does not map to an extension"), "{text}");

    // What only the extension can know, the device says.
    let floats = with_input(|_| TensorType::float32(&[1]));
    assert!(refusal(&device, &floats).contains("must be INT64"));
    let mut model = ModelBuilder::new();
    let types = Types::of(&mut model);
    let count = model.input(TensorType::new(types.int64, &[]));
    let numbers = model.output(TensorType::new(types.quant64, &[0]));
    model.operation(types.fibonacci, &[count], &[numbers]);
    let without_parameters = model.finish().unwrap();
    assert!(refusal(&device, &without_parameters).contains("no scale and zero point"));
}

/// `output = left + right`, with these dimensions.
fn add_model(left: &[u32], right: &[u32], output: &[u32]) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(left));
    let y = model.input(TensorType::float32(right));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(output));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

#[test]
fn device_of_another_vendor_tells_what_operations_take() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::ARITHMETIC).unwrap();
    let prepared = prepare(&device, &add_model(&[4], &[4], &[4]));
    let mut spans = device.record_spans().unwrap();
    let inputs = [Input::from(&[1.0_f32; 4]), Input::from(&[2.0_f32; 4])];
    let mut sum = [0.0_f32; 4];
    prepared
        .run(&inputs, &mut [Output::from(&mut sum)], &ExecuteOptions::new())
        .unwrap();
    let mut operations = Vec::new();
    spans.drain(|span| {
        if span.kind == SpanKind::Operation {
            operations.push((span.subject, span.detail));
        }
    });
    assert_eq!(operations, [(0, u64::from(OperationType::ADD.0))]);
}

#[test]
fn device_of_few_operations_says_why_it_does_not_run_the_others() {
    let (_daemon, devices) = start_vendor();
    let device = devices.device(vendor_driver::ARITHMETIC).unwrap();
    let prepared = prepare(&device, &add_model(&[2], &[2], &[2]));
    let mut sum = [0.0_f32; 2];
    let inputs = [Input::from(&[1.0_f32, 2.0]), Input::from(&[10.0_f32, 20.0])];
    prepared
        .run(&inputs, &mut [Output::from(&mut sum)], &ExecuteOptions::new())
        .unwrap();
    assert_eq!(sum, [11.0, 22.0]);

    let broadcasting = add_model(&[2, 2], &[2], &[2, 2]);
    let reason = refusal(&device, &broadcasting);
    assert!(reason.contains("[2, 2] and [2]"), "{reason}");
    let error = device.prepare(&broadcasting, &PrepareOptions::new()).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::GeneralFailure);
    assert!(error.to_string().contains("[2, 2] and [2]"), "{error}");

    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[2]));
    let y = model.output(TensorType::float32(&[2]));
    model.operation(OperationType::FLOOR, &[x], &[y]);
    let reason = refusal(&device, &model.finish().unwrap());
    assert!(reason.contains("does not have this operation"), "{reason}");
    let reason = refusal(&device, &fibonacci_model(&[0]));
    assert!(reason.contains("does not have this operation"), "{reason}");
}

#[test]
fn device_in_front_of_others_runs_what_needs_them_all() {
    let (_daemon, devices) = start_vendor();
    let mut model = ModelBuilder::new();
    let types = Types::of(&mut model);
    let count = model.input(TensorType::new(types.int64, &[]));
    let numbers = model.output(types.numbers(&[4]));
    model.operation(types.fibonacci, &[count], &[numbers]);
    let x = model.input(TensorType::float32(&[3]));
    let factor = model.constant(TensorType::float32(&[3]), &[2.0_f32, 3.0, -4.0]);
    let no_activation = model.scalar(0_i32);
    let product = model.temporary(TensorType::float32(&[3]));
    let result = model.output(TensorType::float32(&[3]));
    model.operation(OperationType::MUL, &[x, factor, no_activation], &[product]);
    model.operation(OperationType::RELU, &[product], &[result]);
    let model = model.finish().unwrap();

    let supported = |name: &str| {
        let support = devices
            .device(name)
            .unwrap()
            .supported_operations(&model)
            .unwrap();
        support
            .iter()
            .map(OperationSupport::is_supported)
            .collect::<Vec<_>>()
    };
    assert_eq!(supported(vendor_driver::FIBONACCI), [true, false, false]);
    assert_eq!(supported(vendor_driver::ARITHMETIC), [false, true, true]);
    assert_eq!(supported(vendor_driver::EVERYTHING), [true; 3]);

    let device = devices.device(vendor_driver::EVERYTHING).unwrap();
    let prepared = prepare(&device, &model);
    let (mut numbers, mut result) = ([0_i64; 4], [0.0_f32; 3]);
    let inputs = [Input::from(&[4_i64]), Input::from(&[1.0_f32, 2.0, 3.0])];
    let mut outputs = [Output::from(&mut numbers), Output::from(&mut result)];
    prepared
        .run(&inputs, &mut outputs, &ExecuteOptions::new())
        .unwrap();
    assert_eq!(dequantized(&numbers), [1.0, 1.0, 2.0, 3.0]);
    assert_eq!(result, [2.0, 6.0, 0.0]);
}

#[test]
fn vendors_binary_speaks_under_its_own_name() {
    let output = std::process::Command::new(VENDOR_EXE)
        .args(["--device", "nnhal-reference"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("vendor-driver: "), "{text}");
    let output = std::process::Command::new(VENDOR_EXE)
        .arg("--list-devices")
        .output()
        .unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        [
            vendor_driver::FIBONACCI,
            vendor_driver::ARITHMETIC,
            vendor_driver::EVERYTHING,
            vendor_driver::QUEUE
        ]
    );
}

#[test]
fn application_that_is_not_in_the_list_may_not_use_extensions() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("applications");
    let options = || {
        DevicesOptions::new()
            .runtime_dir(daemon.runtime_dir())
            .extension_allowlist(&list)
    };
    let prepare_as = |options: DevicesOptions| {
        let device = options.open().unwrap().device(vendor_driver::EVERYTHING).unwrap();
        device
            .prepare(&add_model(&[2], &[2], &[2]), &PrepareOptions::new())
            .expect("what is standard is open to all");
        let prepared = device.prepare(&fibonacci_model(&[3]), &PrepareOptions::new());
        let supported = device.supported_operations(&fibonacci_model(&[3]));
        assert_eq!(prepared.is_ok(), supported.is_ok());
        prepared
            .map(drop)
            .map_err(|error| (error.status(), error.to_string()))
    };
    let this = std::env::current_exe().unwrap();
    let refused = |result: std::result::Result<(), (ErrorStatus, String)>| {
        let (status, text) = result.unwrap_err();
        assert_eq!(status, ErrorStatus::InvalidArgument);
        assert!(
            text.contains(extension::NAME) && text.contains(list.to_str().unwrap()),
            "{text}"
        );
        text
    };

    assert!(refused(prepare_as(options())).contains("cannot be read"));
    std::fs::write(&list, "/usr/bin/another\ncom.acme.camera\n").unwrap();
    assert!(refused(prepare_as(options())).contains(this.to_str().unwrap()));
    refused(prepare_as(options().application("com.acme.other")));
    assert_eq!(prepare_as(options().application("com.acme.camera")), Ok(()));
    std::fs::write(&list, format!("# tests\n{}\n", this.display())).unwrap();
    assert_eq!(prepare_as(options()), Ok(()));
}
