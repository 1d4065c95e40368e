//! Devices in the form of an older HAL version, as clients see and use them.

use std::sync::Arc;
use std::time::Duration;

use nnhal_client::{
    BufferDesc, BufferRole, BurstOptions, CacheFiles, Clock, Completed, Deadline, Device, DeviceStatus,
    DeviceType, Devices, Error, ErrorStatus, ExecuteOptions, Input, Memory, Model, ModelBuilder,
    MonotonicClock, OperandType, OperationSupport, OperationType, Output, PrepareOptions, PreparedModel,
    Request, TensorType, Timing,
};
use nnhal_hal::{HalVersion, NumberOfCacheFiles};
use nnhal_tests::older_device::{FIGURES, OF_1_0, OF_1_1, OF_1_2};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-older-driver");
const NEWEST_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

const ALL: [(&str, HalVersion); 3] = [
    (OF_1_0, HalVersion::V1_0),
    (OF_1_1, HalVersion::V1_1),
    (OF_1_2, HalVersion::V1_2),
];

fn start() -> (TestDaemon, Devices) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    (daemon, devices)
}

fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// `output = first + second`, floats; of the output these dimensions are declared.
fn add_model(output: &[u32]) -> Model {
    let mut model = ModelBuilder::new();
    let first = model.input(TensorType::float32(&[4]));
    let second = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(output));
    model.operation(OperationType::ADD, &[first, second, no_activation], &[sum]);
    model.finish().unwrap()
}

/// One operation of each version, one behind the other: RELU, SUB, ABS, ELU.
pub(crate) fn model_of_all_versions() -> Model {
    let mut model = ModelBuilder::new();
    let tensor = || TensorType::float32(&[4]);
    let x = model.input(tensor());
    let (positive, difference, absolute) = (
        model.temporary(tensor()),
        model.temporary(tensor()),
        model.temporary(tensor()),
    );
    let no_activation = model.scalar(0_i32);
    let alpha = model.scalar(1.0_f32);
    let result = model.output(tensor());
    model.operation(OperationType::RELU, &[x], &[positive]);
    model.operation(OperationType::SUB, &[positive, x, no_activation], &[difference]);
    model.operation(OperationType::ABS, &[difference], &[absolute]);
    model.operation(OperationType::ELU, &[absolute, alpha], &[result]);
    model.finish().unwrap()
}

fn prepare(device: &Device, model: &Model) -> PreparedModel {
    device.prepare(model, &PrepareOptions::new()).unwrap()
}

fn run(prepared: &PreparedModel, options: &ExecuteOptions) -> nnhal_client::Result<([f32; 4], Completed)> {
    let mut sum = [0.0_f32; 4];
    let inputs = [
        Input::from(&[1.0_f32, 2.0, 3.0, 4.0]),
        Input::from(&[10.0_f32, 20.0, 30.0, 40.0]),
    ];
    let completed = prepared.run(&inputs, &mut [Output::from(&mut sum)], options)?;
    Ok((sum, completed))
}

const SUM: [f32; 4] = [11.0, 22.0, 33.0, 44.0];

/// The inputs, and room for `room` bytes of output at 32.
fn shared(room: u64) -> (Memory, Request) {
    let memory = Memory::new(64).unwrap();
    memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    memory.write(16, &[10.0_f32, 20.0, 30.0, 40.0]).unwrap();
    let request = Request::new().input(&memory, 0..16).input(&memory, 16..32);
    let request = request.output(&memory, 32..32 + room);
    (memory, request)
}

fn told(error: &Error) -> (ErrorStatus, String) {
    (error.status(), error.to_string())
}

/// D01, D02, D03, D06, D08: what an older device says is taken up to the form of 1.3.
#[test]
fn devices_of_older_versions_are_published_beside_newer_ones() {
    let (older, devices) = start();
    let _newest = TestDaemon::start_in(&older.runtime_dir(), NEWEST_EXE, &DaemonOptions::default());
    let infos = devices.list().unwrap();
    let versions: Vec<_> = infos
        .iter()
        .map(|info| (info.name.as_str(), info.hal_version))
        .collect();
    let newest = [
        ("nnhal-cpu", HalVersion::LATEST),
        ("nnhal-reference", HalVersion::LATEST),
    ];
    assert_eq!(versions, [&newest[..], &ALL[..]].concat());
    for info in &infos[2..] {
        let capabilities = &info.capabilities;
        assert_eq!(
            capabilities.lookup(OperandType::TENSOR_FLOAT32),
            FIGURES.float32_performance
        );
        assert_eq!(
            capabilities.lookup(OperandType::TENSOR_QUANT8_ASYMM),
            FIGURES.quantized8_performance
        );
        assert_eq!(
            capabilities.lookup(OperandType::TENSOR_FLOAT16).exec_time,
            f32::MAX
        );
        assert_eq!(capabilities.if_performance.exec_time, f32::MAX);
        let listed = &capabilities.operand_performance;
        assert!(listed.is_sorted_by(|left, right| left.operand_type < right.operand_type));
        let says_what_it_is = info.hal_version >= HalVersion::V1_2;
        assert_eq!(info.version == "UNKNOWN", !says_what_it_is);
        assert_eq!(info.device_type == DeviceType::Other, !says_what_it_is);
        assert_eq!(info.cache_files.is_caching_supported(), says_what_it_is);
        let device = devices.device(&info.name).unwrap();
        assert_eq!(device.status().unwrap(), DeviceStatus::Available);
    }
}

