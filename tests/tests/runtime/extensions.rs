//! Vendor extensions through the runtime.

use nnhal_client::runtime::{CompilationOptions, ResultCode, RunInput, RunOutput};
use nnhal_client::{DevicesOptions, ExecuteOptions, ModelBuilder, OperandType, OperationType, TensorType};
use nnhal_tests::{DaemonOptions, TestDaemon};
use vendor_driver::extension::{self, Quantization};

use crate::common::{VENDOR_EXE, kill_workers, runtime};

fn fibonacci_model() -> nnhal_client::Model {
    let mut model = ModelBuilder::new();
    let prefix = model.extension(extension::NAME);
    let quantization = Quantization {
        scale: 1.0,
        zero_point: 0,
    };
    let count = model.input(TensorType::new(
        OperandType::extension(prefix, extension::INT64),
        &[],
    ));
    let numbers = OperandType::extension(prefix, extension::TENSOR_QUANT64_ASYMM);
    let numbers = TensorType::new(numbers, &[5]).with_extension_params(&quantization.to_bytes());
    let numbers = model.output(numbers);
    let fibonacci = OperationType::extension(prefix, extension::FIBONACCI);
    model.operation(fibonacci, &[count], &[numbers]);
    model.finish().unwrap()
}

#[test]
fn extension_runs_on_the_device_that_has_it_and_never_on_the_cpu() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let runtime = runtime(&daemon);
    assert!(runtime.extensions().get(extension::NAME).is_some());
    let compilation = runtime
        .compile(&fibonacci_model(), &CompilationOptions::new())
        .unwrap();
    assert!(compilation.devices()[0].supports_extension(extension::NAME));
    let execute = || {
        let mut output = [0; 40];
        let count = 5_i64.to_ne_bytes();
        compilation
            .execute(
                &[RunInput::bytes(&count)],
                &mut [RunOutput::bytes(&mut output)],
                &ExecuteOptions::new(),
            )
            .map(|_| output)
    };
    let expected: Vec<u8> = [1_i64, 1, 2, 3, 5]
        .into_iter()
        .flat_map(i64::to_ne_bytes)
        .collect();
    assert_eq!(execute().unwrap().to_vec(), expected);
    kill_workers(&daemon);
    assert_eq!(execute().unwrap_err().code(), ResultCode::DeadObject);
}

#[test]
fn application_that_is_not_listed_gets_no_extension() {
    let daemon = TestDaemon::start(VENDOR_EXE, &DaemonOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    std::fs::write(&list, "/bin/somebody-else\n").unwrap();
    let devices = DevicesOptions::new()
        .runtime_dir(daemon.runtime_dir())
        .extension_allowlist(&list);
    let options = nnhal_client::runtime::RuntimeOptions::new().devices(devices);
    let runtime = nnhal_client::runtime::Runtime::with(options).unwrap();
    let error = runtime
        .compile(&fibonacci_model(), &CompilationOptions::new())
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::BadData);
    assert!(error.to_string().contains("which this application"), "{error}");
}
