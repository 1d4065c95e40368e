//! Applications that use the methods of HAL 1.0, 1.1 and 1.2, on devices of 1.3 and older ones.

use std::sync::{Arc, mpsc};

use nnhal_client::older::{OlderDevice, OlderError, OlderPreparedModel};
use nnhal_client::{CacheFiles, Devices, Memory};
use nnhal_hal::versions::{v1_0, v1_1, v1_2};
use nnhal_hal::{
    DataLocation, ExecutionPreference, ExtraParams, MeasureTiming, MemoryPool, OperandType, Operation,
    OperationType, OutputShape, RequestArgument, Timing,
};
use nnhal_tests::older_device::{OF_1_0, OF_1_2};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const OLDER_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-older-driver");

type Status = v1_0::ErrorStatus;

fn with_device(exe: &str, name: &str, check: impl FnOnce(OlderDevice)) {
    let daemon = TestDaemon::start(exe, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    check(OlderDevice::new(devices.device(name).unwrap()));
}

fn operand(operand_type: OperandType, dimensions: &[u32], lifetime: v1_0::OperandLifeTime) -> v1_0::Operand {
    v1_0::Operand {
        operand_type,
        dimensions: dimensions.to_vec(),
        number_of_consumers: 1,
        scale: 0.0,
        zero_point: 0,
        lifetime,
        location: DataLocation::default(),
    }
}

/// `output = input + constant`, four floats; the constant is in pool 0, and of the output these dimensions
/// are declared.
fn add_model(output: &[u32]) -> v1_0::Model {
    let tensor = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[4], lifetime);
    let mut constant = tensor(v1_0::OperandLifeTime::ConstantReference);
    constant.location.length = 16;
    let mut activation = operand(OperandType::INT32, &[], v1_0::OperandLifeTime::ConstantCopy);
    activation.location.length = 4;
    let mut sum = operand(
        OperandType::TENSOR_FLOAT32,
        output,
        v1_0::OperandLifeTime::ModelOutput,
    );
    sum.number_of_consumers = 0;
    v1_0::Model {
        operands: vec![
            tensor(v1_0::OperandLifeTime::ModelInput),
            constant,
            activation,
            sum,
        ],
        operations: vec![Operation {
            operation_type: OperationType::ADD,
            inputs: vec![0, 1, 2],
            outputs: vec![3],
        }],
        input_indexes: vec![0],
        output_indexes: vec![3],
        operand_values: vec![0; 4],
        pools: vec![MemoryPool { size: 16 }],
    }
}

fn of_1_1(output: &[u32]) -> v1_1::Model {
    v1_1::Model {
        relax_computation_float32_to_float16: true,
        ..add_model(output).into()
    }
}

fn constants() -> Vec<Memory> {
    let memory = Memory::new(16).unwrap();
    memory.write(0, &[10.0_f32, 20.0, 30.0, 40.0]).unwrap();
    vec![memory]
}

/// The input, and room for `room` bytes of output.
fn request(room: u32, dimensions: &[u32]) -> (v1_0::Request, Vec<Memory>) {
    let memory = Memory::new(48).unwrap();
    memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let argument = |offset, length, dimensions: &[u32]| RequestArgument {
        has_no_value: false,
        location: DataLocation {
            pool_index: 0,
            offset,
            length,
        },
        dimensions: dimensions.to_vec(),
    };
    let request = v1_0::Request {
        inputs: vec![argument(0, 16, &[])],
        outputs: vec![argument(16, room, dimensions)],
        pools: vec![MemoryPool { size: 48 }],
    };
    (request, vec![memory])
}

const SUM: [f32; 4] = [11.0, 22.0, 33.0, 44.0];

/// Launches what has a callback, and returns what the launch and the callback were told.
fn launch<T: Send + 'static>(
    launch: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Result<(), OlderError>,
) -> (Result<(), Status>, T) {
    let (sender, receiver) = mpsc::channel();
    let launched = launch(Box::new(move |told| sender.send(told).unwrap()));
    let told = receiver.recv_timeout(TIMEOUT).unwrap();
    (launched.map_err(|error| error.status), told)
}

fn prepare(device: &OlderDevice, model: &v1_0::Model) -> OlderPreparedModel {
    let (launched, prepared) = launch(|told| device.prepare_model(model, &constants(), told));
    launched.unwrap();
    prepared.unwrap()
}

#[test]
fn capabilities_come_down_with_what_they_no_longer_say() {
    with_device(EXE, "nnhal-reference", |device| {
        let v1_0 = device.capabilities();
        assert!(
            v1_0.value.float32_performance.exec_time > 0.0
                && v1_0.value.quantized8_performance.exec_time > 0.0
        );
        assert!(v1_0.losses.iter().any(|loss| loss.part == "IF"));
        assert!(
            device
                .capabilities_1_1()
                .value
                .relaxed_float32_to_float16_performance
                .power_usage
                > 0.0
        );
        let v1_2 = device.capabilities_1_2();
        let signed = OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        assert!(
            v1_2.value
                .operand_performance
                .iter()
                .all(|entry| entry.operand_type != signed)
        );
        assert!(v1_2.losses.iter().any(|loss| loss.part == signed.to_string()));
    });
    // What an older device says comes back as it was.
    with_device(OLDER_EXE, OF_1_0, |device| {
        let down = device.capabilities();
        assert_eq!(
            (down.value, down.losses),
            (nnhal_tests::older_device::FIGURES, vec![])
        );
    });
}

