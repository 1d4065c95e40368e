//! What the C interface's own tests expect of models, requests and memories, by the Rust interface and
//! against the real daemon: the same mistakes are refused, by the library or by the driver, and never later
//! than at the execution. What those tests ask of states and null pointers of C objects the types of the Rust
//! interface rule out.

use std::os::fd::{AsFd, OwnedFd};

use nnhal::wire::{Call, MemoryDescription, Reply};
use nnhal_client::{
    BurstOptions, Device, Devices, Error, ErrorStatus, ExecuteOptions, Fence, Memory, Model, ModelBuilder,
    OperationType, PrepareOptions, PreparedModel, Request, TensorType,
};
use nnhal_hal::{OperandLifeTime, OperandType, Operation, OperationSupport};
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const REFERENCE: &str = "nnhal-reference";

fn start() -> (TestDaemon, Device) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let device = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(REFERENCE)
        .unwrap();
    (daemon, device)
}

fn prepare(device: &Device, model: &Model) -> Result<PreparedModel, Error> {
    device.prepare(model, &PrepareOptions::new())
}

/// The library or the driver must call the model invalid, in words.
#[track_caller]
fn expect_refused(device: &Device, model: Result<Model, Error>, what: &str) {
    let error = match model.and_then(|model| prepare(device, &model)) {
        Ok(_) => panic!("{what}: accepted"),
        Err(error) => error,
    };
    expect_invalid(&error, what);
}

#[track_caller]
fn expect_invalid(error: &Error, what: &str) {
    assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{what}: {error}");
    assert!(error.to_string().len() > 20, "{what}: {error}");
}

fn floats(elements: u32) -> TensorType {
    TensorType::float32(&[elements])
}

/// `output = input + constant`, four floats; the constant is as `constant` makes it.
fn add(constant: impl FnOnce(&mut ModelBuilder) -> nnhal_client::OperandId) -> Result<Model, Error> {
    let mut model = ModelBuilder::new();
    let x = model.input(floats(4));
    let y = constant(&mut model);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(floats(4));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish()
}

fn good_add() -> Model {
    add(|model| model.constant(floats(4), &[1.0_f32; 4])).unwrap()
}

/// The same model with a change to what it is on its way to the driver.
fn changed(model: &Model, change: impl FnOnce(&mut nnhal_hal::Model)) -> Result<Model, Error> {
    let mut hal = model.hal().clone();
    change(&mut hal);
    Ok(Model::from_hal(hal, model.pools().to_vec()))
}

/// A convolution of two channels with this filter.
fn convolution(filter: TensorType) -> Result<Model, Error> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::quant8_asymm(&[1, 2, 2, 1], 0.5, 0));
    let filter = model.constant(filter, &[1_i8, 2]);
    let bias = model.constant(TensorType::int32(&[2]), &[0_i32, 0]);
    let same_padding = model.scalar(1_i32);
    let one = model.scalar(1_i32);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::quant8_asymm(&[1, 2, 2, 2], 1.0, 0));
    let inputs = [x, filter, bias, same_padding, one, one, no_activation];
    model.operation(OperationType::CONV_2D, &inputs, &[y]);
    model.finish()
}

#[test]
fn n013_parameters_of_channels_must_fit_their_operand() {
    let (_daemon, device) = start();
    let filter = |scales: &[f32], channel| {
        convolution(TensorType::quant8_symm_per_channel(
            &[2, 1, 1, 1],
            scales,
            channel,
        ))
    };
    prepare(&device, &filter(&[0.5, 0.25], 0).unwrap()).unwrap();
    for (scales, channel, what) in [
        (&[0.5][..], 0, "too few scales"),
        (&[0.5, 0.25, 1.0], 0, "too many scales"),
        (&[], 0, "no scales"),
        (&[0.5, 0.25], 1, "the channel of another extent"),
        (&[0.5, 0.25], 4, "a channel beyond the rank"),
        (&[0.5, -0.25], 0, "a negative scale"),
        (&[0.5, 0.0], 0, "a scale of zero"),
    ] {
        expect_refused(&device, filter(scales, channel), what);
    }
    let plain = TensorType::new(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 1, 1, 1]);
    expect_refused(&device, convolution(plain), "no parameters");
}

