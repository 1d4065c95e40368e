//! Which devices there are, and what they are asked.

use nnhal_client::runtime::{CPU_DEVICE, CompilationOptions, ResultCode, Runtime, RuntimeOptions};
use nnhal_client::{DevicesOptions, ExecutionPreference};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{FAST, REFERENCE, VENDOR_EXE, chain, on, run, start};

#[test]
fn devices_are_those_of_drivers_and_the_cpu_is_the_last() {
    let (_daemon, runtime) = start();
    let names: Vec<&str> = runtime.devices().iter().map(|device| device.name()).collect();
    assert_eq!(names, [FAST, REFERENCE, CPU_DEVICE]);
    let cpu = runtime.cpu();
    assert!(cpu.is_cpu() && cpu.wait().is_ok());
    assert_eq!(
        (cpu.feature_level(), runtime.devices()[0].feature_level()),
        (1_000_008, 1_000_007)
    );
    assert_eq!(cpu.info().capabilities.if_performance.exec_time, 1.0);
}

#[test]
fn without_drivers_the_cpu_runs_models() {
    let directory = tempfile::tempdir().unwrap();
    let devices = DevicesOptions::new().runtime_dir(directory.path());
    let runtime = Runtime::with(RuntimeOptions::new().devices(devices)).unwrap();
    assert_eq!(runtime.devices().len(), 1);
    let compilation = runtime
        .compile(&chain(3, false), &CompilationOptions::new())
        .unwrap();
    assert_eq!(run(&compilation).unwrap(), (vec![7.0; 4], None));
}

#[test]
fn best_figure_gets_the_operation_and_the_cpu_wins_a_tie() {
    let (_daemon, runtime) = start();
    for preference in [
        ExecutionPreference::FastSingleAnswer,
        ExecutionPreference::LowPower,
    ] {
        let options = CompilationOptions::new().preference(preference);
        let compilation = runtime.compile(&chain(2, false), &options).unwrap();
        assert_eq!(compilation.devices()[0].name(), FAST);
    }
    let both = on(&runtime, &[REFERENCE, CPU_DEVICE]);
    let compilation = runtime.compile(&chain(2, false), &both).unwrap();
    assert_eq!(compilation.devices()[0].name(), CPU_DEVICE);
    assert_eq!(run(&compilation).unwrap().0, [4.0; 4]);
    let text = compilation.explain().to_string();
    assert!(text.contains("nnhal-reference: supported at cost 1"), "{text}");
    assert!(
        text.contains("step 0 on nnapi-reference: operations 0-1"),
        "{text}"
    );
}

#[test]
fn explicit_devices_are_checked() {
    let (_daemon, runtime) = start();
    let fast = runtime.device(FAST).unwrap().clone();
    let code = |devices: &[nnhal_client::runtime::RuntimeDevice]| {
        let options = CompilationOptions::new().devices(devices);
        runtime.compile(&chain(1, false), &options).unwrap_err().code()
    };
    assert_eq!(code(&[]), ResultCode::BadData);
    assert_eq!(code(&[fast.clone(), fast.clone()]), ResultCode::BadData);
    let (_other, other) = start();
    assert_eq!(code(&[other.cpu().clone()]), ResultCode::BadData);
    let supported = runtime.supported_operations(&chain(2, false), &[fast]).unwrap();
    assert_eq!(supported, [true, true]);
}

#[test]
fn operation_that_nobody_can_run_is_bad_data_with_every_reason() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let runtime = crate::common::runtime(&daemon);
    let mut model = nnhal_client::ModelBuilder::new();
    let ty = || nnhal_client::TensorType::float32(&[4]);
    let (x, y) = (model.input(ty()), model.output(ty()));
    model.operation(nnhal_client::OperationType::TANH, &[x], &[y]);
    let model = model.finish().unwrap();
    let drivers: Vec<_> = runtime
        .devices()
        .iter()
        .filter(|device| !device.is_cpu())
        .cloned()
        .collect();
    let error = runtime
        .compile(&model, &CompilationOptions::new().devices(&drivers))
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::BadData);
    let text = error.to_string();
    assert!(text.contains("operation 0 (TANH)"), "{text}");
    assert!(
        drivers.iter().all(|device| text.contains(device.name())),
        "{text}"
    );
    // With all devices the CPU of this process takes it.
    assert!(runtime.compile(&model, &CompilationOptions::new()).is_ok());
}