#[test]
fn models_of_every_version_are_prepared_and_executed_by_the_older_methods() {
    for (exe, name) in [(EXE, "nnhal-reference"), (OLDER_EXE, OF_1_2)] {
        with_device(exe, name, |device| {
            let (of_1_0, of_1_1) = (add_model(&[4]), of_1_1(&[4]));
            let of_1_2 = v1_2::Model::from(of_1_1.clone());
            let pools = constants();
            assert_eq!(device.supported_operations(&of_1_0, &pools).unwrap(), [true]);
            assert_eq!(device.supported_operations_1_1(&of_1_1, &pools).unwrap(), [true]);
            assert_eq!(device.supported_operations_1_2(&of_1_2, &pools).unwrap(), [true]);
            let preference = ExecutionPreference::LowPower;
            let prepared = [
                launch(|told| device.prepare_model(&of_1_0, &pools, told)),
                launch(|told| device.prepare_model_1_1(&of_1_1, &pools, preference, told)),
                launch(|told| device.prepare_model_1_2(&of_1_2, &pools, preference, None, told)),
            ];
            for (launched, prepared) in prepared {
                launched.unwrap();
                let prepared = prepared.unwrap();
                let (request, memories) = request(16, &[]);
                let sum = || memories[0].read::<f32>(16, 4).unwrap();

                let told = launch(|told| prepared.execute(&request, &memories, told));
                assert_eq!((told, sum()), ((Ok(()), Status::None), SUM.to_vec()));

                memories[0].write(16, &[0.0_f32; 4]).unwrap();
                let (launched, (status, _, timing)) = launch(|told| {
                    let told = move |status, shapes: Vec<OutputShape>, timing| told((status, shapes, timing));
                    prepared.execute_1_2(&request, &memories, MeasureTiming::Yes, told)
                });
                assert_eq!((launched, status, sum()), (Ok(()), Status::None, SUM.to_vec()));
                assert_ne!(timing, Timing::NONE);

                memories[0].write(16, &[0.0_f32; 4]).unwrap();
                let completed = prepared
                    .execute_synchronously(&request, &memories, MeasureTiming::No)
                    .unwrap();
                assert_eq!((completed.timing, sum()), (Timing::NONE, SUM.to_vec()));
            }
        });
    }
}

/// M03 as the suites of 1.0 and 1.1 have it, M11 and M02: what came later is invalid in a model of an older
/// version.
#[test]
fn models_with_what_their_version_does_not_have_are_invalid() {
    with_device(EXE, "nnhal-reference", |device| {
        let check = |model: v1_0::Model, expected: &str| {
            let error = device.supported_operations(&model, &constants()).unwrap_err();
            assert_eq!(error.status, Status::InvalidArgument);
            assert!(error.to_string().contains(expected), "{error}");
            let (launched, told) = launch(|told| device.prepare_model(&model, &constants(), told));
            assert_eq!(launched, Err(Status::InvalidArgument));
            assert_eq!(told.unwrap_err().status, Status::InvalidArgument);
        };
        check(
            add_model(&[]),
            "operand 3 of a model of HAL 1.0 is a tensor of unknown rank",
        );
        let mut halves = add_model(&[4]);
        halves.operands[0].operand_type = OperandType::TENSOR_FLOAT16;
        check(halves, "TENSOR_FLOAT16, which came with HAL 1.2");
        let mut newer = add_model(&[4]);
        newer.operations[0].operation_type = OperationType::SUB;
        check(newer.clone(), "SUB, which came with HAL 1.1");
        // What is wrong in every version, the driver finds.
        let mut broken = add_model(&[4]);
        broken.operations[0].inputs[1] = 9;
        check(broken, "operand 9");
        newer.operands[3].dimensions.clear();
        let of_1_2 = v1_2::Model::from(v1_1::Model::from(newer));
        assert_eq!(
            device.supported_operations_1_2(&of_1_2, &constants()).unwrap(),
            [true]
        );
        let mut subgraph = of_1_2;
        subgraph.operands[0].base.operand_type = OperandType::SUBGRAPH;
        subgraph.operands[0].extra_params = ExtraParams::None;
        let error = device
            .supported_operations_1_2(&subgraph, &constants())
            .unwrap_err();
        assert_eq!(error.status, Status::InvalidArgument);
    });
}