#[test]
fn device_supports_the_part_of_a_model_that_its_version_can_express() {
    let (_daemon, devices) = start();
    let model = model_of_all_versions();
    for (supported, (name, version)) in ALL.into_iter().enumerate() {
        let device = devices.device(name).unwrap();
        let answers = device.supported_operations(&model).unwrap();
        let flags: Vec<bool> = answers.iter().map(OperationSupport::is_supported).collect();
        let expected: Vec<bool> = (0..4).map(|index| index <= supported).collect();
        assert_eq!(flags, expected, "{answers:?}");
        let OperationSupport::Unsupported { reason } = &answers[supported + 1] else {
            panic!("{answers:?}");
        };
        assert!(
            reason.contains(&format!("is of HAL {version}")) && reason.contains("came with HAL"),
            "{reason}"
        );

        let (status, text) = told(&device.prepare(&model, &PrepareOptions::new()).unwrap_err());
        assert_eq!(status, ErrorStatus::GeneralFailure);
        assert!(
            text.contains(&format!("operation {}", supported + 1)) && text.contains("came with HAL"),
            "{text}"
        );
    }
}

/// An argument list, a type and a rank that came later, each in an operation that 1.0 has.
#[test]
fn later_forms_of_old_operations_are_refused_with_what_is_wrong_of_them() {
    let (_daemon, devices) = start();
    let pool = |with_layout: Option<bool>| {
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::float32(&[1, 2, 2, 1]));
        let mut inputs = vec![x];
        inputs.extend([1, 1, 1, 2, 2, 0].map(|value| model.scalar(value)));
        if let Some(is_nchw) = with_layout {
            inputs.push(model.constant(TensorType::new(OperandType::BOOL, &[]), &[u8::from(is_nchw)]));
        }
        let y = model.output(TensorType::float32(&[]));
        model.operation(OperationType::MAX_POOL_2D, &inputs, &[y]);
        model.finish().unwrap()
    };
    let halves = {
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::new(OperandType::TENSOR_FLOAT16, &[4]));
        let y = model.output(TensorType::new(OperandType::TENSOR_FLOAT16, &[4]));
        model.operation(OperationType::RELU, &[x], &[y]);
        model.finish().unwrap()
    };
    let cases = [
        (halves, "TENSOR_FLOAT16, which came with HAL 1.2"),
        (pool(None), "unknown rank"),
        (pool(Some(false)), "unknown rank"),
        (pool(Some(true)), "BOOL, which came with HAL 1.2"),
    ];
    for (model, expected) in &cases {
        for name in [OF_1_0, OF_1_1] {
            let answers = devices.device(name).unwrap().supported_operations(model).unwrap();
            let [OperationSupport::Unsupported { reason }] = &answers[..] else {
                panic!("{answers:?}");
            };
            assert!(reason.contains(expected), "{reason}");
        }
        let newer = devices.device(OF_1_2).unwrap();
        assert!(newer.supported_operations(model).unwrap()[0].is_supported());
    }
}

/// The layout NHWC says what leaving it off says: 1.0 can express it.
#[test]
fn arguments_that_say_nothing_are_left_off_for_an_older_device() {
    let (_daemon, devices) = start();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, 2, 2, 1]));
    let mut inputs = vec![x];
    inputs.extend([1, 1, 1, 2, 2, 0].map(|value| model.scalar(value)));
    inputs.push(model.constant(TensorType::new(OperandType::BOOL, &[]), &[0_u8]));
    let y = model.output(TensorType::float32(&[1, 2, 2, 1]));
    model.operation(OperationType::MAX_POOL_2D, &inputs, &[y]);
    let model = model.finish().unwrap();
    for (name, _) in ALL {
        let prepared = prepare(&devices.device(name).unwrap(), &model);
        let mut largest = [0.0_f32; 4];
        let inputs = [Input::from(&[1.0_f32, 2.0, 3.0, 4.0])];
        prepared
            .run(&inputs, &mut [Output::from(&mut largest)], &ExecuteOptions::new())
            .unwrap();
        assert_eq!(largest, [4.0; 4], "{name}");
    }
}

