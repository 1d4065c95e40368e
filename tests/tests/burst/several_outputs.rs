//! Requests of several outputs, of which one cannot be written.

use nnhal_client::{
    BufferDesc, BufferRole, BurstOptions, Device, ErrorStatus, ExecuteOptions, Memory, ModelBuilder,
    OperationType, PrepareOptions, PreparedModel, Request, TensorType,
};

use crate::common::{REFERENCE, open, start};

const VALUES: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// `output 0 = input + 1`, of four values, and `output 1 = input + 2`, which is declared to have any number,
/// in this order or the other.
fn sums(device: &Device, order: [usize; 2]) -> PreparedModel {
    sums_of(device, order, 0)
}

/// The same where output 1 is declared to have so many values.
fn sums_of(device: &Device, order: [usize; 2], declared: u32) -> PreparedModel {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    for number in order {
        let (addend, dimensions) = [(1.0_f32, [4]), (2.0, [declared])][number];
        let addend = model.constant(TensorType::float32(&[1]), &[addend]);
        let sum = model.output(TensorType::float32(&dimensions));
        model.operation(OperationType::ADD, &[x, addend, no_activation], &[sum]);
    }
    let model = model.finish().unwrap();
    device.prepare(&model, &PrepareOptions::new()).unwrap()
}

fn floats(memory: &Memory, offset: u64) -> Vec<f32> {
    memory.read(offset, 4).unwrap()
}

#[test]
fn device_buffer_beside_an_output_that_is_too_small_holds_nothing() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = sums(&device, [0, 1]);
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let buffer = device
        .allocate(&BufferDesc::default(), &[&prepared], &[], &[role])
        .unwrap();
    let memory = Memory::new(64).unwrap();
    memory.write(0, &VALUES).unwrap();
    let request = |room: u64| {
        Request::new()
            .input(&memory, 0..16)
            .output_buffer(&buffer)
            .output(&memory, 16..16 + room)
    };
    let options = ExecuteOptions::new();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    burst.execute(&request(16), &options).unwrap();
    let copy = Memory::new(16).unwrap();
    buffer.copy_to(&copy).unwrap();
    assert_eq!(floats(&copy, 0), VALUES.map(|value| value + 1.0));
    for by_burst in [false, true] {
        let error = if by_burst {
            burst.execute(&request(12), &options).unwrap_err()
        } else {
            prepared.execute(&request(12), &options).unwrap_err()
        };
        assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
        let shapes = error.output_shapes().iter();
        let found: Vec<_> = shapes
            .map(|shape| (&shape.dimensions[..], shape.is_sufficient))
            .collect();
        assert_eq!(found, [(&[4][..], true), (&[4], false)]);
        buffer.copy_to(&copy).unwrap_err();
        burst.execute(&request(16), &options).unwrap();
        assert_eq!(floats(&memory, 16), VALUES.map(|value| value + 2.0));
    }
}

#[test]
fn output_in_memory_for_reading_only_is_refused() {
    let daemon = start();
    let prepared = sums(&open(&daemon, REFERENCE), [0, 1]);
    let (memory, sealed) = (Memory::new(64).unwrap(), Memory::sealed(&[&[0; 16]]).unwrap());
    memory.write(0, &VALUES).unwrap();
    let request = Request::new()
        .input(&memory, 0..16)
        .output(&memory, 16..32)
        .output(&sealed, 0..16);
    let options = ExecuteOptions::new();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    for error in [
        prepared.execute(&request, &options).unwrap_err(),
        burst.execute(&request, &options).unwrap_err(),
    ] {
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        assert!(error.to_string().contains("output 1 is in pool"), "{error}");
        assert!(error.to_string().contains("for reading only"), "{error}");
    }
}

#[test]
fn output_behind_one_that_is_too_small_is_not_written() {
    let daemon = start();
    let prepared = sums(&open(&daemon, REFERENCE), [1, 0]);
    let memory = Memory::new(64).unwrap();
    memory.write(0, &VALUES).unwrap();
    memory.write(16, &[-1.0_f32; 12]).unwrap();
    let request = Request::new()
        .input(&memory, 0..16)
        .output(&memory, 16..28)
        .output(&memory, 32..48);
    let error = prepared.execute(&request, &ExecuteOptions::new()).unwrap_err();
    assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
    assert_eq!(floats(&memory, 32), [-1.0; 4]);
}

#[test]
fn request_that_is_run_again_with_an_output_that_is_too_small_is_computed_once() {
    let daemon = start();
    let prepared = sums_of(&open(&daemon, REFERENCE), [0, 1], 4);
    let memory = Memory::new(64).unwrap();
    memory.write(0, &VALUES).unwrap();
    // A state in place.
    let request = |room: u64| {
        Request::new()
            .input(&memory, 0..16)
            .output(&memory, 0..16)
            .output(&memory, 32..32 + room)
    };
    let options = ExecuteOptions::new();
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let (enough, too_small) = (request(16), request(12));
    let registered = [&enough, &too_small].map(|request| burst.register(request).unwrap());
    for round in 0..6 {
        let advanced = |by: f32| VALUES.map(|value| value + (4 * round) as f32 + by);
        burst.fire(&registered[0], &options).unwrap();
        assert_eq!(
            (floats(&memory, 0), floats(&memory, 32)),
            (advanced(1.0).into(), advanced(2.0).into())
        );
        let error = burst.fire(&registered[1], &options).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
        assert_eq!(floats(&memory, 0), advanced(2.0), "round {round}");
        for by in [3.0, 4.0] {
            let error = burst.execute(&too_small, &options).unwrap_err();
            assert_eq!(error.status(), ErrorStatus::OutputInsufficientSize, "{error}");
            assert_eq!(floats(&memory, 0), advanced(by), "round {round}");
        }
    }
}
