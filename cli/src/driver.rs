//! The way to a device: through a driver's process, or the executor in this one.

use std::ffi::OsStr;
use std::io::Write as _;

use nnhal_client::{BurstOptions, Device, Devices, DevicesOptions, Model, PrepareOptions};
use nnhal_conformance::implementation::Form;
use serde::Serialize;

use crate::arguments::Path;
use crate::commands;
use crate::error::Error;
use crate::in_process::{InProcess, Kernels};
use crate::remote::{Remote, Way};
use crate::session::Subject;

/// The processes that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Processes {
    /// This one.
    pub(crate) client: u32,
    /// The one that accepted the connection.
    pub(crate) supervisor: Option<u32>,
    /// The one that serves it.
    pub(crate) worker: Option<u32>,
}

impl Processes {
    /// This one alone.
    pub(crate) fn here() -> Processes {
        Processes {
            client: std::process::id(),
            supervisor: None,
            worker: None,
        }
    }
}

impl std::fmt::Display for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "processes: client {}", self.client)?;
        if let Some(supervisor) = self.supervisor {
            write!(f, ", supervisor {supervisor}")?;
        }
        match self.worker {
            Some(worker) => write!(f, ", worker {worker}"),
            None => f.write_str(" (no driver)"),
        }
    }
}

/// A model on a device.
pub(crate) struct Opened {
    /// The device's name.
    pub(crate) device: String,
    /// Where it runs.
    pub(crate) processes: Processes,
    /// Executes it.
    pub(crate) subject: Box<dyn Subject>,
}

/// Prepares `model` on the device with this name, or else the fastest, to be executed by `path`: with so many
/// threads that compute an execution at most, or by the driver's settings and with one in this process.
pub(crate) fn open(
    model: &Model,
    path: Path,
    name: Option<&str>,
    threads: Option<u32>,
) -> Result<Opened, Error> {
    if path == Path::InProcess {
        let kernels = Kernels::of_device(name)?;
        let threads = threads.unwrap_or(1) as usize;
        return Ok(Opened {
            device: kernels.device.to_owned(),
            processes: Processes::here(),
            subject: Box::new(InProcess::with_threads(model, kernels.set, threads)?),
        });
    }
    let device = open_device(name, threads)?;
    Ok(Opened {
        device: device.name().to_owned(),
        processes: processes(&device),
        subject: subject(&device, model, path)?,
    })
}

/// The device with this name, or else the fastest; with so many threads that compute an execution at most it
/// is a private driver's, which ends with the handle.
pub(crate) fn open_device(name: Option<&str>, threads: Option<u32>) -> Result<Device, Error> {
    let Some(threads) = threads else {
        return device(&devices()?, name);
    };
    // A private driver has read it by the time that there are devices.
    let mut settings = tempfile::NamedTempFile::new()?;
    writeln!(settings, "[execution]\nthreads = {threads}")?;
    let arguments = [
        OsStr::new(commands::driver::PREFIX),
        OsStr::new("--config"),
        settings.path().as_os_str(),
    ];
    let options = DevicesOptions::new()
        .private()
        .driver(std::env::current_exe()?, arguments);
    device(&options.open()?, name)
}

/// The devices of the drivers that run, or of this binary as a private driver.
pub(crate) fn devices() -> Result<Devices, Error> {
    Ok(devices_options().open()?)
}

/// Where to look for devices: the drivers that run, or this binary as a private driver.
pub(crate) fn devices_options() -> DevicesOptions {
    let options = DevicesOptions::new();
    match std::env::current_exe() {
        Ok(executable) => options.own_driver(executable, [commands::driver::PREFIX]),
        // The library then looks for nnhald, and says so if there is none.
        Err(_) => options,
    }
}

/// The device with this name, or else the fastest.
pub(crate) fn device(devices: &Devices, name: Option<&str>) -> Result<Device, Error> {
    Ok(match name {
        Some(name) => devices.device(name)?,
        None => devices.fastest()?,
    })
}

/// This process and those of the device's driver.
pub(crate) fn processes(device: &Device) -> Processes {
    Processes {
        client: std::process::id(),
        supervisor: Some(device.supervisor().pid),
        worker: Some(device.worker().pid),
    }
}

/// Prepares `model` on `device`, to be executed by `path`, which leads to a driver.
pub(crate) fn subject(device: &Device, model: &Model, path: Path) -> Result<Box<dyn Subject>, Error> {
    let prepared = device.prepare(model, &PrepareOptions::new())?;
    let way = match path {
        Path::Burst => Way::Burst(Box::new(prepared.burst(&BurstOptions::new())?)),
        Path::Async => Way::Calls(prepared, Form::Asynchronous),
        Path::Fenced => Way::Calls(prepared, Form::Fenced),
        Path::Sync | Path::InProcess => Way::Calls(prepared, Form::Synchronous),
    };
    Ok(Box::new(Remote::new(model.hal(), device.clone(), way)))
}
