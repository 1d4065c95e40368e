//! General requests that are sent again, which the driver need not check anew, between others.

use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Burst, BurstOptions, ErrorStatus, ExecuteOptions, Memory, Request,
};

use crate::common::{REFERENCE, open, prepare, start};

/// Memory for the model that adds one to four values, and the request for it.
fn memory_and_request() -> (Memory, Request) {
    let memory = Memory::new(32).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    (memory, request)
}

/// Executes with other values than before, by whatever `execute` is.
#[track_caller]
fn expect_sums(memory: &Memory, value: f32, execute: impl FnOnce()) {
    memory.write(0, &[value; 4]).unwrap();
    memory.write(16, &[f32::NAN; 4]).unwrap();
    execute();
    assert_eq!(memory.read::<f32>(16, 4).unwrap(), [value + 1.0; 4]);
}

#[test]
fn each_request_uses_its_own_memory_whatever_came_before() {
    let daemon = start();
    let prepared = prepare(&open(&daemon, REFERENCE), 4);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let options = ExecuteOptions::new();
    let (one, request_of_one) = memory_and_request();
    let (other, request_of_other) = memory_and_request();
    let mut value = 0.0;
    let mut execute = |burst: &mut Burst, memory: &Memory, request: &Request| {
        value += 1.0;
        expect_sums(memory, value, || {
            burst.execute(request, &options).unwrap();
        });
    };
    for _ in 0..3 {
        execute(&mut burst, &one, &request_of_one);
        execute(&mut burst, &one, &request_of_one);
        execute(&mut burst, &other, &request_of_other);
        execute(&mut burst, &one, &request_of_one);
        // What is registered is decoded in the same place.
        let registered = burst.register(&request_of_other).unwrap();
        execute(&mut burst, &other, &request_of_other);
        execute(&mut burst, &one, &request_of_one);
        expect_sums(&other, -5.0, || {
            burst.fire(&registered, &options).unwrap();
        });
        execute(&mut burst, &one, &request_of_one);
        // One that is refused leaves nothing behind.
        let short = Request::new().input(&one, 0..12).output(&one, 16..32);
        let error = burst.execute(&short, &options).unwrap_err();
        assert_eq!(error.status(), ErrorStatus::InvalidArgument, "{error}");
        burst.execute(&short, &options).unwrap_err();
        execute(&mut burst, &one, &request_of_one);
    }
}

#[test]
fn memory_and_device_buffers_that_are_made_anew_are_not_taken_for_the_old_ones() {
    let daemon = start();
    let device = open(&daemon, REFERENCE);
    let prepared = prepare(&device, 4);
    let mut burst = prepared.burst(&BurstOptions::new()).unwrap();
    let options = ExecuteOptions::new();
    let role = BufferRole {
        model_index: 0,
        io_index: 0,
        frequency: 1.0,
    };
    let filled = |value: f32| -> Buffer {
        let buffer = device
            .allocate(&BufferDesc::default(), &[&prepared], &[role], &[])
            .unwrap();
        let source = Memory::new(16).unwrap();
        source.write(0, &[value; 4]).unwrap();
        buffer.copy_from(&source, &[4]).unwrap();
        buffer
    };
    for value in [1.0, 2.0, 3.0] {
        // Those of the round before are gone, and their names can be given again.
        let buffer = filled(value);
        let memory = Memory::new(16).unwrap();
        let request = Request::new().input_buffer(&buffer).output(&memory, 0..16);
        for _ in 0..3 {
            memory.write(0, &[f32::NAN; 4]).unwrap();
            burst.execute(&request, &options).unwrap();
            assert_eq!(memory.read::<f32>(0, 4).unwrap(), [value + 1.0; 4]);
        }
    }
}