/// M02 and M23 for devices of 1.0 to 1.2: what is wrong in every version is refused as invalid.
#[test]
fn invalid_models_are_refused_as_invalid() {
    let (_daemon, devices) = start();
    let mut unknown_type = add_model(&[4]).hal().clone();
    unknown_type.main.operands[0].operand_type = OperandType(16);
    let mut cycle = model_of_all_versions().hal().clone();
    cycle.main.operations.swap(0, 1);
    for (name, _) in ALL {
        let device = devices.device(name).unwrap();
        for model in [&unknown_type, &cycle] {
            let model = Model::from_hal(model.clone(), Vec::new());
            let refused = device.supported_operations(&model).unwrap_err();
            assert_eq!(refused.status(), ErrorStatus::InvalidArgument);
            let refused = device.prepare(&model, &PrepareOptions::new()).unwrap_err();
            assert_eq!(refused.status(), ErrorStatus::InvalidArgument);
        }
    }
}

/// G01 for devices of 1.0 to 1.2: every form of execution, with and without timing.
#[test]
fn devices_of_older_versions_execute_by_every_path() {
    let (_daemon, devices) = start();
    for (name, version) in ALL {
        let device = devices.device(name).unwrap();
        let prepared = prepare(&device, &add_model(&[4]));
        let far = Deadline::after(MonotonicClock.now(), Duration::from_secs(3600));
        let plain = ExecuteOptions::new();
        for options in [plain, plain.measure_timing(), plain.deadline(far)] {
            let (sum, completed) = run(&prepared, &options).unwrap();
            assert_eq!(sum, SUM, "{name}");
            let is_measured = options == plain.measure_timing();
            assert_eq!(completed.timing != Timing::NONE, is_measured);
            if is_measured {
                assert!(completed.timing.time_on_device_us <= completed.timing.time_in_driver_us);
            }
        }

        let (memory, request) = shared(16);
        prepared
            .start(&request, &plain)
            .unwrap()
            .wait(default_deadline())
            .unwrap();
        assert_eq!(memory.read::<f32>(32, 4).unwrap(), SUM, "{name}");

        memory.write(32, &[0.0_f32; 4]).unwrap();
        let fenced = prepared.execute_fenced(&request, &[], &plain).unwrap();
        fenced.wait(default_deadline()).unwrap();
        assert_eq!(memory.read::<f32>(32, 4).unwrap(), SUM, "{name}");

        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        for _ in 0..3 {
            memory.write(32, &[0.0_f32; 4]).unwrap();
            burst.execute(&request, &plain).unwrap();
            assert_eq!(memory.read::<f32>(32, 4).unwrap(), SUM, "{name}");
        }

        let (status, text) = told(&run(&prepared, &plain.deadline(Deadline::from_raw(1))).unwrap_err());
        assert_eq!(status, ErrorStatus::MissedDeadlinePersistent, "{version}: {text}");
    }
}

/// G07 for devices of 1.0 to 1.2, which have no device buffers of their own.
#[test]
fn device_buffers_join_models_of_older_devices() {
    let (_daemon, devices) = start();
    for (name, _) in ALL {
        let device = devices.device(name).unwrap();
        let [first, second] = [
            prepare(&device, &add_model(&[4])),
            prepare(&device, &add_model(&[4])),
        ];
        let role = |model_index, io_index| BufferRole {
            model_index,
            io_index,
            frequency: 1.0,
        };
        let buffer = device
            .allocate(
                &BufferDesc::default(),
                &[&first, &second],
                &[role(1, 0)],
                &[role(0, 0)],
            )
            .unwrap();
        let (memory, _) = shared(16);
        let options = ExecuteOptions::new();
        let into = Request::new()
            .input(&memory, 0..16)
            .input(&memory, 16..32)
            .output_buffer(&buffer);
        first.execute(&into, &options).unwrap();
        let out_of = Request::new()
            .input_buffer(&buffer)
            .input(&memory, 0..16)
            .output(&memory, 32..48);
        second.execute(&out_of, &options).unwrap();
        assert_eq!(
            memory.read::<f32>(32, 4).unwrap(),
            [12.0, 24.0, 36.0, 48.0],
            "{name}"
        );
    }
}

