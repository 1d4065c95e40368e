//! Executions that go on after the call.

use std::sync::Arc;
use std::time::Duration;

use nnhal_client::runtime::{
    CPU_DEVICE, Compilation, CompilationOptions, OutputBuffer, Recovery, ResultCode, RunEvent, RunInput,
    Runtime, RuntimeResult,
};
use nnhal_client::{
    Deadline, DeviceInfo, ExecuteOptions, Fence, FenceState, Memory, ModelBuilder, OperationType, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{
    EXE, FAST, REFERENCE, bytes, chain, floats, in_turn, kill_workers, on, runtime, start, sum,
};

fn values(event: &RunEvent) -> Vec<f32> {
    let mut output = [0; 16];
    event.output(0, &mut output).unwrap();
    floats(&output)
}

#[test]
fn started_execution_ends_with_its_values() {
    let (_daemon, runtime) = start();
    for filter in [1, 10] {
        let options = CompilationOptions::new().filter(in_turn(filter));
        let compilation = runtime.compile(&chain(4, false), &options).unwrap();
        let input = bytes(&[1.0; 4]);
        let event = compilation
            .start(
                &[RunInput::bytes(&input)],
                &[OutputBuffer::bytes(16)],
                &ExecuteOptions::new(),
            )
            .unwrap();
        for _ in 0..2 {
            event.wait(Deadline::NONE).unwrap();
            assert_eq!(values(&event), [1.0 + sum(4); 4]);
        }
        assert!(event.is_finished() && event.fence().unwrap().is_none());
    }
}

#[test]
fn fenced_execution_waits_for_its_fences_in_every_split() {
    let (_daemon, runtime) = start();
    let cpu_too = std::sync::Arc::new(|device: &nnhal_client::DeviceInfo, index: usize, _: &_| {
        device.name == ["nnhal-cpu", "nnhal-reference", "nnapi-reference"][index % 3]
    });
    let filters: [nnhal_client::runtime::OperationFilter; 3] = [in_turn(10), in_turn(1), cpu_too];
    for (index, filter) in filters.into_iter().enumerate() {
        let options = CompilationOptions::new().filter(filter);
        let compilation = runtime.compile(&chain(5, false), &options).unwrap();
        let (source, fence) = Fence::create().unwrap();
        let input = bytes(&[1.0; 4]);
        let launch = |fences: &[&Fence]| {
            compilation
                .execute_fenced(
                    &[RunInput::bytes(&input)],
                    &[OutputBuffer::bytes(16)],
                    fences,
                    &ExecuteOptions::new(),
                )
                .unwrap()
        };
        // A step in this process would wait for the fence before the call returns.
        let event = if index < 2 {
            let event = launch(&[&fence]);
            assert!(!event.is_finished());
            source.signal().unwrap();
            event
        } else {
            source.signal().unwrap();
            launch(&[&fence])
        };
        let finished = event.wait(Deadline::NONE).unwrap();
        assert_eq!(finished.output_shapes[0].dimensions, [4]);
        assert_eq!(values(&event), [1.0 + sum(5); 4]);
    }
}

#[test]
fn fenced_execution_of_a_driver_that_died_ends_on_the_cpu() {
    let (daemon, runtime) = start();
    let options = CompilationOptions::new()
        .filter(in_turn(1))
        .recovery(Recovery::OnCpu);
    let compilation = runtime.compile(&chain(4, false), &options).unwrap();
    kill_workers(&daemon);
    let input = bytes(&[1.0; 4]);
    let event = compilation
        .execute_fenced(
            &[RunInput::bytes(&input)],
            &[OutputBuffer::bytes(16)],
            &[],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert!(event.wait(Deadline::NONE).unwrap().fallback.is_some());
    assert_eq!(values(&event), [1.0 + sum(4); 4]);
}

#[test]
fn fenced_execution_needs_room_for_every_output() {
    let (_daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(1, false), &CompilationOptions::new())
        .unwrap();
    let input = bytes(&[1.0; 4]);
    let error = compilation
        .execute_fenced(
            &[RunInput::bytes(&input)],
            &[OutputBuffer::bytes(8)],
            &[],
            &ExecuteOptions::new(),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::BadData);
}

/// A daemon for each device, and a runtime with both.
fn start_apart() -> (TestDaemon, TestDaemon, Runtime) {
    let of = |device: &str| DaemonOptions {
        devices: vec![device.to_owned()],
        ..DaemonOptions::default()
    };
    let fast = TestDaemon::start(EXE, &of(FAST));
    let reference = TestDaemon::start_in(&fast.runtime_dir(), EXE, &of(REFERENCE));
    let runtime = runtime(&fast);
    (fast, reference, runtime)
}

/// A chain whose first step gives an output on one device, and whose second step gives the other on the
/// other.
fn in_two_steps(runtime: &Runtime) -> Compilation {
    let options = on(runtime, &[FAST, REFERENCE]).filter(in_turn(1));
    runtime.compile(&chain(2, true), &options).unwrap()
}

const UNTOUCHED: [f32; 4] = [-1.0; 4];

/// Memory for the output of the first step.
fn untouched() -> Memory {
    let memory = Memory::new(16).unwrap();
    memory.write(0, &UNTOUCHED).unwrap();
    memory
}

/// Launches a chain of two steps with ones, the output of the first in `memory`.
fn launch(
    compilation: &Compilation,
    memory: &Memory,
    fence: &Fence,
    options: &ExecuteOptions,
) -> RuntimeResult<RunEvent> {
    let first = OutputBuffer::Memory {
        memory: memory.clone(),
        offset: 0,
        length: 16,
        dimensions: Vec::new(),
    };
    let input = bytes(&[1.0; 4]);
    compilation.execute_fenced(
        &[RunInput::bytes(&input)],
        &[first, OutputBuffer::bytes(16)],
        &[fence],
        options,
    )
}

#[test]
fn step_that_was_launched_has_ended_when_the_failure_of_the_next_one_is_reported() {
    let (_fast, reference, runtime) = start_apart();
    let compilation = in_two_steps(&runtime);
    kill_workers(&reference);
    let (source, fence) = Fence::create().unwrap();
    let memory = untouched();
    let options = ExecuteOptions::new().timeout(Duration::from_millis(200));
    let error = launch(&compilation, &memory, &fence, &options).unwrap_err();
    assert_eq!(error.code(), ResultCode::DeadObject, "{error}");
    assert!(!error.to_string().contains("has not ended"), "{error}");
    // The step would begin now; what its worker executes afterwards ends behind it.
    source.signal().unwrap();
    let alone = runtime.compile(&chain(1, false), &on(&runtime, &[FAST])).unwrap();
    for _ in 0..20 {
        crate::common::run(&alone).unwrap();
    }
    assert_eq!(memory.read::<f32>(0, 4).unwrap(), UNTOUCHED);
}

#[test]
fn step_that_goes_on_for_longer_than_is_waited_for_is_reported() {
    let (_fast, reference, runtime) = start_apart();
    let compilation = in_two_steps(&runtime);
    kill_workers(&reference);
    let (_source, fence) = Fence::create().unwrap();
    let options = ExecuteOptions::new().wait_at_most(Duration::from_millis(20));
    let error = launch(&compilation, &untouched(), &fence, &options).unwrap_err();
    assert_eq!(error.code(), ResultCode::DeadObject);
    assert!(error.to_string().contains("has not ended"), "{error}");
}

#[test]
fn step_that_was_launched_ends_before_the_cpu_takes_over() {
    let (_fast, reference, runtime) = start_apart();
    let options = CompilationOptions::new()
        .filter(in_turn(1))
        .recovery(Recovery::OnCpu);
    let compilation = runtime.compile(&chain(2, true), &options).unwrap();
    kill_workers(&reference);
    let (source, fence) = Fence::create().unwrap();
    let memory = untouched();
    let event = std::thread::scope(|scope| {
        let launching = scope.spawn(|| launch(&compilation, &memory, &fence, &ExecuteOptions::new()));
        source.signal().unwrap();
        launching.join().unwrap().unwrap()
    });
    assert!(event.is_finished());
    assert!(event.wait(Deadline::NONE).unwrap().fallback.is_some());
    assert_eq!(memory.read::<f32>(0, 4).unwrap(), [2.0; 4]);
    let mut output = [0; 16];
    event.output(1, &mut output).unwrap();
    assert_eq!(floats(&output), [4.0; 4]);
}

#[test]
fn execution_whose_last_step_died_goes_on_until_the_steps_before_have_ended() {
    let (_fast, reference, runtime) = start_apart();
    let compilation = in_two_steps(&runtime);
    let (source, fence) = Fence::create().unwrap();
    let memory = untouched();
    let event = launch(&compilation, &memory, &fence, &ExecuteOptions::new()).unwrap();
    kill_workers(&reference);
    let end = event.fence().unwrap().unwrap().wait(Deadline::NONE).unwrap();
    assert_eq!(end, FenceState::Failed);
    assert!(!event.is_finished());
    source.signal().unwrap();
    let error = event.wait(Deadline::NONE).unwrap_err();
    assert_eq!(error.code(), ResultCode::DeadObject);
    assert_eq!(memory.read::<f32>(0, 4).unwrap(), [2.0; 4]);
    assert!(event.is_finished());
}

#[test]
fn time_after_the_fences_is_kept_by_the_cpu_of_this_process_too() {
    let (_daemon, runtime) = start();
    let cpu = runtime.compile(&chain(5, false), &on(&runtime, &[CPU_DEVICE]));
    let compilation = cpu.unwrap();
    let (source, fence) = Fence::create().unwrap();
    source.signal().unwrap();
    let input = bytes(&[1.0; 4]);
    let outcome = |duration: Duration| {
        let event = compilation.execute_fenced(
            &[RunInput::bytes(&input)],
            &[OutputBuffer::bytes(16)],
            &[&fence],
            &ExecuteOptions::new().duration_after_fences(duration),
        );
        event.map(|event| values(&event)).map_err(|error| error.code())
    };
    assert_eq!(outcome(Duration::from_secs(600)), Ok(vec![1.0 + sum(5); 4]));
    let missed = outcome(Duration::from_nanos(1)).unwrap_err();
    assert!(matches!(
        missed,
        ResultCode::MissedDeadlineTransient | ResultCode::MissedDeadlinePersistent
    ));
}

#[test]
fn output_of_a_launched_step_has_its_given_dimensions_when_the_last_step_runs_in_this_process() {
    let (_daemon, runtime) = start();
    let ty = |extent: u32| TensorType::float32(&[extent]);
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let one = model.constant(ty(4), &[1.0_f32; 4]);
    let x = model.input(ty(4));
    let (first, second) = (model.output(ty(0)), model.output(ty(4)));
    model.operation(OperationType::ADD, &[x, one, none], &[first]);
    model.operation(OperationType::ADD, &[first, one, none], &[second]);
    let filter = |device: &DeviceInfo, index: usize, _: &_| device.name == [FAST, CPU_DEVICE][index];
    let options = CompilationOptions::new().filter(Arc::new(filter));
    let compilation = runtime.compile(&model.finish().unwrap(), &options).unwrap();
    let given = OutputBuffer::Bytes {
        length: 16,
        dimensions: vec![4],
    };
    let input = bytes(&[1.0; 4]);
    let event = compilation
        .execute_fenced(
            &[RunInput::bytes(&input)],
            &[given, OutputBuffer::bytes(16)],
            &[],
            &ExecuteOptions::new(),
        )
        .unwrap();
    let finished = event.wait(Deadline::NONE).unwrap();
    assert_eq!(finished.fallback, None);
    for (index, shape) in finished.output_shapes.iter().enumerate() {
        assert_eq!(shape.dimensions, [4]);
        let mut output = [0; 16];
        event.output(index, &mut output).unwrap();
        assert_eq!(floats(&output), [2.0 + index as f32; 4]);
    }
}
