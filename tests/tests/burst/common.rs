//! Daemons, devices and models of these tests.

use nnhal_client::{
    Burst, Device, Devices, Error, ExecuteOptions, Input, Model, ModelBuilder, OperationType, Output,
    PrepareOptions, PreparedModel, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
pub(crate) const REFERENCE: &str = "nnhal-reference";
pub(crate) const EMPTY: &str = "nnhal-empty";

pub(crate) fn start() -> TestDaemon {
    TestDaemon::start(EXE, &DaemonOptions::default())
}

pub(crate) fn open(daemon: &TestDaemon, name: &str) -> Device {
    Devices::open_in(daemon.runtime_dir())
        .unwrap()
        .device(name)
        .unwrap()
}

/// `output = input + 1` over `elements` values; as many as the input has if that is 0.
pub(crate) fn add_one(elements: u32) -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[elements]));
    let y = model.constant(TensorType::float32(&[1]), &[1.0_f32]);
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[elements]));
    model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
    model.finish().unwrap()
}

pub(crate) fn prepare(device: &Device, elements: u32) -> PreparedModel {
    device
        .prepare(&add_one(elements), &PrepareOptions::new())
        .unwrap()
}

/// Adds one to a value, by burst.
pub(crate) fn add(burst: &mut Burst, value: f32) -> Result<f32, Error> {
    let mut sum = [0.0_f32];
    burst.run(
        &[Input::from(&[value])],
        &mut [Output::from(&mut sum)],
        &ExecuteOptions::new(),
    )?;
    Ok(sum[0])
}
