//! What devices say of themselves (cases D of the VTS inventory), for every device that is served by default,
//! those of the example driver with its extension among them.

use nnhal_client::{Device, DeviceStatus, Devices, OperandType};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const VENDOR_EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-vendor-driver");

fn for_each_device(check: impl Fn(&Device)) {
    let ours = TestDaemon::start(EXE, &DaemonOptions::default());
    let _theirs = TestDaemon::start_in(&ours.runtime_dir(), VENDOR_EXE, &DaemonOptions::default());
    let devices = Devices::open_in(ours.runtime_dir()).unwrap();
    let names = devices.names().unwrap();
    assert_eq!(names.len(), 6, "{names:?}");
    for name in &names {
        check(&devices.device(name).unwrap());
    }
}

/// D01.
#[test]
fn idle_device_is_available() {
    for_each_device(|device| assert_eq!(device.status().unwrap(), DeviceStatus::Available));
}

/// D02, D03.
#[test]
fn capabilities_are_positive_sorted_and_complete() {
    for_each_device(|device| {
        let capabilities = &device.info().capabilities;
        let operands = &capabilities.operand_performance;
        let figures = operands.iter().map(|operand| operand.info).chain([
            capabilities.relaxed_float32_to_float16_performance_scalar,
            capabilities.relaxed_float32_to_float16_performance_tensor,
            capabilities.if_performance,
            capabilities.while_performance,
        ]);
        for figure in figures {
            assert!(figure.exec_time > 0.0 && figure.power_usage > 0.0, "{figure:?}");
        }
        assert!(operands.is_sorted_by(|a, b| a.operand_type < b.operand_type));
        assert!(
            operands
                .iter()
                .all(|operand| operand.operand_type != OperandType::SUBGRAPH)
        );
    });
}

/// D04, D05, D06, D07, D08.
#[test]
fn names_versions_types_and_counts_are_in_form() {
    for_each_device(|device| {
        let info = device.info();
        assert!(!info.version.is_empty());
        assert!((1..=4).contains(&(info.device_type as u32)));
        let (vendor, name) = info.name.split_once('-').unwrap();
        assert!(!vendor.is_empty() && !name.is_empty() && !name.contains('-'));
        for extension in &info.extensions {
            let is_plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '_' | '.');
            assert!(extension.name.contains('.') && extension.name.chars().all(is_plain));
        }
        assert!(info.cache_files.model <= 32 && info.cache_files.data <= 32);
    });
}

#[test]
fn two_daemons_say_the_same_of_their_devices() {
    let infos = || {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
        let names = devices.names().unwrap();
        let info = |name: &String| (**devices.device(name).unwrap().info()).clone();
        names.iter().map(info).collect::<Vec<_>>()
    };
    let first = infos();
    assert_eq!(first.len(), 2);
    assert_eq!(infos(), first);
    let exec_time = |name: &str| {
        let info = first.iter().find(|info| info.name == name).unwrap();
        info.capabilities.lookup(OperandType::TENSOR_FLOAT32).exec_time
    };
    assert_eq!(exec_time("nnhal-reference"), 1.0);
    assert!(exec_time("nnhal-cpu") < 1.0);
}
