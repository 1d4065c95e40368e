//! `libneuralnetworks.so` as a program that measures opens it.
//!
//! The library finds its drivers by itself, as it does for every program, so a program that measures it
//! starts a driver, and itself again in an environment that leads there.

use std::path::{Path, PathBuf};
use std::process::Command;

use nnhal_capi_caller::Library;
use nnhal_client::{Devices, Model};

use crate::{Error, Result, program};

/// Names the library, instead of the one that was built with this program.
pub const LIBRARY_VARIABLE: &str = "NNHAL_BENCH_LIBRARY";

/// Where clients look for drivers.
const RUNTIME_DIR_VARIABLE: &str = "NNHAL_RUNTIME_DIR";

/// The devices of a driver that the library finds too, in the process that measures, whose environment has
/// these `settings` as well. `None` in the one that has started it, which has seen it end.
///
/// # Errors
/// The driver or the process cannot be started; the process failed, of which it has told.
pub fn devices(settings: &[(&str, &str)]) -> Result<Option<Devices>> {
    if std::env::var_os(RUNTIME_DIR_VARIABLE).is_some() {
        return Ok(Some(Devices::open()?));
    }
    let devices = program::own_driver()?;
    // Held for its driver.
    let device = devices.fastest()?;
    let executable = std::env::current_exe().map_err(Error::io("find this program's file"))?;
    let status = Command::new(executable)
        .args(std::env::args_os().skip(1))
        .env(RUNTIME_DIR_VARIABLE, device.runtime_dir())
        .envs(settings.iter().copied())
        .status()
        .map_err(Error::io("start this program again"))?;
    if status.success() {
        Ok(None)
    } else {
        Err(Error::wrong_answer("the process that measures"))
    }
}

/// Opens the library.
///
/// # Errors
/// It is not there.
pub fn open() -> Result<Library> {
    let path = std::env::var_os(LIBRARY_VARIABLE).map_or_else(beside_this_program, PathBuf::from);
    Library::open(path).map_err(Error::row("libneuralnetworks.so"))
}

fn beside_this_program() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.with_file_name("libneuralnetworks.so")
}

/// A model, built and compiled for a device through the library.
///
/// # Errors
/// The library's.
pub fn compile(library: Library, model: &Model, device: &str) -> Result<nnhal_capi_caller::Compilation> {
    let built = nnhal_capi_caller::Model::new(library, model.hal(), model.pools())
        .map_err(Error::row("a model through the library"))?;
    nnhal_capi_caller::Compilation::new(&built, model.hal(), Some(device))
        .map_err(Error::row("a compilation through the library"))
}

/// The worker processes of a driver, the oldest first; the youngest waits for a client.
#[must_use]
pub fn workers(supervisor: u32) -> Vec<u32> {
    let started = |pid: &u32| {
        let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
        let (_, fields) = text.rsplit_once(')')?;
        // The 22nd field of all, of which two come before the parenthesis.
        fields.split_whitespace().nth(19)?.parse::<u64>().ok()
    };
    let threads = format!("/proc/{supervisor}/task");
    let threads = std::fs::read_dir(threads).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let mut workers: Vec<(u64, u32)> = children
        .flat_map(|list| {
            let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .filter_map(|pid| Some((started(&pid)?, pid)))
        .collect();
    workers.sort_unstable();
    workers.into_iter().map(|(_, pid)| pid).collect()
}
