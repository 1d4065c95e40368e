//! The runtime above devices of several HAL versions.

use std::sync::Arc;

use nnhal_client::runtime::{CompilationOptions, RunInput, RunOutput, Runtime, RuntimeOptions};
use nnhal_client::{DeviceInfo, DevicesOptions, ExecuteOptions};
use nnhal_hal::{HalVersion, Operation};
use nnhal_tests::older_device::{OF_1_0, OF_1_1, OF_1_2};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::older_devices::{EXE, model_of_all_versions};

/// Each device gets the operation that came with its version, and the CPU of this process the one that none
/// has.
#[test]
fn model_is_split_between_devices_of_all_versions() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = DevicesOptions::new().runtime_dir(daemon.runtime_dir());
    let runtime = Runtime::with(RuntimeOptions::new().devices(devices)).unwrap();
    // The slower devices would get nothing, and the older ones nothing that the newer ones have.
    let filter = |device: &DeviceInfo, _: usize, operation: &Operation| {
        let since = operation.operation_type.since();
        since == Some(device.hal_version) || since == Some(HalVersion::V1_3)
    };
    let options = CompilationOptions::new().filter(Arc::new(filter));
    let compilation = runtime.compile(&model_of_all_versions(), &options).unwrap();
    let explanation = compilation.explain();
    let devices: Vec<&str> = explanation
        .steps
        .iter()
        .map(|step| step.device.as_str())
        .collect();
    assert_eq!(
        devices,
        [OF_1_0, OF_1_1, OF_1_2, "nnapi-reference"],
        "{explanation}"
    );

    let bytes =
        |values: [f32; 4]| -> Vec<u8> { values.iter().flat_map(|value| value.to_ne_bytes()).collect() };
    let input = bytes([1.0, -2.0, 3.0, -4.0]);
    let mut output = [0; 16];
    let finished = compilation
        .execute(
            &[RunInput::bytes(&input)],
            &mut [RunOutput::bytes(&mut output)],
            &ExecuteOptions::new(),
        )
        .unwrap();
    assert_eq!(finished.fallback, None);
    assert_eq!(output[..], bytes([0.0, 2.0, 0.0, 4.0]));
}
