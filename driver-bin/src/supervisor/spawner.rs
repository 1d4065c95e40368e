//! Starts workers, one after the other, on a thread of its own.
//!
//! Starting takes milliseconds and waits for the new process; the main thread must do neither. What bounds
//! the wait is the worker's life: the main thread kills one that takes too long, and with its end of the
//! socket the wait is over.
//!
//! Nothing here has a name in the file system, so nobody can be in the way there.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use nnhal::diag::tags;
use nnhal::wire::handshake::VERSIONS;
use nnhal::wire::{self, Inbox};
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, pidfd};

use crate::cores::{Board, Slot};
use crate::link::{CrashRecord, Report, WorkerConfig};

/// How to start a worker: what comes before the worker's own arguments, for binaries that are more than a
/// driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Arguments that lead to the driver, such as `driver`.
    pub prefix: Vec<OsString>,
    /// What workers log.
    pub log: String,
}

/// The argument by which a process is a worker.
pub(crate) const WORKER_ARGUMENT: &str = "--worker";

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// Variables of the service manager that are not for workers.
const SERVICE_VARIABLES: [&str; 5] = [
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_USEC",
];

/// A worker that is ready for a client.
#[derive(Debug)]
pub(super) struct ReadyWorker {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// Its place on the board of who computes, given up when this is dropped.
    pub(super) cores: Option<Slot>,
    /// By which a client is handed over.
    pub(super) handoff: Connection,
    /// For what follows the settings. Nothing comes back there.
    pub(super) commands: Connection,
    pub(super) crash_record: CrashRecord,
}

/// What came of an order.
#[derive(Debug)]
pub(super) enum Outcome {
    Ready(ReadyWorker),
    /// With the process id, if there was a process.
    Failed {
        pid: Option<i32>,
        reason: String,
    },
}

/// The worker that is starting now.
#[derive(Clone, Debug, Default)]
pub(super) struct Starting(Arc<Mutex<Option<Current>>>);

#[derive(Debug)]
struct Current {
    pidfd: OwnedFd,
    since: TimePoint,
    /// Whether it has been killed, and its end is only to be waited for.
    is_killed: bool,
}

impl Starting {
    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        // There is only ever a whole value in there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when a worker has been starting, if one is that has not been killed.
    pub(super) fn since(&self) -> Option<TimePoint> {
        let current = self.lock();
        let current = current.as_ref().filter(|current| !current.is_killed)?;
        Some(current.since)
    }

    /// Kills the worker that is starting. Its death ends the wait in its turn.
    pub(super) fn kill(&self) {
        if let Some(current) = self.lock().as_mut() {
            current.is_killed = true;
            // It may have ended by itself.
            let _ = pidfd::send_signal(&current.pidfd, Signal::SIGKILL);
        }
    }
}

/// The thread that starts workers.
pub(super) struct Spawner {
    pub(super) invocation: Invocation,
    pub(super) starting: Starting,
    pub(super) orders: Receiver<WorkerConfig>,
    pub(super) outcomes: Sender<Outcome>,
    /// Wakes the main thread.
    pub(super) wake: OwnedFd,
    /// Where workers note who computes.
    pub(super) board: Arc<Board>,
}

impl Spawner {
    /// Fills orders until there can be no more.
    pub(super) fn run(self) {
        keep_signals_from_workers();
        while let Ok(config) = self.orders.recv() {
            let outcome = self.start(config);
            *self.starting.lock() = None;
            if self.outcomes.send(outcome).is_err() {
                return;
            }
            // A full counter wakes as well.
            let _ = eventfd::add(&self.wake, 1);
        }
    }

    fn start(&self, config: WorkerConfig) -> Outcome {
        let worker = match self.spawn(&config) {
            Ok(worker) => worker,
            Err(reason) => return Outcome::Failed { pid: None, reason },
        };
        match wait_until_ready(&worker.handoff) {
            Ok(()) => Outcome::Ready(worker),
            Err(reason) => {
                let _ = pidfd::send_signal(&worker.pidfd, Signal::SIGKILL);
                let last_words = worker.crash_record.last_words();
                let reason = if last_words.is_empty() { reason } else { last_words };
                Outcome::Failed {
                    pid: Some(worker.pid),
                    reason,
                }
            }
        }
    }

    /// Starts a process and tells it what to be; whether it is ready is for it to say.
    fn spawn(&self, config: &WorkerConfig) -> Result<ReadyWorker, String> {
        let socket = |error| format!("failed to make a worker's socket: {error}");
        let (handoff, theirs) = Connection::pair().map_err(socket)?;
        let (commands, commanded) = Connection::pair().map_err(socket)?;
        commands.stop_receiving();
        let (crash_record, page) = CrashRecord::create()
            .map_err(|error| format!("failed to make a worker's crash record: {error}"))?;
        let cores = self.board.slot();
        let place = cores.as_ref().map_or(u32::MAX, Slot::number).to_ne_bytes();
        let shared = [commanded.as_fd(), page.as_fd(), self.board.as_fd()];
        // A worker without a place on the board has no use for it.
        let shared = if cores.is_some() {
            &shared[..]
        } else {
            &shared[..2]
        };
        handoff
            .send(&place, shared, NOW)
            .map_err(|error| format!("failed to hand a worker its crash record: {error}"))?;
        wire::send(&handoff, VERSIONS.newest, config, &[], NOW)
            .map_err(|error| format!("failed to configure a worker: {error}"))?;
        let mut command = Process::new("/proc/self/exe");
        command
            .arg0("nnhal-worker")
            .args(&self.invocation.prefix)
            .arg(WORKER_ARGUMENT)
            .current_dir("/")
            .env(tags::LOG_VARIABLE, &self.invocation.log)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        for variable in SERVICE_VARIABLES {
            command.env_remove(variable);
        }
        // Held until the process is written down, so that it cannot be reaped before.
        let mut starting = self.starting.lock();
        let child = command
            .spawn()
            .map_err(|error| format!("failed to start a worker process: {error}"))?;
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        let open = || pidfd::open(pid).map_err(|error| format!("failed to watch a worker process: {error}"));
        let (pidfd, other) = match (open(), open()) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(reason), _) | (_, Err(reason)) => {
                let mut child = child;
                let _ = child.kill();
                return Err(reason);
            }
        };
        *starting = Some(Current {
            pidfd: other,
            since: MonotonicClock.now(),
            is_killed: false,
        });
        Ok(ReadyWorker {
            pid,
            pidfd,
            cores,
            handoff,
            commands,
            crash_record,
        })
    }
}

/// Blocks, on this thread and in all processes that it starts, the signals by which a driver is told to end
/// or to read its settings again. Terminals and service managers send them to all processes of a driver; what
/// they mean is for the supervisor to say, or work would be torn off that is to be finished. A mask holds
/// from the first instruction on, which no handler of the worker's own would; SIGKILL is not affected.
fn keep_signals_from_workers() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    if let Err(errno) = signals.thread_block() {
        tracing::warn!(target: tags::DRIVER, %errno, "signals to all processes of the driver will reach workers");
    }
}

/// Waits for a worker to be ready; see the module's text for what bounds the wait.
fn wait_until_ready(handoff: &Connection) -> Result<(), String> {
    match Inbox::new().receive(handoff, Deadline::NONE) {
        Ok((Report::Ready, _)) => Ok(()),
        Ok((Report::Failed { reason }, _)) => Err(reason),
        Err(error) => Err(format!("a worker ended before it was ready: {error}")),
    }
}
