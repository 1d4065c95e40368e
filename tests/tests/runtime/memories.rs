//! Device memory: in a device where one serves it, shared otherwise.

use std::sync::Arc;

use nnhal_client::runtime::{
    Compilation, CompilationOptions, DeviceMemory, Direction, MemoryRole, OperationFilter, OutputBuffer,
    ResultCode, RunInput, RunOutput, Runtime, RuntimeResult,
};
use nnhal_client::{
    Deadline, DeviceInfo, ExecuteOptions, Fence, Memory, Model, ModelBuilder, OperationType, TensorType,
};

use crate::common::{FAST, REFERENCE, bytes, chain, floats, in_turn, on, start, sum};

fn role(compilation: &Compilation, direction: Direction) -> MemoryRole<'_> {
    MemoryRole {
        compilation,
        index: 0,
        direction,
        frequency: 1.0,
    }
}

/// Memory for the output of one compilation that the next reads.
fn between(runtime: &Runtime, one: &Compilation, next: &Compilation) -> RuntimeResult<DeviceMemory> {
    runtime.allocate(&[role(one, Direction::Output), role(next, Direction::Input)], &[])
}

fn pass_on(one: &Compilation, next: &Compilation, memory: &DeviceMemory) -> Vec<f32> {
    let input = bytes(&[1.0; 4]);
    let (memory, dimensions) = (memory, &[][..]);
    one.execute(
        &[RunInput::bytes(&input)],
        &mut [RunOutput::Device { memory, dimensions }],
        &ExecuteOptions::new(),
    )
    .unwrap();
    let mut output = [0; 16];
    next.execute(
        &[RunInput::Device { memory, dimensions }],
        &mut [RunOutput::bytes(&mut output)],
        &ExecuteOptions::new(),
    )
    .unwrap();
    floats(&output)
}

#[test]
fn value_passes_between_executions_in_a_device_or_shared() {
    let (_daemon, runtime) = start();
    let fast = on(&runtime, &[FAST]);
    let split = CompilationOptions::new().filter(in_turn(1));
    let cpu = on(&runtime, &["nnapi-reference"]);
    let all = CompilationOptions::new();
    for (one, next, is_in_device) in [
        (&fast, &fast, true),
        (&all, &all, true),
        // The parts at the seam are both on the first device.
        (&fast, &split, true),
        (&split, &all, false),
        (&cpu, &cpu, false),
    ] {
        let one = runtime.compile(&chain(2, false), one).unwrap();
        let next = runtime.compile(&chain(3, false), next).unwrap();
        let memory = between(&runtime, &one, &next).unwrap();
        assert_eq!(memory.is_in_device(), is_in_device);
        assert!(!memory.is_initialised());
        assert_eq!(pass_on(&one, &next, &memory), [1.0 + sum(2) + sum(3); 4]);
        assert!(memory.is_initialised());
        let copy = Memory::new(16).unwrap();
        memory.copy_to(&copy).unwrap();
        assert_eq!(copy.read::<f32>(0, 4).unwrap(), [4.0; 4]);
    }
}

#[test]
fn memory_of_two_devices_that_were_named_is_refused() {
    let (_daemon, runtime) = start();
    let one = runtime.compile(&chain(2, false), &on(&runtime, &[FAST])).unwrap();
    let next = runtime
        .compile(&chain(2, false), &on(&runtime, &[REFERENCE]))
        .unwrap();
    let error = between(&runtime, &one, &next).unwrap_err();
    assert_eq!(error.code(), ResultCode::OpFailed);
    assert!(
        error.to_string().contains("no memory belongs to two devices"),
        "{error}"
    );
}

