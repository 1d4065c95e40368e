//! Models in parts on several devices.

use std::sync::Arc;

use nnhal_client::runtime::{CompilationOptions, Partitioning, ResultCode, RunInput, RunOutput};
use nnhal_client::{ExecuteOptions, ModelBuilder, OperationType, TensorType};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{EXE, FAST, REFERENCE, VENDOR_EXE, bytes, chain, floats, in_turn, run, start, sum};

#[test]
fn parts_of_two_drivers_give_what_the_whole_gives() {
    let (_daemon, runtime) = start();
    for (operations, length, parts) in [(2, 1, 2), (7, 1, 7), (7, 2, 4), (6, 3, 2)] {
        let options = CompilationOptions::new().filter(in_turn(length));
        let compilation = runtime.compile(&chain(operations, false), &options).unwrap();
        let explanation = compilation.explain();
        assert_eq!(explanation.steps.len(), parts, "{explanation}");
        assert_eq!(explanation.steps[0].device, FAST);
        assert_eq!(explanation.steps[1].device, REFERENCE);
        for _ in 0..3 {
            assert_eq!(run(&compilation).unwrap(), (vec![1.0 + sum(operations); 4], None));
        }
        let mut burst = compilation.burst().unwrap();
        for round in 0..3 {
            let mut output = [0; 16];
            let input = bytes(&[round as f32; 4]);
            let finished = burst
                .execute(
                    &[RunInput::bytes(&input)],
                    &mut [RunOutput::bytes(&mut output)],
                    &ExecuteOptions::new(),
                )
                .unwrap();
            assert_eq!(finished.fallback, None);
            assert_eq!(floats(&output), [round as f32 + sum(operations); 4]);
        }
    }
}

#[test]
fn output_that_another_part_reads_is_both() {
    let (_daemon, runtime) = start();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&chain(3, true), &options).unwrap();
    assert_eq!(compilation.explain().steps.len(), 3);
    let input = bytes(&[1.0; 4]);
    let (mut first, mut last) = ([0; 16], [0; 16]);
    let finished = compilation
        .execute(
            &[RunInput::bytes(&input)],
            &mut [RunOutput::bytes(&mut first), RunOutput::bytes(&mut last)],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert_eq!((floats(&first), floats(&last)), (vec![2.0; 4], vec![7.0; 4]));
    assert_eq!(finished.output_shapes.len(), 2);
    assert_eq!(finished.output_shapes[1].dimensions, [4]);
}

#[test]
fn vendors_partial_device_gets_what_it_supports_and_the_cpu_the_rest() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let runtime = crate::common::runtime(&daemon);
    let ty = || TensorType::float32(&[4]);
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let x = model.input(ty());
    let (a, b) = (model.temporary(ty()), model.temporary(ty()));
    let y = model.output(ty());
    model.operation(OperationType::ADD, &[x, x, none], &[a]);
    model.operation(OperationType::FLOOR, &[a], &[b]);
    model.operation(OperationType::MUL, &[b, b, none], &[y]);
    let model = model.finish().unwrap();
    let arithmetic = vendor_driver::ARITHMETIC;
    // The CPU wins ties, so it is kept away from what the device can do.
    let filter = Arc::new(
        |device: &nnhal_client::DeviceInfo, _, operation: &nnhal_hal::Operation| {
            device.name == vendor_driver::ARITHMETIC
                || (device.name == "nnapi-reference" && operation.operation_type == OperationType::FLOOR)
        },
    );
    let compilation = runtime
        .compile(&model, &CompilationOptions::new().filter(filter))
        .unwrap();
    let devices: Vec<&str> = compilation
        .explain()
        .steps
        .iter()
        .map(|step| step.device.as_str())
        .collect();
    assert_eq!(devices, [arithmetic, "nnapi-reference", arithmetic]);
    let input = bytes(&[1.25, -0.75, 3.0, 0.0]);
    let mut output = [0; 16];
    let finished = compilation
        .execute(
            &[RunInput::bytes(&input)],
            &mut [RunOutput::bytes(&mut output)],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert_eq!(floats(&output), [4.0, 4.0, 36.0, 0.0]);
    assert_eq!(finished.fallback, None);
}

/// A value of unknown size between two devices.
fn open_chain() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let x = model.input(TensorType::float32(&[4]));
    let one = model.constant(TensorType::float32(&[4]), &[1.0_f32; 4]);
    let between = model.temporary(TensorType::float32(&[0]));
    let y = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, one, none], &[between]);
    model.operation(OperationType::ADD, &[between, one, none], &[y]);
    model.finish().unwrap()
}

#[test]
fn value_of_unknown_size_between_devices_sends_the_whole_model_to_the_cpu() {
    let (_daemon, runtime) = start();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&open_chain(), &options).unwrap();
    assert_eq!(compilation.devices(), [runtime.cpu().clone()]);
    let reason = compilation.explain().fallback.clone().unwrap();
    assert!(
        reason.contains("lies between two devices, and its size is not known"),
        "{reason}"
    );
    assert_eq!(run(&compilation).unwrap().0, [3.0; 4]);

    let error = runtime
        .compile(
            &open_chain(),
            &options.clone().partitioning(Partitioning::WithoutFallback),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::OpFailed);
    let drivers = runtime.devices()[..2].to_vec();
    let error = runtime
        .compile(&open_chain(), &options.devices(&drivers))
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::OpFailed);
}