#[test]
fn n014_constants_have_the_length_of_their_operand() {
    let (_daemon, device) = start();
    for elements in [0, 3, 5, 8] {
        let values = vec![1.0_f32; elements];
        let model = add(|model| model.constant(floats(4), &values));
        expect_refused(&device, model, &format!("{elements} values"));
    }
    let constant = 1;
    for (offset, length) in [(0, 12), (0, 0), (1000, 16), (8, 16), (u32::MAX - 8, 16)] {
        let model = changed(&good_add(), |model| {
            let location = &mut model.main.operands[constant].location;
            (location.offset, location.length) = (offset, length);
        });
        expect_refused(&device, model, &format!("{length} bytes from {offset}"));
    }
    // An operand that may be left out has no value: here the order of the dimensions, which are reversed
    // then.
    let transposition = |order: &dyn Fn(&mut ModelBuilder) -> nnhal_client::OperandId| {
        let mut model = ModelBuilder::new();
        let x = model.input(TensorType::float32(&[2, 3]));
        let order = order(&mut model);
        let y = model.output(TensorType::float32(&[3, 2]));
        model.operation(OperationType::TRANSPOSE, &[x, order], &[y]);
        model.finish()
    };
    let left_out = transposition(&|model| model.omitted(TensorType::int32(&[0])));
    prepare(&device, &left_out.unwrap()).unwrap();
    expect_refused(
        &device,
        add(|model| model.omitted(floats(4))),
        "an addend left out",
    );
}

#[test]
fn n015_constants_in_memories_lie_inside_them() {
    let (_daemon, device) = start();
    let memory = Memory::new(32).unwrap();
    let within = |range| add(|model| model.constant_in_memory(floats(4), &memory, range));
    prepare(&device, &within(16..32).unwrap()).unwrap();
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is wrong with one")]
    for range in [0..12, 0..20, 20..36, 32..48, 64..80, 16..0, 0..1 << 33] {
        let what = format!("{range:?}");
        expect_refused(&device, within(range), &what);
    }
    for pool in [1, u32::MAX] {
        let model = changed(&within(0..16).unwrap(), |model| {
            model.main.operands[1].location.pool_index = pool;
        });
        expect_refused(&device, model, &format!("memory {pool}"));
    }
}

/// The HAL's names of kinds of memory.
fn register(client: &mut RawClient, name: &str, size: u64) -> Result<Reply, nnhal_hal::Failure> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(64).unwrap();
    let description = MemoryDescription {
        name: name.into(),
        fds: 1,
        size,
        offset: 0,
        protection: 3,
    };
    client.call(Call::RegisterMemory(description), &[file.as_fd()])
}

#[test]
fn n016_hardware_buffers_are_taken_if_they_are_plain_bytes() {
    let (daemon, _device) = start();
    let mut client = RawClient::connect(&daemon.runtime_dir(), REFERENCE);
    let blob = register(&mut client, "hardware_buffer_blob", 64);
    assert!(matches!(blob, Ok(Reply::Memory(_))), "{blob:?}");
    for (name, size) in [
        ("hardware_buffer", 64),
        ("hardware_buffer_blob", 65),
        ("hardware_buffer_blob", u64::MAX),
        ("no_such_kind", 64),
    ] {
        let refused = register(&mut client, name, size).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::InvalidArgument, "{name}: {refused}");
    }
}

#[test]
fn n017_graphs_inside_a_model_are_named_by_what_they_are() {
    let (_daemon, device) = start();
    let branch = || {
        let mut graph = ModelBuilder::new();
        let x = graph.input(floats(1));
        let y = graph.output(floats(1));
        graph.operation(OperationType::RELU, &[x], &[y]);
        graph
    };
    let mut builder = ModelBuilder::new();
    let flag = builder.input(TensorType::bool8(&[1]));
    let x = builder.input(floats(1));
    let (yes, no) = (builder.graph(branch()), builder.graph(branch()));
    let y = builder.output(floats(1));
    builder.operation(OperationType::IF, &[flag, yes, no, x], &[y]);
    let model = builder.finish().unwrap();
    prepare(&device, &model).unwrap();
    let yes = yes.index() as usize;
    for graph in [2, u32::MAX] {
        let wrong = changed(&model, |model| model.main.operands[yes].location.offset = graph);
        expect_refused(&device, wrong, &format!("graph {graph}"));
    }
    let wrong = changed(&model, |model| {
        model.main.operands[yes].operand_type = OperandType::TENSOR_FLOAT32;
    });
    expect_refused(&device, wrong, "a tensor that is a graph");
    let wrong = changed(&model, |model| {
        model.main.operands[yes].lifetime = OperandLifeTime::NoValue;
    });
    expect_refused(&device, wrong, "a graph without a value");
    let wrong = changed(&model, |model| {
        model.main.operations[0].inputs[3] = yes as u32;
    });
    expect_refused(&device, wrong, "a graph where a tensor belongs");
}