/// R01, R02 by the older methods: the callback is told, and then the launch.
#[test]
fn invalid_requests_are_refused_by_launch_and_callback() {
    with_device(EXE, "nnhal-reference", |device| {
        let prepared = prepare(&device, &add_model(&[4]));
        let (valid, memories) = request(16, &[]);
        let mut without_input = valid.clone();
        without_input.inputs.clear();
        let mut without_output = valid;
        without_output.outputs.clear();
        for request in [without_input, without_output] {
            let told = launch(|told| prepared.execute(&request, &memories, told));
            assert_eq!(told, (Err(Status::InvalidArgument), Status::InvalidArgument));
            let told = launch(|told| {
                let told = move |status, shapes, timing| told((status, shapes, timing));
                prepared.execute_1_2(&request, &memories, MeasureTiming::Yes, told)
            });
            let refused = (Status::InvalidArgument, vec![], Timing::NONE);
            assert_eq!(told, (Err(Status::InvalidArgument), refused));
            let error = prepared
                .execute_synchronously(&request, &memories, MeasureTiming::Yes)
                .unwrap_err();
            assert_eq!(error.status, Status::InvalidArgument);
        }
    });
}

/// G03, G04: models of 1.0 and 1.1 must be given the dimensions of outputs, those of 1.2 find them.
#[test]
fn open_outputs_are_for_models_of_1_2() {
    with_device(EXE, "nnhal-reference", |device| {
        let old = prepare(&device, &add_model(&[0]));
        let (open, memories) = request(16, &[]);
        let told = launch(|told| old.execute(&open, &memories, told));
        assert_eq!(told, (Err(Status::InvalidArgument), Status::InvalidArgument));
        let (given, memories) = request(16, &[4]);
        let told = launch(|told| old.execute(&given, &memories, told));
        assert_eq!(told, (Ok(()), Status::None));

        let model = v1_2::Model::from(of_1_1(&[0]));
        let preference = ExecutionPreference::FastSingleAnswer;
        let (_, prepared) =
            launch(|told| device.prepare_model_1_2(&model, &constants(), preference, None, told));
        let prepared = prepared.unwrap();
        for (room, expected) in [(20, Status::None), (15, Status::OutputInsufficientSize)] {
            let (request, memories) = request(room, &[]);
            let (launched, (status, shapes)) = launch(|told| {
                let told = move |status, shapes: Vec<OutputShape>, _| told((status, shapes));
                prepared.execute_1_2(&request, &memories, MeasureTiming::No, told)
            });
            assert_eq!((launched, status), (Ok(()), expected));
            let is_sufficient = expected == Status::None;
            let dimensions = vec![4];
            assert_eq!(
                shapes,
                [OutputShape {
                    dimensions,
                    is_sufficient
                }]
            );
        }
    });
}

#[test]
fn hardware_buffers_are_for_models_of_1_2() {
    with_device(EXE, "nnhal-reference", |device| {
        let buffer = |memory: &Memory| {
            let bytes = memory.read::<u8>(0, memory.size() as usize).unwrap();
            let file = nnhal_os::shm::SharedMemory::create(memory.size()).unwrap();
            let buffer = Memory::from_hardware_buffer(file.into(), memory.size(), true).unwrap();
            buffer.write(0, &bytes).unwrap();
            buffer
        };
        let constants: Vec<Memory> = constants().iter().map(buffer).collect();
        let model = add_model(&[4]);
        let refused = launch(|told| device.prepare_model(&model, &constants, told));
        assert_eq!(refused.0.unwrap_err(), Status::InvalidArgument);
        let model = v1_2::Model::from(v1_1::Model::from(model));
        let preference = ExecutionPreference::FastSingleAnswer;
        let (launched, told) =
            launch(|told| device.prepare_model_1_2(&model, &constants, preference, None, told));
        launched.unwrap();
        told.unwrap();

        let prepared = prepare(&device, &add_model(&[4]));
        let (request, memories) = request(16, &[]);
        let memories: Vec<Memory> = memories.iter().map(buffer).collect();
        let refused = launch(|told| prepared.execute(&request, &memories, told));
        assert_eq!(refused.0.unwrap_err(), Status::InvalidArgument);
    });
}

/// C01, and a miss.
#[test]
fn models_are_prepared_from_a_cache_by_the_older_method() {
    with_device(EXE, "nnhal-reference", |device| {
        let counts = device.device().info().cache_files;
        let files = || {
            let open = |count| (0..count).map(|_| tempfile::tempfile().unwrap().into()).collect();
            Arc::new(CacheFiles {
                model: open(counts.model),
                data: open(counts.data),
                token: [3; 32],
            })
        };
        let (model, cache) = (v1_2::Model::from(of_1_1(&[4])), files());
        let preference = ExecutionPreference::SustainedSpeed;
        let saved = Some(Arc::clone(&cache));
        launch(|told| device.prepare_model_1_2(&model, &constants(), preference, saved, told))
            .1
            .unwrap();
        let (launched, restored) = launch(|told| device.prepare_model_from_cache(cache, told));
        launched.unwrap();
        let (request, memories) = request(16, &[]);
        restored
            .unwrap()
            .execute_synchronously(&request, &memories, MeasureTiming::No)
            .unwrap();
        assert_eq!(memories[0].read::<f32>(16, 4).unwrap(), SUM);

        let (launched, missed) = launch(|told| device.prepare_model_from_cache(files(), told));
        assert_eq!(missed.unwrap_err().status, Status::GeneralFailure);
        assert!(launched.is_ok() || launched == Err(Status::GeneralFailure));
    });
}