#[test]
fn memory_without_a_value_or_the_role_is_refused() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    let other = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    let memory = runtime
        .allocate(&[role(&compilation, Direction::Input)], &[])
        .unwrap();
    let code = |compilation: &Compilation| {
        let mut output = [0; 16];
        compilation
            .execute(
                &[RunInput::Device {
                    memory: &memory,
                    dimensions: &[],
                }],
                &mut [RunOutput::bytes(&mut output)],
                &ExecuteOptions::new(),
            )
            .map_err(|error| error.code())
    };
    assert_eq!(code(&compilation), Err(ResultCode::OpFailed));
    assert_eq!(code(&other), Err(ResultCode::BadData));
    let source = Memory::new(16).unwrap();
    memory.copy_from(&source, &[]).unwrap();
    assert!(code(&compilation).is_ok());
    let wrong = Memory::new(12).unwrap();
    assert_eq!(
        memory.copy_from(&wrong, &[]).unwrap_err().code(),
        ResultCode::BadData
    );
    assert_eq!(code(&compilation), Err(ResultCode::OpFailed));
}

#[test]
fn memory_of_an_execution_that_came_too_late_has_no_value() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(1, false), &CompilationOptions::new())
        .unwrap();
    let memory = &runtime
        .allocate(&[role(&compilation, Direction::Output)], &[])
        .unwrap();
    let execute = |options: &ExecuteOptions| {
        compilation
            .execute(
                &[RunInput::bytes(&[0; 16])],
                &mut [RunOutput::Device {
                    memory,
                    dimensions: &[],
                }],
                options,
            )
            .map_err(|error| error.code())
    };
    let (options, read) = (ExecuteOptions::new(), Memory::new(16).unwrap());
    execute(&options).unwrap();
    memory.copy_to(&read).unwrap();
    let late = options.deadline(Deadline::at(nnhal_os::time::TimePoint::EPOCH));
    assert_eq!(execute(&late), Err(ResultCode::MissedDeadlinePersistent));
    assert!(memory.copy_to(&read).is_err());
    execute(&options).unwrap();
    memory.copy_to(&read).unwrap();
    let room = OutputBuffer::Device {
        memory: memory.clone(),
        dimensions: Vec::new(),
    };
    let fenced = compilation.execute_fenced(&[RunInput::bytes(&[0; 16])], &[room], &[], &late);
    assert_eq!(fenced.unwrap_err().code(), ResultCode::MissedDeadlinePersistent);
    assert!(memory.copy_to(&read).is_err());
}

#[test]
fn roles_are_checked() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    let code = |roles: &[MemoryRole<'_>], dimensions: &[u32]| {
        runtime
            .allocate(roles, dimensions)
            .map_err(|error| error.code())
            .map(drop)
    };
    let input = role(&compilation, Direction::Input);
    let bad = Err(ResultCode::BadData);
    assert_eq!(code(&[], &[]), bad);
    assert_eq!(code(&[input, input], &[]), bad);
    assert_eq!(
        code(
            &[MemoryRole {
                frequency: 0.0,
                ..input
            }],
            &[]
        ),
        bad
    );
    assert_eq!(code(&[MemoryRole { index: 1, ..input }], &[]), bad);
    assert_eq!(code(&[input], &[5]), bad);
    assert_eq!(code(&[input], &[4]), Ok(()));
}

/// `first = x + 1` and `second = first + ((x + 2) + 3)`, of which one device gets all but the addition of 3.
fn there_and_back() -> (Model, OperationFilter) {
    let ty = || TensorType::float32(&[4]);
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let [one, two, three] = [1.0_f32, 2.0, 3.0].map(|value| model.constant(ty(), &[value; 4]));
    let (x, first) = (model.input(ty()), model.output(ty()));
    let (there, back) = (model.temporary(ty()), model.temporary(ty()));
    let second = model.output(ty());
    model.operation(OperationType::ADD, &[x, one, none], &[first]);
    model.operation(OperationType::ADD, &[x, two, none], &[there]);
    model.operation(OperationType::ADD, &[there, three, none], &[back]);
    model.operation(OperationType::ADD, &[first, back, none], &[second]);
    let filter =
        |device: &DeviceInfo, index: usize, _: &_| device.name == if index == 2 { REFERENCE } else { FAST };
    (model.finish().unwrap(), Arc::new(filter))
}