/// G03, G04: a device of 1.2 finds the dimensions of outputs.
#[test]
fn open_outputs_are_found_by_a_device_of_1_2() {
    let (_daemon, devices) = start();
    let device = devices.device(OF_1_2).unwrap();
    let options = ExecuteOptions::new();
    for dimensions in [&[0][..], &[]] {
        let prepared = prepare(&device, &add_model(dimensions));
        let (memory, request) = shared(32);
        for options in [options, options.deadline(default_deadline())] {
            let completed = prepared.execute(&request, &options).unwrap();
            assert_eq!(completed.output_shapes[0].dimensions, [4]);
            assert_eq!(memory.read::<f32>(32, 4).unwrap(), SUM);
        }
        let (_memory, short) = shared(15);
        let error = prepared.execute(&short, &options).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize);
        assert_eq!(error.output_shapes()[0].dimensions, [4]);
        assert!(!error.output_shapes()[0].is_sufficient);
    }
}

/// Before 1.2 every dimension of an output is given, by the model or by the request.
#[test]
fn open_outputs_of_devices_before_1_2_are_given_by_the_request() {
    let (_daemon, devices) = start();
    for name in [OF_1_0, OF_1_1] {
        let prepared = prepare(&devices.device(name).unwrap(), &add_model(&[0]));
        let (memory, open) = shared(16);
        let options = ExecuteOptions::new();
        let (status, text) = told(&prepared.execute(&open, &options).unwrap_err());
        assert_eq!(status, ErrorStatus::InvalidArgument);
        assert!(
            text.contains("output 0") && text.contains("must give every dimension"),
            "{text}"
        );
        let given = Request::new().input(&memory, 0..16).input(&memory, 16..32);
        let given = given.output_with_dimensions(&memory, 32..48, &[4]);
        prepared.execute(&given, &options).unwrap();
        assert_eq!(memory.read::<f32>(32, 4).unwrap(), SUM);
        let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
        assert_eq!(
            burst.execute(&open, &options).unwrap_err().status(),
            ErrorStatus::InvalidArgument
        );
        burst.execute(&given, &options).unwrap();
    }
}

/// An index that data gives is beyond the table.
#[test]
fn failure_of_the_device_names_the_call_that_failed() {
    let (_daemon, devices) = start();
    let mut model = ModelBuilder::new();
    let lookups = model.input(TensorType::new(OperandType::TENSOR_INT32, &[1]));
    let table = model.constant(TensorType::float32(&[2, 2]), &[1.0_f32, 2.0, 3.0, 4.0]);
    let rows = model.output(TensorType::float32(&[1, 2]));
    model.operation(OperationType::EMBEDDING_LOOKUP, &[lookups, table], &[rows]);
    let model = model.finish().unwrap();
    for (name, _) in ALL {
        let prepared = prepare(&devices.device(name).unwrap(), &model);
        let look_up = |index: i32| {
            let mut row = [0.0_f32; 2];
            let completed = prepared.run(
                &[Input::from(&[index])],
                &mut [Output::from(&mut row)],
                &ExecuteOptions::new(),
            );
            completed.map(|_| row)
        };
        let (status, text) = told(&look_up(7).unwrap_err());
        assert_eq!(status, ErrorStatus::GeneralFailure);
        assert!(
            text.contains(name) && text.contains("no place for reasons"),
            "{text}"
        );
        assert_eq!(look_up(1).unwrap(), [3.0, 4.0]);
    }
}

/// C01 for a device of 1.2; those before it have no caches.
#[test]
fn prepared_models_of_a_device_of_1_2_are_cached() {
    let (_daemon, devices) = start();
    let files = |count: NumberOfCacheFiles| {
        let open = |count: u32| (0..count).map(|_| tempfile::tempfile().unwrap().into()).collect();
        Arc::new(CacheFiles {
            model: open(count.model.max(1)),
            data: open(count.data.max(1)),
            token: [7; 32],
        })
    };
    for (name, version) in ALL {
        let device = devices.device(name).unwrap();
        let options = PrepareOptions::new().cache(files(device.info().cache_files));
        let model = add_model(&[4]);
        device.prepare(&model, &options).unwrap();
        let restored = device.prepare_from_cache(Some(&model), &options);
        if version < HalVersion::V1_2 {
            assert_eq!(restored.unwrap_err().status(), ErrorStatus::GeneralFailure);
            continue;
        }
        assert_eq!(run(&restored.unwrap(), &ExecuteOptions::new()).unwrap().0, SUM);
    }
}
