//! Drivers of older versions of the HAL.

use std::sync::Arc;

use nnhal_client::runtime::{CPU_DEVICE, CompilationOptions, OutputBuffer, RunInput, RunOutput};
use nnhal_client::{
    Deadline, DeviceInfo, Devices, ExecuteOptions, ModelBuilder, OperationSupport, OperationType,
    PrepareOptions, TensorType,
};
use nnhal_tests::older_device::{OF_1_0, OF_1_1, OF_1_2};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{VENDOR_EXE, bytes, floats, on, runtime};

const OLDER_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-older-driver");

/// One operation of each version, one behind the other: RELU, SUB, ABS, ELU.
fn model_of_all_versions() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let ty = || TensorType::float32(&[4]);
    let (none, alpha) = (model.scalar(0_i32), model.scalar(1.0_f32));
    let x = model.input(ty());
    let (positive, difference, absolute) = (
        model.temporary(ty()),
        model.temporary(ty()),
        model.temporary(ty()),
    );
    let y = model.output(ty());
    model.operation(OperationType::RELU, &[x], &[positive]);
    model.operation(OperationType::SUB, &[positive, x, none], &[difference]);
    model.operation(OperationType::ABS, &[difference], &[absolute]);
    model.operation(OperationType::ELU, &[absolute, alpha], &[y]);
    model.finish().unwrap()
}

#[test]
fn older_devices_get_what_their_version_can_express() {
    let daemon = TestDaemon::start(OLDER_EXE, &DaemonOptions::default());
    let runtime = runtime(&daemon);
    let model = model_of_all_versions();
    for (name, level, supported) in [
        (OF_1_0, 27, [true, false, false, false]),
        (OF_1_1, 28, [true, true, false, false]),
        (OF_1_2, 29, [true, true, true, false]),
    ] {
        let device = runtime.device(name).unwrap().clone();
        assert_eq!(device.feature_level(), level);
        assert_eq!(
            runtime.supported_operations(&model, &[device]).unwrap(),
            supported
        );
    }
    let error = runtime
        .compile(&model, &on(&runtime, &[OF_1_0, OF_1_1, OF_1_2]))
        .unwrap_err();
    assert!(error.to_string().contains("operation 3 (ELU)"), "{error}");
    assert!(error.to_string().contains("is of HAL 1.2"), "{error}");

    let filter = Arc::new(|device: &DeviceInfo, index: usize, _: &nnhal_hal::Operation| {
        device.name == [OF_1_0, OF_1_1, OF_1_2, CPU_DEVICE][index]
    });
    let compilation = runtime
        .compile(&model, &CompilationOptions::new().filter(filter))
        .unwrap();
    assert_eq!(compilation.explain().steps.len(), 4, "{}", compilation.explain());
    let input = bytes(&[1.0, -2.0, 0.0, -0.5]);
    let expected = [0.0, 2.0, 0.0, 0.5];
    let inputs = [RunInput::bytes(&input)];
    let mut burst = compilation.burst().unwrap();
    for is_burst in [false, true] {
        let mut output = [0; 16];
        let outputs = &mut [RunOutput::bytes(&mut output)];
        let options = ExecuteOptions::new();
        let finished = if is_burst {
            burst.execute(&inputs, outputs, &options)
        } else {
            compilation.execute(&inputs, outputs, &options)
        };
        assert_eq!(
            (finished.unwrap().fallback, floats(&output)),
            (None, expected.to_vec())
        );
    }
    // Devices before 1.3 have no fences: the steps run before the call returns.
    let event = compilation
        .execute_fenced(&inputs, &[OutputBuffer::bytes(16)], &[], &ExecuteOptions::new())
        .unwrap();
    assert!(event.fence().unwrap().is_none() && event.is_finished());
    assert_eq!(event.wait(Deadline::NONE).unwrap().fallback, None);
    let mut output = [0; 16];
    event.output(0, &mut output).unwrap();
    assert_eq!(floats(&output), expected);
}

/// Of HAL 1.3.
const VENDOR: &str = "example-arithmetic";

/// `output = reversed(input + input)`.
fn model_of_level_7() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let ty = || TensorType::float32(&[4]);
    let none = model.scalar(0_i32);
    let axis = model.constant(TensorType::int32(&[1]), &[0_i32]);
    let (x, sum) = (model.input(ty()), model.temporary(ty()));
    let y = model.output(ty());
    model.operation(OperationType::ADD, &[x, x, none], &[sum]);
    model.operation(OperationType::REVERSE, &[sum, axis], &[y]);
    model.finish().unwrap()
}

#[test]
fn operation_of_a_later_feature_level_is_kept_from_devices_of_1_3() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let runtime = runtime(&daemon);
    let model = model_of_level_7();
    let device = runtime.device(VENDOR).unwrap().clone();
    assert_eq!(device.feature_level(), 30);
    assert_eq!(
        runtime.supported_operations(&model, &[device]).unwrap(),
        [true, false]
    );
    let expected = "is of HAL 1.3: REVERSE came with HAL feature level 7";
    let error = runtime.compile(&model, &on(&runtime, &[VENDOR])).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");

    // Who asks the driver without the runtime is told the same.
    let device = Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(VENDOR)
        .unwrap();
    match &device.supported_operations(&model).unwrap()[..] {
        [
            OperationSupport::Supported,
            OperationSupport::Unsupported { reason },
        ] => {
            assert!(reason.contains(expected), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let error = device.prepare(&model, &PrepareOptions::new()).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");

    let compilation = runtime
        .compile(&model, &on(&runtime, &[VENDOR, CPU_DEVICE]))
        .unwrap();
    let input = bytes(&[1.0, 2.0, 3.0, 4.0]);
    let mut output = [0; 16];
    let outputs = &mut [RunOutput::bytes(&mut output)];
    let options = ExecuteOptions::new();
    let finished = compilation
        .execute(&[RunInput::bytes(&input)], outputs, &options)
        .unwrap();
    assert_eq!(
        (finished.fallback, floats(&output)),
        (None, vec![8.0, 6.0, 4.0, 2.0])
    );
}