#[test]
fn partitioning_can_be_turned_off() {
    let (_daemon, runtime) = start();
    let options = CompilationOptions::new().partitioning(Partitioning::Never);
    let compilation = runtime.compile(&chain(3, false), &options).unwrap();
    assert_eq!(compilation.devices(), [runtime.cpu().clone()]);
}

#[test]
fn what_is_wrong_with_an_argument_is_told_by_the_whole_models_index() {
    let (_daemon, runtime) = start();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&chain(3, false), &options).unwrap();
    let mut output = [0; 16];
    let error = compilation
        .execute(
            &[RunInput::bytes(&[0; 8])],
            &mut [RunOutput::bytes(&mut output)],
            &ExecuteOptions::new(),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::BadData);
    assert!(error.to_string().contains("input 0: has 8 bytes"), "{error}");
    let error = compilation
        .execute(
            &[RunInput::bytes(&bytes(&[1.0; 4]))],
            &mut [RunOutput::bytes(&mut output[..8])],
            &ExecuteOptions::new(),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::OutputInsufficientSize);
    assert_eq!(error.output_shapes()[0].dimensions, [4]);
    assert!(!error.output_shapes()[0].is_sufficient);
}

#[test]
fn two_daemons_in_one_directory_share_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let run_dir = directory.path().join("run");
    let _nnhal = TestDaemon::start_in(&run_dir, EXE, &DaemonOptions::default());
    let vendor = TestDaemon::start_in(&run_dir, VENDOR_EXE, &DaemonOptions::default());
    let runtime = crate::common::runtime(&vendor);
    let filter = Arc::new(
        |device: &nnhal_client::DeviceInfo, index: usize, _: &nnhal_hal::Operation| {
            device.name == [vendor_driver::ARITHMETIC, REFERENCE][index % 2]
        },
    );
    let compilation = runtime
        .compile(&chain(4, false), &CompilationOptions::new().filter(filter))
        .unwrap();
    assert_eq!(compilation.explain().steps.len(), 4);
    assert_eq!(run(&compilation).unwrap(), (vec![1.0 + sum(4); 4], None));
}

/// Three additions of large tensors, the first and the last on one device: the last reads the first's result,
/// which the other device has nothing to do with.
fn detour(elements: u32) -> nnhal_client::Model {
    let ty = || TensorType::float32(&[elements]);
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let x = model.input(ty());
    let (kept, one, other) = (
        model.temporary(ty()),
        model.temporary(ty()),
        model.temporary(ty()),
    );
    let y = model.output(ty());
    model.operation(OperationType::ADD, &[x, x, none], &[kept]);
    model.operation(OperationType::MUL, &[x, x, none], &[one]);
    model.operation(OperationType::ADD, &[one, x, none], &[other]);
    model.operation(OperationType::SUB, &[kept, other, none], &[y]);
    model.finish().unwrap()
}

#[test]
fn large_value_that_one_device_needs_again_stays_there() {
    const ELEMENTS: u32 = 8192;
    let (daemon, runtime) = start();
    // The reference device multiplies; what it gives goes through the fast device, then back.
    let filter = Arc::new(
        |device: &nnhal_client::DeviceInfo, index: usize, _: &nnhal_hal::Operation| {
            device.name == [REFERENCE, REFERENCE, FAST, REFERENCE][index]
        },
    );
    let options = CompilationOptions::new()
        .filter(filter)
        .recovery(nnhal_client::runtime::Recovery::Reopen { attempts: 2 });
    for (elements, kept) in [(ELEMENTS, 4 * ELEMENTS as usize), (16, 0)] {
        let compilation = runtime.compile(&detour(elements), &options).unwrap();
        let explanation = compilation.explain();
        assert_eq!(explanation.steps.len(), 3, "{explanation}");
        assert_eq!(explanation.steps[0].bytes_kept, kept, "{explanation}");
        for round in 1..4 {
            let input = bytes(&vec![round as f32; elements as usize]);
            let mut output = vec![0; input.len()];
            let event = compilation
                .start(
                    &[RunInput::bytes(&input)],
                    &[nnhal_client::runtime::OutputBuffer::bytes(input.len())],
                    &ExecuteOptions::new(),
                )
                .unwrap();
            let finished = compilation
                .execute(
                    &[RunInput::bytes(&input)],
                    &mut [RunOutput::bytes(&mut output)],
                    &ExecuteOptions::new(),
                )
                .unwrap();
            assert_eq!(finished.fallback, None);
            let expected = (round + round - (round * round + round)) as f32;
            assert!(floats(&output).iter().all(|value| *value == expected));
            assert_eq!(event.wait(nnhal_client::Deadline::NONE).unwrap().fallback, None);
            crate::common::kill_workers(&daemon);
        }
    }
}
