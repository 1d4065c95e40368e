//! Nobody finds in memory what was left there before (T33): neither another client's data nor an earlier
//! execution's.

use nnhal_client::{
    Buffer, BufferDesc, BufferRole, BurstOptions, Clock, Deadline, Device, Devices, Error, ErrorStatus,
    ExecuteOptions, Memory, ModelBuilder, MonotonicClock, OperationType, PrepareOptions, PreparedModel,
    Request, TensorType,
};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, wait_until};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const DEVICES: [&str; 2] = ["nnhal-reference", "nnhal-cpu"];

/// A value that nothing else has.
const CANARY: f32 = f32::from_bits(0x45A5_C35A);
/// Elements of the execution that leaves canaries behind.
const MANY: usize = 1024;
/// Elements of the executions after it.
const FEW: usize = 4;
const VALUES: [f32; FEW] = [1.0, 2.0, 3.0, 4.0];

const fn bytes_of(elements: usize) -> u64 {
    4 * elements as u64
}

/// `output = input + 0`, as many values as the input has.
fn prepare(device: &Device) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[0]));
    let zero = model.constant(TensorType::float32(&[1]), &[0.0_f32]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[0]));
    model.operation(OperationType::ADD, &[x, zero, no_activation], &[y]);
    let options = PrepareOptions::new();
    device.prepare(&model.finish().unwrap(), &options).unwrap()
}

/// A way to execute a request to its end.
type Way = fn(&PreparedModel, &Request) -> Result<(), Error>;

/// Those that do without knowing the output's dimensions.
const WAYS: [Way; 3] = [
    |prepared, request| prepared.execute(request, &ExecuteOptions::new()).map(drop),
    |prepared, request| {
        let mut launched = prepared.start(request, &ExecuteOptions::new())?;
        let deadline = Deadline::after(MonotonicClock.now(), TIMEOUT);
        launched.wait(deadline).map(drop)
    },
    |prepared, request| {
        let mut burst = prepared.burst(&BurstOptions::new())?;
        burst.execute(request, &ExecuteOptions::new()).map(drop)
    },
];

fn input(values: &[f32]) -> Memory {
    let memory = Memory::new(bytes_of(values.len())).unwrap();
    memory.write(0, values).unwrap();
    memory
}

fn request(input: &Memory, elements: usize) -> Request {
    Request::new().input_with_dimensions(input, 0..bytes_of(elements), &[elements as u32])
}

fn buffer(device: &Device, prepared: &PreparedModel, dimensions: &[u32]) -> Buffer {
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let desc = BufferDesc {
        dimensions: dimensions.to_vec(),
    };
    device.allocate(&desc, &[prepared], &[role], &[role]).unwrap()
}

/// Leaves canaries in every kind of memory that the worker has.
fn leave_canaries(device: &Device, prepared: &PreparedModel) {
    let canaries = input(&[CANARY; MANY]);
    for way in WAYS {
        let output = Memory::new(bytes_of(MANY)).unwrap();
        let whole = request(&canaries, MANY).output(&output, 0..bytes_of(MANY));
        way(prepared, &whole).unwrap();
        assert_eq!(output.read::<f32>(0, MANY).unwrap(), [CANARY; MANY]);
    }
    let held = buffer(device, prepared, &[MANY as u32]);
    held.copy_from(&canaries, &[]).unwrap();
}

#[track_caller]
fn expect_zeros(memory: &Memory, from: u64) {
    let count = (memory.size() - from) as usize;
    let found = memory.read::<u8>(from, count).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "T33: something is left over");
}

/// Looks for what may have been left in outputs, in what is beside them and in buffers.
fn expect_nothing_left(device: &Device, prepared: &PreparedModel) {
    let few = input(&VALUES);
    for way in WAYS {
        let output = Memory::new(bytes_of(MANY)).unwrap();
        let roomy = request(&few, FEW).output(&output, 0..bytes_of(MANY));
        way(prepared, &roomy).unwrap();
        assert_eq!(output.read::<f32>(0, FEW).unwrap(), VALUES);
        expect_zeros(&output, bytes_of(FEW));
        // Where there is no room for the result, nothing else comes there either.
        let output = Memory::new(bytes_of(MANY)).unwrap();
        let narrow = request(&few, FEW).output(&output, 0..bytes_of(FEW / 2));
        let error = way(prepared, &narrow).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
        let partly = output.read::<f32>(0, FEW / 2).unwrap();
        assert!(
            partly == [0.0; FEW / 2] || partly == VALUES[..FEW / 2],
            "T33: {partly:?}"
        );
        expect_zeros(&output, bytes_of(FEW / 2));
    }
    for _ in 0..20 {
        let fresh = buffer(device, prepared, &[MANY as u32]);
        let found = Memory::new(bytes_of(MANY)).unwrap();
        let error = fresh.copy_to(&found).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::GeneralFailure, "{error}");
        expect_zeros(&found, 0);
    }
}

#[test]
fn nothing_of_one_client_is_found_by_another() {
    for name in DEVICES {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
        let (device, other) = (devices.device(name).unwrap(), devices.device(name).unwrap());
        let (prepared, others) = (prepare(&device), prepare(&other));
        leave_canaries(&device, &prepared);
        expect_nothing_left(&other, &others);
        drop((prepared, device));
        let workers = || daemon.workers().len();
        wait_until("the worker is gone", || workers() <= 2 * DEVICES.len());
        let later = devices.device(name).unwrap();
        expect_nothing_left(&later, &prepare(&later));
    }
}

#[test]
fn nothing_of_an_earlier_execution_is_found_in_what_is_used_again() {
    for name in DEVICES {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(name)
            .unwrap();
        let prepared = prepare(&device);
        for _ in 0..3 {
            leave_canaries(&device, &prepared);
            expect_nothing_left(&device, &prepared);
        }
    }
}

#[test]
fn buffer_that_takes_less_than_before_shows_nothing_of_it() {
    for name in DEVICES {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let device = Devices::open_in(daemon.runtime_dir())
            .unwrap()
            .device(name)
            .unwrap();
        let prepared = prepare(&device);
        let (canaries, few) = (input(&[CANARY; MANY]), input(&VALUES));
        let held = buffer(&device, &prepared, &[]);
        let options = ExecuteOptions::new();
        for _ in 0..3 {
            let many = request(&canaries, MANY).output_buffer(&held);
            prepared.execute(&many, &options).unwrap();
            prepared
                .execute(&request(&few, FEW).output_buffer(&held), &options)
                .unwrap();
            let found = Memory::new(bytes_of(FEW)).unwrap();
            held.copy_to(&found).unwrap();
            assert_eq!(found.read::<f32>(0, FEW).unwrap(), VALUES);
            let whole = Memory::new(bytes_of(MANY)).unwrap();
            let error = held.copy_to(&whole).unwrap_err();
            assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
            expect_zeros(&whole, 0);
            // A failure leaves nothing that could be read.
            let late = ExecuteOptions::new().deadline(Deadline::from_raw(1));
            prepared.execute(&many, &late).unwrap_err();
            held.copy_to(&whole).unwrap_err();
            expect_zeros(&whole, 0);
        }
    }
}