#[test]
fn n018_constants_of_oem_types_have_any_length() {
    let (_daemon, device) = start();
    let model = changed(&good_add(), |model| {
        let operands = &mut model.main.operands;
        for (index, (ty, dimensions, offset, length)) in [
            (OperandType::OEM, vec![], 0, 20),
            (OperandType::TENSOR_OEM_BYTE, vec![8], 20, 4),
        ]
        .into_iter()
        .enumerate()
        {
            let operand = &mut operands[index + 1];
            (operand.operand_type, operand.dimensions) = (ty, dimensions);
            operand.lifetime = OperandLifeTime::ConstantCopy;
            (operand.location.offset, operand.location.length) = (offset, length);
        }
        model.operand_values = vec![7; 24];
        let operation = &mut model.main.operations[0];
        *operation = Operation {
            operation_type: OperationType::OEM_OPERATION,
            ..operation.clone()
        };
    })
    .unwrap();
    let supported = device.supported_operations(&model).unwrap();
    assert!(
        matches!(supported[..], [OperationSupport::Unsupported { .. }]),
        "{supported:?}"
    );
    let error = prepare(&device, &model).unwrap_err();
    assert_ne!(error.status(), ErrorStatus::InvalidArgument, "{error}");
}

#[test]
fn n020_inputs_and_outputs_are_listed_once() {
    let (_daemon, device) = start();
    let model = good_add();
    let (input, output) = (
        model.hal().main.input_indexes[0],
        model.hal().main.output_indexes[0],
    );
    for (inputs, outputs, what) in [
        (vec![input, input], vec![output], "an input twice"),
        (vec![input], vec![output, output], "an output twice"),
        (vec![input, output], vec![output], "an output that is an input"),
        (vec![input], vec![input, output], "an input that is an output"),
        (vec![input, 99], vec![output], "an input that is not there"),
        (vec![input], vec![u32::MAX], "an output that is not there"),
    ] {
        let wrong = changed(&model, |model| {
            (model.main.input_indexes, model.main.output_indexes) = (inputs, outputs);
        });
        expect_refused(&device, wrong, what);
    }
}

#[test]
fn n022_model_without_anything_is_refused() {
    let (_daemon, device) = start();
    expect_refused(&device, ModelBuilder::new().finish(), "an empty model");
}

/// All ways to execute a request must refuse it.
#[track_caller]
fn expect_request_refused(prepared: &PreparedModel, request: &Request, what: &str) {
    let options = ExecuteOptions::new();
    expect_invalid(&prepared.execute(request, &options).expect_err(what), what);
    expect_invalid(&prepared.start(request, &options).unwrap_err(), what);
    expect_invalid(
        &prepared.execute_fenced(request, &[], &options).unwrap_err(),
        what,
    );
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    expect_invalid(&burst.execute(request, &options).unwrap_err(), what);
    expect_invalid(&burst.register(request).unwrap_err(), what);
}

#[test]
fn n041_arguments_lie_inside_their_memories() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, &good_add()).unwrap();
    let file: OwnedFd = {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64).unwrap();
        file.into()
    };
    let part_of_file = Memory::from_fd(file, 16, 32, true).unwrap();
    for memory in [Memory::new(32).unwrap(), part_of_file] {
        let good = Request::new().input(&memory, 0..16).output(&memory, 16..32);
        prepared.execute(&good, &ExecuteOptions::new()).unwrap();
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is wrong with one")]
        for range in [0..12, 20..36, 32..48, 1 << 31..(1 << 31) + 16, 16..0] {
            let what = format!("{range:?}");
            let input = Request::new()
                .input(&memory, range.clone())
                .output(&memory, 16..32);
            expect_request_refused(&prepared, &input, &what);
            let output = Request::new().input(&memory, 0..16).output(&memory, range);
            let refused = prepared
                .execute(&output, &ExecuteOptions::new())
                .expect_err(&what);
            let too_small = refused.status() == ErrorStatus::OutputInsufficientSize;
            let invalid = refused.status() == ErrorStatus::InvalidArgument;
            assert!(too_small || invalid, "{what}: {refused}");
        }
    }
}

