//! The process that serves one client.
//!
//! Contract: a worker is started without a client. It makes its devices, enters its jail, and waits to be
//! handed a connection; from then on it serves that client until one of the two ends. It trusts nothing that
//! the client sends. Whatever goes wrong in here (a crash, a hang, memory that runs out) ends this process;
//! the supervisor tells the client how.
//!
//! The main thread reads calls and answers the short ones; long ones run on threads of the [`pool`], bursts
//! on threads of their own. It never runs a device, so it notices at once when the client is gone.

mod buffer;
mod buffer_bytes;
mod burst;
mod cache_colouring;
mod calls;
mod client;
mod copy;
mod error;
mod estimate;
mod execute;
mod execute_fenced;
mod fenced;
mod idle;
mod job;
mod last_words;
mod limits;
mod memory;
mod nice;
mod oom_score;
mod orders;
mod outbox;
mod pool;
mod prepare;
mod prepared;
mod queued;
mod request_pools;
mod run;
mod session;
mod slot;
mod table;
mod watchdog;
mod weights;

#[cfg(any(test, fuzzing))]
pub(crate) use burst::fuzzing;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::wire::handshake::VERSIONS;
use nnhal::wire::{self, Inbox};
use nnhal_device::{CACHE_FILES, Device};
use nnhal_hal::Failure;
use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;
use nnhal_os::{pidfd, process, sched, shm};

use self::error::WorkerError;
use self::orders::Orders;
use self::weights::Weights;
use crate::cores::WorkerCores;
use crate::device::registry::DeviceRegistry;
use crate::jail::{DeviceNeeds, Threads, WorkerJail};
use crate::link::{Assignment, CrashRecord, DeviceConfig, Report, WorkerConfig};
use crate::usage::Usage;
use crate::{log, processors};

/// Runs a worker from its start to its end.
pub(crate) fn main(registry: &DeviceRegistry) -> ExitCode {
    nnhal_os::heap::have_one();
    // A thread of the log would stay outside of the jail.
    log::hold();
    log::start(&log::of_environment());
    let code = match run(registry) {
        Ok(()) => ExitCode::SUCCESS,
        // Its supervisor ended while it started: nobody needs it any more.
        Err(WorkerError::Supervisor(error)) if error.is_closed() => ExitCode::SUCCESS,
        Err(error) => {
            last_words::note(&error.to_string());
            tracing::error!(target: tags::DRIVER, "{error}");
            ExitCode::FAILURE
        }
    };
    log::flush();
    code
}

/// The devices of a worker.
type DevicesByName = MadeDevices;

/// A worker before it has a client.
struct Idle {
    handoff: Connection,
    devices: DevicesByName,
    config: WorkerConfig,
    commands: Connection,
    jail: WorkerJail,
}

fn run(registry: &DeviceRegistry) -> Result<(), WorkerError> {
    let idle = start(registry)?;
    let mut inbox = Inbox::new();
    let (assignment, mut fds) = match inbox.receive::<Assignment>(&idle.handoff, Deadline::NONE) {
        Ok(received) => received,
        // Not needed any more.
        Err(error) if error.is_closed() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let device = idle.devices.get(&assignment.device).cloned();
    let (Some(table), Some(fd), Some(device)) = (fds.pop(), fds.pop(), device) else {
        return Err(WorkerError::Unexpected);
    };
    let usage = Usage::open(table, assignment.row).map_err(|_| WorkerError::Unexpected)?;
    let cores = WorkerCores::new(Arc::new(usage), idle.config.user_limits.clone());
    let cores = Arc::new(cores);
    let orders = Arc::new(Orders::new(idle.config.execution.clone())?);
    listen(idle.commands, Arc::clone(&orders))?;
    let weights = Weights::new(idle.handoff, &idle.config.weights);
    let pidfd = pidfd::open(std::process::id().cast_signed()).ok();
    idle.jail.meet_client(&assignment.device)?;
    session::serve(
        Connection::from_fd(fd),
        device,
        &assignment,
        (&idle.config, cores, weights),
        pidfd,
        &orders,
    )
}

/// The number of the first process of a PID namespace.
const FIRST_OF_NAMESPACE: u32 = 1;

/// From the first instruction to being ready for a client.
fn start(registry: &DeviceRegistry) -> Result<Idle, WorkerError> {
    oom_score::raise();
    let handoff = take_handoff()?;
    let commands = open_shared(&handoff)?;
    std::panic::set_hook(Box::new(end_by_panic));
    if std::process::id() == FIRST_OF_NAMESPACE {
        process::exit_when_aborted(last_words::note_abort)?;
    }
    let (config, _) = Inbox::new().receive::<WorkerConfig>(&handoff, Deadline::NONE)?;
    match make_devices_and_jail(&config, registry) {
        Ok((devices, jail)) => {
            let report = Report::Ready {
                jail: jail.in_force().clone(),
            };
            wire::send(&handoff, VERSIONS.newest, &report, &[], Deadline::NONE)?;
            Ok(Idle {
                handoff,
                devices,
                config,
                commands,
                jail,
            })
        }
        Err(error) => {
            let reason = error.to_string();
            wire::send(
                &handoff,
                VERSIONS.newest,
                &Report::Failed { reason },
                &[],
                Deadline::NONE,
            )?;
            Err(error)
        }
    }
}

/// Takes the socket on standard input by which clients are handed over, and puts nothing in its place.
fn take_handoff() -> Result<Connection, WorkerError> {
    let failed = |action| move |source| WorkerError::Io { action, source };
    let stdin = std::io::stdin();
    let handoff = stdin
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed("take over standard input"))?;
    let null = std::fs::File::open("/dev/null").map_err(failed("open /dev/null"))?;
    nix::unistd::dup2_stdin(&null).map_err(|errno| failed("close standard input")(errno.into()))?;
    Ok(Connection::from_fd(handoff))
}

