//! Starts workers, one after the other, on a thread of its own.
//!
//! Starting takes milliseconds and waits for the new process, through ipc-channel, which knows no deadlines; the main
//! thread must do neither. What bounds the wait is the worker's life: when the main thread reaps a worker that was
//! starting, or kills one that takes too long, it calls [`Starting::release`], which ends the wait.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipc_channel::ipc::{IpcOneShotServer, IpcReceiver, IpcSender};
use nix::sys::signal::{SigSet, Signal};
use nnhal::diag::tags;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, pidfd};

use crate::cores::{Board, Slot};
use crate::link::{BlackBox, Command, Report, WorkerConfig};

/// How to start a worker: what comes before the worker's own arguments, for binaries that are more than a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Arguments that lead to the driver, such as `driver`.
    pub prefix: Vec<OsString>,
    /// What workers log.
    pub log: String,
}

/// The argument by which a process is a worker, followed by the name of its bootstrap channel.
pub(crate) const WORKER_ARGUMENT: &str = "--worker";

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
    pub(super) commands: IpcSender<Command>,
    pub(super) black_box: BlackBox,
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
    pid: i32,
    pidfd: OwnedFd,
    bootstrap: PathBuf,
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

    /// Ends the wait for worker `pid`, which is dead: a connection that closes again is a worker that says nothing.
    pub(super) fn release(&self, pid: i32) {
        let current = self.lock();
        if let Some(current) = current.as_ref().filter(|current| current.pid == pid) {
            let _ = Connection::connect(&current.bootstrap, Deadline::from_raw(0));
        }
    }
}

/// The thread that starts workers.
pub(super) struct Spawner {
    pub(super) invocation: Invocation,
    /// Where bootstrap channels are made, by way of a descriptor. Workers start there.
    pub(super) state_dir: PathBuf,
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
        let (server, process) = match self.spawn() {
            Ok(spawned) => spawned,
            Err(reason) => return Outcome::Failed { pid: None, reason },
        };
        let pid = process.pid;
        match bootstrap(server, config) {
            Ok(commands) => {
                let Spawned {
                    pid,
                    pidfd,
                    handoff,
                    black_box,
                    cores,
                } = process;
                Outcome::Ready(ReadyWorker {
                    pid,
                    pidfd,
                    handoff,
                    commands,
                    black_box,
                    cores,
                })
            }
            Err(reason) => {
                let _ = pidfd::send_signal(&process.pidfd, Signal::SIGKILL);
                let last_words = process.black_box.last_words();
                let reason = if last_words.is_empty() { reason } else { last_words };
                Outcome::Failed {
                    pid: Some(pid),
                    reason,
                }
            }
        }
    }

    fn spawn(&self) -> Result<(IpcOneShotServer<Report>, Spawned), String> {
        let (server, name) = IpcOneShotServer::<Report>::new()
            .map_err(|error| format!("failed to make a channel for a worker: {error}"))?;
        let bootstrap = PathBuf::from(&name);
        // The worker finds the same socket from its working directory.
        let relative = bootstrap
            .strip_prefix(&self.state_dir)
            .unwrap_or(&bootstrap)
            .to_owned();
        let (handoff, theirs) =
            Connection::pair().map_err(|error| format!("failed to make a worker's socket: {error}"))?;
        let (black_box, page) =
            BlackBox::create().map_err(|error| format!("failed to make a worker's black box: {error}"))?;
        let cores = self.board.slot();
        let place = cores.as_ref().map_or(u32::MAX, Slot::number).to_ne_bytes();
        let pages = [page.as_fd(), self.board.as_fd()];
        // A worker without a place on the board has no use for it.
        let pages = if cores.is_some() { &pages[..] } else { &pages[..1] };
        handoff
            .send(&place, pages, Deadline::from_raw(0))
            .map_err(|error| format!("failed to hand a worker its black box: {error}"))?;
        let mut command = Process::new("/proc/self/exe");
        command
            .arg0("nnhal-worker")
            .args(&self.invocation.prefix)
            .arg(WORKER_ARGUMENT)
            .arg(relative)
            .current_dir(&self.state_dir)
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
            pid,
            pidfd: other,
            bootstrap,
            since: MonotonicClock.now(),
            is_killed: false,
        });
        Ok((
            server,
            Spawned {
                pid,
                pidfd,
                handoff,
                black_box,
                cores,
            },
        ))
    }
}

/// Blocks, on this thread and in all processes that it starts, the signals by which a driver is told to end or to read
/// its settings again. Terminals and service managers send them to all processes of a driver; what they mean is for the
/// supervisor to say, or work would be torn off that is to be finished. A mask holds from the first instruction on,
/// which no handler of the worker's own would; SIGKILL is not affected.
fn keep_signals_from_workers() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    if let Err(errno) = signals.thread_block() {
        tracing::warn!(target: tags::DRIVER, %errno, "signals to all processes of the driver will reach workers");
    }
}

/// A worker that runs and has not said anything yet.
#[derive(Debug)]
struct Spawned {
    pid: i32,
    pidfd: OwnedFd,
    handoff: Connection,
    black_box: BlackBox,
    cores: Option<Slot>,
}

/// Waits for the worker to be ready; see the module's text for what bounds the wait.
fn bootstrap(server: IpcOneShotServer<Report>, config: WorkerConfig) -> Result<IpcSender<Command>, String> {
    let silent = |error| format!("a worker ended before it was ready: {error}");
    let (reports, first): (IpcReceiver<Report>, Report) = server.accept().map_err(silent)?;
    let commands = match first {
        Report::Started { commands } => commands,
        Report::Failed { reason } => return Err(reason),
        Report::Ready => return Err("a worker was ready before it had started".to_owned()),
    };
    commands
        .send(Command::Configure(Box::new(config)))
        .map_err(|error| format!("failed to configure a worker: {error}"))?;
    match reports.recv().map_err(silent)? {
        Report::Ready => Ok(commands),
        Report::Failed { reason } => Err(reason),
        Report::Started { .. } => Err("a worker started twice".to_owned()),
    }
}
