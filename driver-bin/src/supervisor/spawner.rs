//! Starts the processes of workers, on a thread of its own.
//!
//! Starting one takes milliseconds, and longer where the executable has to be read or the machine is busy.
//! The main thread must not wait for that. It waits until the new process is ready: see [`super::starting`].
//!
//! Nothing here has a name in the file system, so nobody can be in the way there.

use std::ffi::{CString, OsString};
use std::fmt::Display;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nnhal::diag::tags;
use nnhal::wire;
use nnhal::wire::handshake::VERSIONS;
use nnhal_os::socket::Connection;
use nnhal_os::spawn::{self, Program};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};
use nnhal_os::{eventfd, pidfd};

use crate::jail::{self, DeviceNeeds};
use crate::link::{CrashRecord, WorkerConfig};
use crate::settings::JailSettings;

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

/// How long the kernel may take to begin with this executable in a new process. The time to be ready in
/// counts from then on.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long descriptors may wait to be sent to a new worker, where too many of this user are unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Variables of the service manager that are not for workers.
const SERVICE_VARIABLES: [&str; 5] = [
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_USEC",
];

/// The process of a worker.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// By which a client is handed over.
    pub(super) handoff: Connection,
    /// For what follows the settings. Nothing comes back there.
    pub(super) commands: Connection,
    pub(super) crash_record: CrashRecord,
}

/// A worker that is to be started.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) config: WorkerConfig,
    /// Of the settings.
    pub(super) generation: u64,
}

/// What came of an order.
#[derive(Debug)]
pub(super) struct Spawned {
    /// The process, or why there is none.
    pub(super) process: Result<WorkerProcess, String>,
    pub(super) generation: u64,
}

/// The thread that starts workers.
#[derive(Debug)]
pub(super) struct Spawner {
    pub(super) invocation: Invocation,
    pub(super) orders: Receiver<Order>,
    pub(super) spawned: Sender<Spawned>,
    /// Wakes the main thread.
    pub(super) wake: OwnedFd,
    /// What this thread, and all that it starts, gives up.
    pub(super) jail: JailSettings,
    /// What devices need all the same.
    pub(super) needs: DeviceNeeds,
}

impl Spawner {
    /// Fills orders until there can be no more.
    pub(super) fn run(self) {
        keep_signals_from_workers();
        let entered = jail::enter_as_spawner(&self.jail, &self.needs).map_err(|error| error.to_string());
        while let Ok(Order { config, generation }) = self.orders.recv() {
            let process = entered.clone().and_then(|()| self.spawn(config));
            if self.spawned.send(Spawned { process, generation }).is_err() {
                return;
            }
            eventfd::wake(&self.wake);
        }
    }

    /// Starts a process and tells it what to be; whether it is ready is for it to say.
    fn spawn(&self, mut config: WorkerConfig) -> Result<WorkerProcess, String> {
        let socket = |error| format!("failed to make a worker's socket: {error}");
        let (handoff, theirs) = Connection::pair().map_err(socket)?;
        let (commands, commanded) = Connection::pair().map_err(socket)?;
        commands.stop_receiving();
        let (crash_record, page) = CrashRecord::create()
            .map_err(|error| format!("failed to make a worker's crash record: {error}"))?;
        let deadline = Deadline::after(MonotonicClock.now(), SEND_TIMEOUT);
        handoff
            .send(&[0], &[commanded.as_fd(), page.as_fd()], deadline)
            .map_err(|error| format!("failed to hand a worker its crash record: {error}"))?;
        let failed = |error: &dyn Display| format!("failed to start a worker process: {error}");
        let null = File::options().write(true).open("/dev/null");
        let null = null.map_err(|error| failed(&error))?;
        let program = Program {
            path: c"/proc/self/exe",
            arguments: &self.arguments(),
            environment: &self.environment(),
            stdin: theirs.as_fd(),
            stdout: null.as_fd(),
        };
        let begun = Deadline::after(MonotonicClock.now(), BEGIN_TIMEOUT);
        let (pid, birth) = jail::bear(&program, &config.jail, begun).map_err(|error| failed(&error))?;
        config.birth = birth;
        drop(theirs);
        let deadline = Deadline::after(MonotonicClock.now(), SEND_TIMEOUT);
        // Nobody reaps it before its number is known to the main thread, so it is still that of the child.
        let watched = pidfd::open(pid).map_err(|error| format!("failed to watch a worker process: {error}"));
        let configured = wire::send(&handoff, VERSIONS.newest, &config, &[], deadline)
            .map_err(|error| format!("failed to configure a worker: {error}"));
        match watched.and_then(|pidfd| configured.map(|()| pidfd)) {
            Ok(pidfd) => Ok(WorkerProcess {
                pid,
                pidfd,
                handoff,
                commands,
                crash_record,
            }),
            Err(reason) => {
                spawn::end(pid);
                Err(reason)
            }
        }
    }

    fn arguments(&self) -> Vec<CString> {
        let name = [OsString::from("nnhal-worker")];
        let words = name.iter().chain(&self.invocation.prefix);
        let words = words.map(|word| word.as_bytes().to_vec());
        // Words of a command line have no zeros.
        words
            .chain([WORKER_ARGUMENT.as_bytes().to_vec()])
            .filter_map(|word| CString::new(word).ok())
            .collect()
    }

    /// The driver's own, but for what the service manager says and what workers log.
    fn environment(&self) -> Vec<CString> {
        let is_for_others = |name: &OsString| {
            name == tags::LOG_VARIABLE || SERVICE_VARIABLES.iter().any(|other| name == other)
        };
        let own = std::env::vars_os().filter(|(name, _)| !is_for_others(name));
        let log = (
            OsString::from(tags::LOG_VARIABLE),
            OsString::from(&self.invocation.log),
        );
        let lines = own.chain([log]).map(|(mut line, value)| {
            line.push("=");
            line.push(value);
            line.into_vec()
        });
        lines.filter_map(|line| CString::new(line).ok()).collect()
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