/// Opens what this worker shares with the supervisor: its crash record, and the socket for commands, which is
/// returned.
fn open_shared(handoff: &Connection) -> Result<Connection, WorkerError> {
    let received = handoff.receive(&mut [0], Deadline::NONE)?;
    let mut fds = received.fds.into_iter();
    let (Some(commands), Some(page)) = (fds.next(), fds.next()) else {
        return Err(WorkerError::Unexpected);
    };
    let crash_record = CrashRecord::open(page).map_err(|_| WorkerError::Unexpected)?;
    last_words::keep_in(crash_record);
    shm::report_bus_errors(last_words::note_bus_error)?;
    Ok(Connection::from_fd(commands))
}

/// Devices by their names.
type MadeDevices = HashMap<String, Arc<dyn Device>>;

/// Makes the devices, and gives up what nobody needs before and after.
fn make_devices_and_jail(
    config: &WorkerConfig,
    registry: &DeviceRegistry,
) -> Result<(DevicesByName, WorkerJail), WorkerError> {
    // How many processors there are is read from files, which there will be none of.
    processors::processors();
    sched::online_cpus();
    let needs = DeviceNeeds::of(config.devices.iter().map(|device| &device.name), registry);
    let mut jail = WorkerJail::begin(&config.jail, config.identity, &config.birth, needs)?;
    let devices = make_devices(config, registry)?;
    jail.enter(&config.limits)?;
    log::release();
    Ok((devices, jail))
}

fn make_devices(config: &WorkerConfig, registry: &DeviceRegistry) -> Result<DevicesByName, WorkerError> {
    let tasks = |source| WorkerError::Io {
        action: "list the threads of this process",
        source,
    };
    let make = |device: &DeviceConfig| {
        let name = &device.name;
        let failed = |failure| WorkerError::Device {
            name: name.clone(),
            failure,
        };
        let unknown = || failed(Failure::general("this binary does not know it"));
        let entry = registry.get(name).ok_or_else(unknown)?;
        let threads = Threads::now().map_err(tasks)?;
        let device = (entry.create)(&device.options()).map_err(failed)?;
        let started = threads.started_since().map_err(tasks)?;
        if !started.is_empty() {
            return Err(WorkerError::Threads {
                name: name.clone(),
                threads: started,
            });
        }
        let cache_files = device.info().cache_files;
        if cache_files.is_caching_supported() && cache_files != CACHE_FILES {
            return Err(failed(Failure::general(format!(
                "it asks for {cache_files:?}; the driver library's cache has {CACHE_FILES:?}"
            ))));
        }
        Ok((name.clone(), device))
    };
    config.devices.iter().map(make).collect()
}

/// A panic is a bug in this process, whose state can no longer be trusted.
fn end_by_panic(info: &PanicHookInfo<'_>) {
    let text = log::describe_panic(info);
    last_words::note(&text);
    tracing::error!(target: tags::DRIVER, "{text}");
    log::flush();
    std::process::abort();
}

/// Listens to the supervisor, as long as there is one: without it the worker goes on.
fn listen(commands: Connection, orders: Arc<Orders>) -> Result<(), WorkerError> {
    std::thread::Builder::new()
        .name("listener".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || {
            let mut inbox = Inbox::new();
            while let Ok((command, _)) = inbox.receive(&commands, Deadline::NONE) {
                orders.take(command);
            }
        })
        .map(drop)
        .map_err(|source| WorkerError::Io {
            action: "start a thread",
            source,
        })
}
