//! `nnhal devices`: what can be used.

use std::collections::BTreeMap;
use std::io::Write as _;

use nnhal_client::Devices;
use nnhal_hal::{DeviceInfo, DeviceType, NumberOfCacheFiles, OperandType, PerformanceInfo};
use serde::Serialize;

use crate::arguments::DevicesArguments;
use crate::driver;
use crate::error::Error;
use crate::jail::Jail;

/// What is told of a device.
#[derive(Debug, Serialize)]
struct Report<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    device_type: &'static str,
    version: &'a str,
    hal_version: String,
    /// By operand type; relative to the reference, lower is better.
    performance: BTreeMap<String, PerformanceInfo>,
    if_performance: PerformanceInfo,
    while_performance: PerformanceInfo,
    extensions: Vec<&'a str>,
    cache_files: NumberOfCacheFiles,
    /// Of the worker, if it can be seen from here.
    jail: Option<Jail>,
}

impl<'a> Report<'a> {
    fn new(info: &'a DeviceInfo, jail: Option<Jail>) -> Report<'a> {
        let performance = info.capabilities.operand_performance.iter();
        Report {
            name: &info.name,
            device_type: type_name(info.device_type),
            version: &info.version,
            hal_version: info.hal_version.to_string(),
            performance: performance
                .map(|entry| (entry.operand_type.to_string(), entry.info))
                .collect(),
            if_performance: info.capabilities.if_performance,
            while_performance: info.capabilities.while_performance,
            extensions: info
                .extensions
                .iter()
                .map(|extension| extension.name.as_str())
                .collect(),
            cache_files: info.cache_files,
            jail,
        }
    }
}

/// Lists the devices.
pub(crate) fn run(arguments: &DevicesArguments) -> Result<(), Error> {
    let devices = driver::devices()?;
    let infos = devices.list()?;
    if arguments.json {
        let reports: Vec<Report<'_>> = infos
            .iter()
            .map(|info| Report::new(info, jail_of(&devices, &info.name)))
            .collect();
        return super::print_json(&reports);
    }
    let mut out = std::io::stdout().lock();
    if infos.is_empty() {
        let directories: Vec<_> = devices
            .directories()
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        writeln!(out, "no device in {}", directories.join(" or "))?;
    }
    for info in &infos {
        let float = info.capabilities.lookup(OperandType::TENSOR_FLOAT32).exec_time;
        writeln!(
            out,
            "{}  {}  HAL {}  version {}  float32 in {float} of the reference's time",
            info.name,
            type_name(info.device_type),
            info.hal_version,
            info.version
        )?;
        if let Some(jail) = jail_of(&devices, &info.name) {
            writeln!(out, "    jail: {jail}")?;
        }
    }
    Ok(())
}

/// The jail of a worker that serves this device.
fn jail_of(devices: &Devices, name: &str) -> Option<Jail> {
    let device = devices.device(name).ok()?;
    Jail::of(device.worker().pid)
}

fn type_name(device_type: DeviceType) -> &'static str {
    match device_type {
        DeviceType::Other => "other",
        DeviceType::Cpu => "CPU",
        DeviceType::Gpu => "GPU",
        DeviceType::Accelerator => "accelerator",
    }
}