#[test]
fn output_that_a_later_step_reads_is_the_one_of_the_same_execution() {
    let (_daemon, runtime) = start();
    let (back, filter) = there_and_back();
    let both = [FAST, REFERENCE];
    for (model, options, is_in_device, second) in [
        // Another device reads it.
        (
            chain(2, true),
            CompilationOptions::new().filter(in_turn(1)),
            false,
            [13.0, 23.0],
        ),
        // The same device reads it, in another step.
        (back, on(&runtime, &both).filter(filter), true, [26.0, 46.0]),
    ] {
        let compilation = runtime.compile(&model, &options).unwrap();
        let memory = runtime
            .allocate(&[role(&compilation, Direction::Output)], &[])
            .unwrap();
        assert_eq!(memory.is_in_device(), is_in_device, "{}", compilation.explain());
        let copy = Memory::new(16).unwrap();
        let mut output = [0; 16];
        compilation
            .execute(
                &[RunInput::bytes(&bytes(&[10.0; 4]))],
                &mut [
                    RunOutput::Device {
                        memory: &memory,
                        dimensions: &[],
                    },
                    RunOutput::bytes(&mut output),
                ],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert_eq!(floats(&output), [second[0]; 4]);
        memory.copy_to(&copy).unwrap();
        assert_eq!(copy.read::<f32>(0, 4).unwrap(), [11.0; 4]);

        let (source, fence) = Fence::create().unwrap();
        let event = compilation
            .execute_fenced(
                &[RunInput::bytes(&bytes(&[20.0; 4]))],
                &[
                    OutputBuffer::Device {
                        memory: memory.clone(),
                        dimensions: Vec::new(),
                    },
                    OutputBuffer::bytes(16),
                ],
                &[&fence],
                &ExecuteOptions::new(),
            )
            .unwrap();
        assert!(!event.is_finished());
        source.signal().unwrap();
        assert_eq!(event.wait(Deadline::NONE).unwrap().fallback, None);
        event.output(1, &mut output).unwrap();
        assert_eq!(floats(&output), [second[1]; 4]);
        memory.copy_to(&copy).unwrap();
        assert_eq!(copy.read::<f32>(0, 4).unwrap(), [21.0; 4]);
    }
}

#[test]
fn output_that_two_named_devices_use_gets_no_device_memory() {
    let (_daemon, runtime) = start();
    let options = on(&runtime, &[FAST, REFERENCE]).filter(in_turn(1));
    let compilation = runtime.compile(&chain(2, true), &options).unwrap();
    let error = runtime
        .allocate(&[role(&compilation, Direction::Output)], &[])
        .unwrap_err();
    assert!(
        error.to_string().contains("no memory belongs to two devices"),
        "{error}"
    );
}

#[test]
fn dimensions_that_the_memory_cannot_have_are_told_from_those_that_its_value_has_not() {
    let (_daemon, runtime) = start();
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[0, 4]));
    let y = model.output(TensorType::float32(&[0, 4]));
    model.operation(OperationType::RELU, &[x], &[y]);
    let compilation = runtime
        .compile(&model.finish().unwrap(), &on(&runtime, &[FAST]))
        .unwrap();
    let roles = [
        role(&compilation, Direction::Input),
        role(&compilation, Direction::Output),
    ];
    let memory = runtime.allocate(&roles, &[0, 4]).unwrap();
    let given = Memory::new(16).unwrap();
    memory.copy_from(&given, &[1, 4]).unwrap();
    let read = |dimensions: &[u32]| {
        let mut output = [0; 32];
        let memory = &memory;
        let outputs = &mut [RunOutput::bytes(&mut output)];
        let result = compilation.execute(
            &[RunInput::Device { memory, dimensions }],
            outputs,
            &ExecuteOptions::new(),
        );
        result.map(drop).map_err(|error| error.code())
    };
    assert_eq!(read(&[1, 4]), Ok(()));
    assert_eq!(read(&[]), Ok(()));
    assert_eq!(read(&[2, 4]), Err(ResultCode::OpFailed));
    assert_eq!(read(&[1, 5]), Err(ResultCode::BadData));
    assert_eq!(read(&[4]), Err(ResultCode::BadData));
}
