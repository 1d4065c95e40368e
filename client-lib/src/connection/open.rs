//! Making a connection: the handshake.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::wire::handshake::{self, HandshakeError, VERSIONS};
use nnhal::wire::{self, Call, Inbox, Message, Welcome};
use nnhal_os::fork::ForkStamp;
use nnhal_os::shm::SharedMemory;
use nnhal_os::socket::{self, SocketError};
use nnhal_os::time::Deadline;
use nnhal_os::{eventfd, peer};

use super::burst_permit::BurstPermits;
use super::calls::{Callbacks, Calls};
use super::completer::Completer;
use super::link::Link;
use super::{Connection, watcher};
use crate::driver_process::{Death, Process, Role};
use crate::error::{Error, ErrorKind, Result};
use crate::private_driver::PrivateDriver;
use crate::timeouts::Timeouts;
use crate::trace::{self, WorkerSpans, WorkerTrace};
use crate::trust::Trust;

/// What the driver said in the handshake.
struct Greeting {
    /// Of the protocol, which both go on with.
    version: u32,
    welcome: Welcome,
    pidfd: Option<OwnedFd>,
    inbox: Inbox,
}

impl Connection {
    /// Connects to the socket of a device and agrees on a version with the driver.
    ///
    /// # Errors
    /// [`ErrorKind::Connect`], [`ErrorKind::Untrusted`], [`ErrorKind::Handshake`], [`ErrorKind::TimedOut`],
    /// [`ErrorKind::DeadObject`] if the driver ends meanwhile, [`ErrorKind::Thread`].
    pub(crate) fn open(
        path: &Path,
        deadline: Deadline,
        driver: Option<Arc<PrivateDriver>>,
        trust: &Trust,
        timeouts: Timeouts,
    ) -> Result<Arc<Connection>> {
        let _connects = trace::span(SpanKind::Connect, 0);
        let stamp = ForkStamp::take();
        let failed = |source| ErrorKind::Connect {
            path: path.to_owned(),
            source: Arc::new(source),
        };
        let socket = socket::Connection::connect(path, deadline).map_err(failed)?;
        let peer = peer::identify(&socket).map_err(Error::system("tell whose the driver is"))?;
        trust
            .server(path, peer.uid)
            .map_err(|reason| ErrorKind::Untrusted {
                path: path.to_owned(),
                reason,
            })?;
        let supervisor = Process {
            role: Role::Supervisor,
            pid: u32::try_from(peer.pid).unwrap_or_default(),
        };
        let greeting = greet(&socket, path, supervisor, deadline)?;
        let welcome = greeting.welcome;
        let link = Arc::new(Link {
            wake: eventfd::create().map_err(Error::system("make an eventfd for the connection"))?,
            socket,
            version: greeting.version,
            pidfd: greeting.pidfd,
            name: welcome.device.name.as_str().into(),
            device: Arc::new(welcome.device),
            worker: Process {
                role: Role::Worker,
                pid: welcome.worker_pid,
            },
            supervisor: Process {
                role: Role::Supervisor,
                pid: welcome.supervisor_pid,
            },
            timeouts,
            stamp,
            next_id: AtomicU64::new(1),
            calls: Mutex::new(Calls::default()),
            ended: Condvar::new(),
            inbox: Mutex::new(greeting.inbox),
            ending: OnceLock::new(),
            callbacks: Callbacks::default(),
            completer: Completer::default(),
            unsaid: Mutex::default(),
            burst_permits: BurstPermits::default(),
        });
        let watched = Arc::clone(&link);
        let watcher = std::thread::Builder::new()
            .name("nnhal-watch".into())
            .spawn(move || watcher::watch(&watched))
            .map_err(|source| ErrorKind::Thread {
                source: Arc::new(source),
            })?;
        let traced = start_trace(&link, deadline);
        Ok(Arc::new(Connection {
            link,
            watcher: Some(watcher),
            socket_path: path.to_owned(),
            trace: traced,
            driver,
        }))
    }

    /// Has the worker record its spans for this program.
    ///
    /// # Errors
    /// It records them for the trace of this process, or for this program already; its driver is older than
    /// traces.
    pub(crate) fn record_spans(&self) -> Result<WorkerSpans> {
        if self.trace.is_some() {
            return Err(Error::argument(format!(
                "{} names a file for the worker's spans; without it they can be read here",
                trace::TRACE_VARIABLE
            )));
        }
        let (memory, spans) = WorkerSpans::new()?;
        have_recorded(&self.link, &memory, self.link.timeouts.call_deadline())?;
        Ok(spans)
    }
}

/// Has the worker record its spans, if this process traces. A connection is as good without.
fn start_trace(link: &Link, deadline: Deadline) -> Option<WorkerTrace> {
    let (memory, traced) = trace::of_worker(link.worker().pid, &link.name)?;
    match have_recorded(link, &memory, deadline) {
        Ok(()) => Some(traced),
        Err(error) => {
            tracing::warn!(target: tags::DRIVER, %error, "the worker's spans will be missing");
            None
        }
    }
}

/// Has the worker record its spans in `memory`.
fn have_recorded(link: &Link, memory: &SharedMemory, deadline: Deadline) -> Result<()> {
    let call = Call::StartTrace { size: memory.size() };
    link.call_by(call, &[memory.as_fd()], deadline).map(drop)
}

fn greet(
    socket: &socket::Connection,
    path: &Path,
    supervisor: Process,
    deadline: Deadline,
) -> Result<Greeting> {
    const CALL: &str = "the handshake";
    let failed = |error| match error {
        SocketError::TimedOut { .. } => Error::from(ErrorKind::TimedOut {
            call: CALL,
            process: supervisor,
        }),
        SocketError::Closed => {
            let death = Death {
                process: supervisor,
                cause: None,
                last_words: String::new(),
            };
            ErrorKind::DeadObject {
                call: CALL,
                death: Arc::new(death),
            }
            .into()
        }
        error => ErrorKind::Connect {
            path: path.to_owned(),
            source: Arc::new(error),
        }
        .into(),
    };
    let refused = |source: HandshakeError| {
        Error::from(ErrorKind::Handshake {
            path: path.to_owned(),
            source: Arc::new(source),
        })
    };
    match socket.send(&handshake::hello(VERSIONS), &[], deadline) {
        // Whoever is turned away may be told why, and the socket be closed, before it says anything.
        Ok(()) | Err(SocketError::Closed) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut inbox = Inbox::new();
    let (bytes, mut fds) = inbox.receive_bytes(socket, deadline).map_err(failed)?;
    let (version, welcome) = match handshake::read_answer(bytes, VERSIONS) {
        Ok(answer) => answer,
        Err(error) => return Err(worker_exit(bytes, CALL).unwrap_or_else(|| refused(error))),
    };
    if fds.len() != usize::from(welcome.has_pidfd) {
        return Err(refused(HandshakeError::NotNnhal));
    }
    inbox.set_version(version);
    Ok(Greeting {
        version,
        welcome,
        pidfd: fds.pop(),
        inbox,
    })
}

/// The error of a worker that died before it could answer, which its supervisor tells in its place.
fn worker_exit(bytes: &[u8], call: &'static str) -> Option<Error> {
    let Message::WorkerExit(worker_exit) = wire::read_inline(bytes)? else {
        return None;
    };
    let death = Death {
        process: Process {
            role: Role::Worker,
            pid: worker_exit.worker_pid,
        },
        cause: Some(worker_exit.cause),
        last_words: worker_exit.last_words,
    };
    let death = Arc::new(death);
    Some(ErrorKind::DeadObject { call, death }.into())
}