#[test]
fn n042_products_of_dimensions_that_overflow_are_errors() {
    const MANY: u32 = 1 << 16;
    let (_daemon, device) = start();
    // In the model.
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[MANY, MANY]));
    let y = model.output(TensorType::float32(&[MANY, MANY]));
    model.operation(OperationType::RELU, &[x], &[y]);
    expect_refused(&device, model.finish(), "a tensor of 2^32 elements");
    // In the request, and deduced while it runs.
    let mut model = ModelBuilder::new();
    let (x, y) = (
        model.input(TensorType::float32(&[0, 0])),
        model.input(TensorType::float32(&[0, 0])),
    );
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[0, 0]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    let prepared = prepare(&device, &model.finish().unwrap()).unwrap();
    let memory = Memory::new(u64::from(MANY) * 4).unwrap();
    let row = 0..u64::from(MANY) * 4;
    let options = ExecuteOptions::new();
    let square = Request::new()
        .input_with_dimensions(&memory, row.clone(), &[MANY, MANY])
        .input_with_dimensions(&memory, row.clone(), &[1, 1])
        .output(&memory, row.clone());
    expect_invalid(&prepared.execute(&square, &options).unwrap_err(), "2^32 elements");
    let deduced = Request::new()
        .input_with_dimensions(&memory, row.clone(), &[MANY, 1])
        .input_with_dimensions(&memory, row.clone(), &[1, MANY])
        .output(&memory, row);
    let error = prepared.execute(&deduced, &options).unwrap_err();
    assert!(error.failure().is_some(), "{error}");
    device.status().unwrap();
}

#[test]
fn n047_shapes_are_there_after_the_run_and_only_for_outputs_that_are() {
    let (_daemon, device) = start();
    let prepared = prepare(&device, &good_add()).unwrap();
    let memory = Memory::new(32).unwrap();
    let options = ExecuteOptions::new();
    let bad = Request::new().input(&memory, 0..12).output(&memory, 16..32);
    let error = prepared.execute(&bad, &options).unwrap_err();
    assert!(error.output_shapes().is_empty(), "{error}");
    let short = Request::new().input(&memory, 0..16).output(&memory, 16..24);
    let error = prepared.execute(&short, &options).unwrap_err();
    if error.status() == ErrorStatus::OutputInsufficientSize {
        let [shape] = error.output_shapes() else {
            panic!("{error:?}")
        };
        assert!(!shape.is_sufficient && shape.dimensions == [4], "{shape:?}");
    }
    let arguments = prepared.new_arguments().unwrap();
    prepared.execute(arguments.request(), &options).unwrap();
    assert_eq!(arguments.read::<f32>(0).unwrap(), [1.0; 4]);
    for output in [1, 999, usize::MAX] {
        arguments.read::<f32>(output).unwrap_err();
    }
}

#[test]
fn n050_descriptors_that_never_signal_are_no_fences() {
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    let directory: OwnedFd = std::fs::File::open("/").unwrap().into();
    let device: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
    for descriptor in [file, directory, device] {
        let error = Fence::from_fd(descriptor).unwrap_err();
        assert!(error.to_string().len() > 10, "{error}");
    }
    assert!(Fence::from_handle(None).is_err());
}

#[test]
fn n060_bursts_take_their_own_requests_and_outlive_or_precede_their_memories() {
    let (_daemon, device) = start();
    let model = good_add();
    let (one, other) = (
        prepare(&device, &model).unwrap(),
        prepare(&device, &model).unwrap(),
    );
    let options = ExecuteOptions::new();
    let mut burst = one.burst(&BurstOptions::new()).unwrap();
    let mut others = other.burst(&BurstOptions::new()).unwrap();
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let registered = burst.register(&request).unwrap();
    expect_invalid(
        &others.fire(&registered, &options).unwrap_err(),
        "another's request",
    );
    // The memory goes before the burst.
    burst.fire(&registered, &options).unwrap();
    others.execute(&request, &options).unwrap();
    drop((registered, request, memory));
    // The burst goes before the memory.
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    burst.execute(&request, &options).unwrap();
    drop(burst);
    others.execute(&request, &options).unwrap();
    assert_eq!(memory.read::<f32>(16, 4).unwrap(), [1.0; 4]);
    drop(others);
    one.execute(&request, &options).unwrap();
}
