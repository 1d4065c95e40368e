//! A driver whose device makes the system calls that a model asks for, as a worker would that was taken over.

mod device;
#[allow(unsafe_code, reason = "the calls are what is tested")]
mod ways;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use nix::libc;
use nnhal_device::{Device, DeviceOptions, Needs};
use nnhal_driver::{Daemon, DeviceEntry, DeviceRegistry};
use nnhal_hal::Failure;
use nnhal_tests::escape::{DEVICE, LOOKING, NEEDS, NEEDY, THREAD, THREADED, TRIED, TRY, Way};

fn create(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    Ok(Arc::new(device::Escape::new(DEVICE)))
}

fn create_needy(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    Ok(Arc::new(device::Escape::new(NEEDY)))
}

fn create_threaded(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    let started = std::thread::Builder::new()
        .name(THREAD.to_owned())
        .spawn(std::thread::park);
    started.map_err(|error| Failure::general(error.to_string()))?;
    Ok(Arc::new(device::Escape::new(THREADED)))
}

/// Looks around as libraries of vendors do.
fn create_looking(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    let failed = |error: &dyn Display| Failure::general(error.to_string());
    std::fs::read_dir("/sys/devices/system/cpu")
        .map_err(|error| failed(&error))?
        .count();
    std::fs::read_link("/proc/self/exe").map_err(|error| failed(&error))?;
    std::env::current_dir().map_err(|error| failed(&error))?;
    std::fs::metadata("/dev/null").map_err(|error| failed(&error))?;
    std::io::stderr()
        .write_vectored(&[])
        .map_err(|error| failed(&error))?;
    // What the C library and vendors call by themselves; what comes of it does not matter.
    for number in LOOKS {
        ways::call(number, [0; 6]);
    }
    Ok(Arc::new(device::Escape::new(LOOKING)))
}

/// Calls that may be made while a device is made, and do nothing without arguments.
const LOOKS: [i64; 9] = [
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_sched_setaffinity,
    libc::SYS_readlinkat,
    libc::SYS_clock_nanosleep,
];

/// Tries a way out of this process, which has no jail: its place in [`Way::ALL`], and another process. Prints
/// what came of it, unless this became another program.
fn try_out(arguments: &[String]) -> ExitCode {
    let [at, other] = arguments else {
        return ExitCode::FAILURE;
    };
    let way = at.parse().ok().and_then(|at: usize| Way::ALL.get(at));
    let (Some(&way), Ok(other)) = (way, other.parse()) else {
        return ExitCode::FAILURE;
    };
    let prepared = ways::Prepared::without_jail(way, other);
    println!("{TRIED}{}", ways::try_out(way, other, &prepared));
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let Some((TRY, arguments)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return try_out(arguments);
    }
    let registry = DeviceRegistry::of_nnhal()
        .with(DeviceEntry {
            name: DEVICE,
            create,
            by_default: true,
            needs: Needs::NONE,
        })
        .with(DeviceEntry {
            name: NEEDY,
            create: create_needy,
            by_default: true,
            needs: NEEDS,
        })
        .with(DeviceEntry {
            name: LOOKING,
            create: create_looking,
            by_default: false,
            needs: Needs::NONE,
        })
        .with(DeviceEntry {
            name: THREADED,
            create: create_threaded,
            by_default: false,
            needs: Needs::NONE,
        });
    Daemon::new(registry)
        .named("nnhal-test-escape-driver", env!("CARGO_PKG_VERSION"))
        .run(std::env::args_os().skip(1))
}
