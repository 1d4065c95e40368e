//! What the tests of the runtime share.

use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::runtime::{
    Compilation, CompilationOptions, OperationFilter, RunInput, RunOutput, Runtime, RuntimeOptions,
};
use nnhal_client::{
    DevicesOptions, ExecuteOptions, Model, ModelBuilder, OperandId, OperationType, TensorType,
};
use nnhal_tests::{DaemonOptions, TestDaemon, wait_until};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
pub(crate) const VENDOR_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-vendor-driver");
pub(crate) const REFERENCE: &str = "nnhal-reference";
pub(crate) const FAST: &str = "nnhal-cpu";

pub(crate) fn start() -> (TestDaemon, Runtime) {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let runtime = runtime(&daemon);
    (daemon, runtime)
}

pub(crate) fn runtime(daemon: &TestDaemon) -> Runtime {
    Runtime::with(RuntimeOptions::new().devices(devices(daemon))).unwrap()
}

pub(crate) fn devices(daemon: &TestDaemon) -> DevicesOptions {
    DevicesOptions::new().runtime_dir(daemon.runtime_dir())
}

/// Kills the workers that serve clients and waits until they are gone.
pub(crate) fn kill_workers(daemon: &TestDaemon) {
    let workers = daemon.workers();
    for worker in &workers {
        let _ = kill(Pid::from_raw(worker.cast_signed()), Signal::SIGKILL);
    }
    wait_until("the workers are gone", || {
        let left = daemon.workers();
        workers.iter().all(|worker| !left.contains(worker))
    });
}

/// Operation after operation on four floats: each adds one more than the one before, the first adds 1. Beside
/// the last one's result, the result of the first is an output if `has_two`.
pub(crate) fn chain(operations: u32, has_two: bool) -> Model {
    let ty = || TensorType::float32(&[4]);
    let mut model = ModelBuilder::new();
    let none = model.scalar(0_i32);
    let mut value: OperandId = model.input(ty());
    for index in 0..operations {
        let is_output = index + 1 == operations || (has_two && index == 0);
        let constant = model.constant(ty(), &[(index + 1) as f32; 4]);
        let next = if is_output {
            model.output(ty())
        } else {
            model.temporary(ty())
        };
        model.operation(OperationType::ADD, &[value, constant, none], &[next]);
        value = next;
    }
    model.finish().unwrap()
}

/// What a chain adds.
pub(crate) fn sum(operations: u32) -> f32 {
    (1..=operations).sum::<u32>() as f32
}

/// Gives the operations to the drivers' devices in turn, `run` at a time, and none to the CPU of this
/// process.
pub(crate) fn in_turn(run: usize) -> OperationFilter {
    Arc::new(move |device, index, _| device.name == [FAST, REFERENCE][index / run % 2])
}

pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// Executes a chain with ones.
pub(crate) fn run(
    compilation: &Compilation,
) -> Result<(Vec<f32>, Option<String>), nnhal_client::runtime::RuntimeError> {
    let input = bytes(&[1.0; 4]);
    let mut output = [0; 16];
    let finished = compilation.execute(
        &[RunInput::bytes(&input)],
        &mut [RunOutput::bytes(&mut output)],
        &ExecuteOptions::new(),
    )?;
    Ok((floats(&output), finished.fallback))
}

/// Compiles for the named devices only.
pub(crate) fn on(runtime: &Runtime, names: &[&str]) -> CompilationOptions {
    let devices: Vec<_> = names
        .iter()
        .map(|name| runtime.device(name).unwrap().clone())
        .collect();
    CompilationOptions::new().devices(&devices)
}
