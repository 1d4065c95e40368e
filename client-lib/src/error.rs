//! The one error of this library: what failed, in which process, and what to do about it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use nnhal::wire::MessageError;
use nnhal::wire::handshake::{HandshakeError, Refusal};
use nnhal_hal::{ErrorStatus, Failure, OutputShape};
use nnhal_os::SysError;
use nnhal_os::shm::ShmError;
use nnhal_os::socket::SocketError;

use crate::driver_process::{Death, Process};
use crate::trust::Distrust;

/// Anything that can go wrong. Its text says what was wrong, where, and what would be right; [`Error::kind`]
/// has the parts, [`Error::status`] the HAL's status and [`Error::remedy`] what a program can do.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Box<ErrorKind>,
}

/// The result of most calls of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The driver answered with a status of the HAL.
    #[error("{call} failed on {device}: {failure}")]
    Status {
        /// The call.
        call: &'static str,
        /// The name of the device.
        device: Arc<str>,
        /// The process that answered.
        process: Process,
        /// Its answer.
        failure: Failure,
        /// What an execution found of its outputs, if the status is `OUTPUT_INSUFFICIENT_SIZE`; else empty.
        output_shapes: Vec<OutputShape>,
    },
    /// A process that was needed for the answer is dead: the NDK's `DEAD_OBJECT`.
    #[error("{call} got no answer (DEAD_OBJECT): {death}")]
    DeadObject {
        /// The call.
        call: &'static str,
        /// Who died, and how.
        death: Arc<Death>,
    },
    /// States of a model died with the worker that had them.
    #[error("the states {states:?} are lost (DEAD_OBJECT): {death}; {}", how_to_go_on(*.restored))]
    StatesLost {
        /// Their names.
        states: Vec<String>,
        /// Who died, and how.
        death: Arc<Death>,
        /// How many calls the copy has seen from which the states were restored since, if they were.
        restored: Option<u64>,
    },
    /// The time that the caller allowed for waiting has passed. The call may still take effect.
    #[error("{call} got no answer from {process} in the time that was allowed")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The process that has not answered.
        process: Process,
    },
    /// There is no driver, and none could be started.
    #[error("{}there is no private driver: {reason}", looked_in(.searched))]
    NoDriver {
        /// The runtime directories that were looked at.
        searched: Vec<PathBuf>,
        /// Why there is no private driver either.
        reason: String,
    },
    /// No driver has the device.
    #[error("there is no device {name:?}{}; {}", within(.searched), offer(.available))]
    NoSuchDevice {
        /// The name that was asked for.
        name: String,
        /// The runtime directories that were looked at.
        searched: Vec<PathBuf>,
        /// The devices that are there.
        available: Vec<String>,
    },
    /// No driver publishes any device.
    #[error("there is no device{}{}", within(.searched), left_behind(.stale))]
    NoDevice {
        /// The runtime directories that were looked at.
        searched: Vec<PathBuf>,
        /// Sockets that drivers which have been killed left behind.
        stale: Vec<PathBuf>,
    },
    /// A driver's socket could not be connected to.
    #[error("failed to reach the driver at {}: {}", .path.display(), connect_advice(.source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: Arc<SocketError>,
    },
    /// The driver did not take this client.
    #[error("the driver at {} does not serve this client: {source}", .path.display())]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: Arc<HandshakeError>,
    },
    /// A driver, or the directory of its socket, is not one that this process trusts.
    #[error("{} {reason}", .path.display())]
    Untrusted {
        /// The socket or the directory.
        path: PathBuf,
        /// The reason.
        reason: Distrust,
    },
    /// A runtime directory could not be read.
    #[error("failed to look for drivers in {}: {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: Arc<std::io::Error>,
    },
    /// A private driver could not be started.
    #[error("failed to start the private driver {}: {message}", .executable.display())]
    PrivateDriver {
        /// The driver's executable.
        executable: PathBuf,
        /// The reason.
        message: String,
    },
    /// This library refuses what it was asked to do.
    #[error("invalid argument: {message}")]
    Argument {
        /// What was wrong, and what would be right.
        message: String,
    },
    /// A memory could not be made, mapped or accessed.
    #[error("failed to {action}: {source}")]
    Memory {
        /// What was attempted.
        action: &'static str,
        /// The reason.
        source: Arc<ShmError>,
    },
    /// The system refused.
    #[error("failed to {action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The reason.
        source: SysError,
    },
    /// A thread could not be started.
    #[error("failed to start a thread: {source}")]
    Thread {
        /// The reason.
        source: Arc<std::io::Error>,
    },
    /// The driver sent what the protocol does not allow; the connection is given up.
    #[error("{process} broke the protocol: {message}")]
    Protocol {
        /// The process at fault.
        process: Process,
        /// What it did.
        message: String,
    },
    /// A model's file could not be read.
    #[cfg(feature = "tflite")]
    #[error("failed to read {}: {source}", .path.display())]
    ReadModel {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Arc<std::io::Error>,
    },
    /// A file is no model that can be used.
    #[cfg(feature = "tflite")]
    #[error("failed to import {name}: {source}")]
    ImportModel {
        /// The file, or what else the model came from.
        name: String,
        /// What is wrong with it, and where.
        source: Arc<nnhal_tflite::ImportError>,
    },
    /// The handle was made before `fork()`, and this is the child.
    #[error(
        "this handle was made before fork(): it belongs to the parent process; open the device anew in the child"
    )]
    Forked,
}

/// What a program can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// The same call may succeed when it is made again.
    Retry,
    /// The connection is of no use any more; open the device again ([`crate::Device::reopen`]) and start
    /// over.
    Reconnect,
    /// The same call would fail again.
    GiveUp,
}

impl Error {
    /// The parts of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The HAL's status: the driver's own, or the one that says the same. A dead process is
    /// `GENERAL_FAILURE`, which is what the NDK maps `DEAD_OBJECT` to.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        match self.kind() {
            ErrorKind::Status { failure, .. } => failure.status,
            ErrorKind::TimedOut { .. } => ErrorStatus::MissedDeadlineTransient,
            ErrorKind::NoDriver { .. }
            | ErrorKind::NoSuchDevice { .. }
            | ErrorKind::NoDevice { .. }
            | ErrorKind::Connect { .. }
            | ErrorKind::Handshake { .. }
            | ErrorKind::Untrusted { .. }
            | ErrorKind::Directory { .. }
            | ErrorKind::PrivateDriver { .. } => ErrorStatus::DeviceUnavailable,
            ErrorKind::Argument { .. } => ErrorStatus::InvalidArgument,
            #[cfg(feature = "tflite")]
            ErrorKind::ImportModel { .. } => ErrorStatus::InvalidArgument,
            ErrorKind::Memory { source, .. } if source.is_exhaustion() => {
                ErrorStatus::ResourceExhaustedTransient
            }
            ErrorKind::Memory { .. } => ErrorStatus::InvalidArgument,
            ErrorKind::System { source, .. } if source.is_exhaustion() => {
                ErrorStatus::ResourceExhaustedTransient
            }
            ErrorKind::Thread { .. } => ErrorStatus::ResourceExhaustedTransient,
            _ => ErrorStatus::GeneralFailure,
        }
    }

    /// The driver's answer, if the driver gave one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self.kind() {
            ErrorKind::Status { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// Whether an argument is wrong, which nobody was asked to compute, or somebody has computed already.
    pub(crate) fn is_argument(&self) -> bool {
        matches!(self.kind(), ErrorKind::Argument { .. })
    }

    /// What an execution found of its outputs; empty unless the status is `OUTPUT_INSUFFICIENT_SIZE`.
    #[must_use]
    pub fn output_shapes(&self) -> &[OutputShape] {
        match self.kind() {
            ErrorKind::Status { output_shapes, .. } => output_shapes,
            _ => &[],
        }
    }

    /// Whether a process that was needed for the answer is dead.
    #[must_use]
    pub fn is_dead_object(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::DeadObject { .. } | ErrorKind::StatesLost { .. }
        )
    }

    /// Who died, and how, if somebody did.
    #[must_use]
    pub fn death(&self) -> Option<&Death> {
        match self.kind() {
            ErrorKind::DeadObject { death, .. } | ErrorKind::StatesLost { death, .. } => Some(death),
            _ => None,
        }
    }

    /// The process of the driver that the error is about, where it is about one.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        match self.kind() {
            ErrorKind::Status { process, .. }
            | ErrorKind::TimedOut { process, .. }
            | ErrorKind::Protocol { process, .. } => Some(*process),
            ErrorKind::DeadObject { death, .. } | ErrorKind::StatesLost { death, .. } => Some(death.process),
            _ => None,
        }
    }

    /// What a program can do about the error.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self.kind() {
            ErrorKind::StatesLost {
                restored: Some(_), ..
            } => Remedy::Retry,
            ErrorKind::DeadObject { .. }
            | ErrorKind::StatesLost { .. }
            | ErrorKind::Protocol { .. }
            | ErrorKind::Forked => Remedy::Reconnect,
            ErrorKind::Handshake { source, .. } => match source.as_ref() {
                HandshakeError::Refused { refusal, .. } if refusal.is_transient() => Remedy::Retry,
                _ => Remedy::GiveUp,
            },
            ErrorKind::Connect { source, .. } if matches!(**source, SocketError::TimedOut { .. }) => {
                Remedy::Retry
            }
            ErrorKind::Directory { .. }
            | ErrorKind::Untrusted { .. }
            | ErrorKind::NoDriver { .. }
            | ErrorKind::NoSuchDevice { .. }
            | ErrorKind::NoDevice { .. } => Remedy::GiveUp,
            _ => match self.status() {
                ErrorStatus::MissedDeadlineTransient
                | ErrorStatus::ResourceExhaustedTransient
                | ErrorStatus::DeviceUnavailable => Remedy::Retry,
                _ => Remedy::GiveUp,
            },
        }
    }

    /// The same error as that of another call, for calls that are made to find out what became of one.
    pub(crate) fn about(mut self, name: &'static str) -> Error {
        match self.kind.as_mut() {
            ErrorKind::Status { call, .. }
            | ErrorKind::DeadObject { call, .. }
            | ErrorKind::TimedOut { call, .. } => *call = name,
            _ => {}
        }
        self
    }

    /// Whether this user may not connect to the driver, or should not.
    pub(crate) fn is_not_allowed(&self) -> bool {
        use nix::errno::Errno;
        match self.kind() {
            ErrorKind::Connect { source, .. } => {
                matches!(source.errno(), Some(Errno::EACCES | Errno::EPERM))
            }
            ErrorKind::Handshake { source, .. } => matches!(
                **source,
                HandshakeError::Refused {
                    refusal: Refusal::NotAllowed,
                    ..
                }
            ),
            ErrorKind::Untrusted { .. } => true,
            _ => false,
        }
    }

    /// Whether the driver serves as many clients as it may just now.
    pub(crate) fn is_busy(&self) -> bool {
        let ErrorKind::Handshake { source, .. } = self.kind() else {
            return false;
        };
        matches!(
            **source,
            HandshakeError::Refused {
                refusal: Refusal::Busy,
                ..
            }
        )
    }

    pub(crate) fn argument(message: impl Into<String>) -> Error {
        ErrorKind::Argument {
            message: message.into(),
        }
        .into()
    }

    /// For `map_err` on what a memory refuses.
    pub(crate) fn memory(action: &'static str) -> impl FnOnce(ShmError) -> Error {
        move |source| {
            ErrorKind::Memory {
                action,
                source: Arc::new(source),
            }
            .into()
        }
    }

    /// For `map_err` on what the system refuses.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(SysError) -> Error {
        move |source| ErrorKind::System { action, source }.into()
    }

    /// For `map_err` on rings in shared memory.
    pub(crate) fn ring(action: &'static str) -> impl FnOnce(nnhal::fmq::ChannelError) -> Error {
        move |error| match error {
            nnhal::fmq::ChannelError::Memory(source) => Error::memory(action)(source),
            error => Error::argument(format!("failed to {action}: {error}")),
        }
    }

    /// For `map_err` on a message that could not be sent for a reason other than the end of the connection.
    pub(crate) fn channel(call: &'static str, process: Process) -> impl FnOnce(MessageError) -> Error {
        move |error| match error {
            error if error.is_timeout() => ErrorKind::TimedOut { call, process }.into(),
            MessageError::Codec(error) => Error::argument(format!("{call} cannot be sent: {error}")),
            error => Error::argument(format!("{call} could not be sent: {error}")),
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error { kind: Box::new(kind) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

fn how_to_go_on(restored: Option<u64>) -> String {
    match restored {
        None => "restore a copy of them, or reset them, to go on".to_owned(),
        Some(calls) => {
            format!("they are back as they were after {calls} calls; go on with the inputs behind those")
        }
    }
}

fn looked_in(paths: &[PathBuf]) -> String {
    match within(paths).as_str() {
        "" => String::new(),
        within => format!("no driver runs{within}, and "),
    }
}

fn within(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() {
        String::new()
    } else {
        format!(" in {}", paths.join(" or "))
    }
}

fn left_behind(stale: &[PathBuf]) -> String {
    let paths: Vec<_> = stale.iter().map(|path| path.display().to_string()).collect();
    match &paths[..] {
        [] => ": no driver publishes any there; start one".to_owned(),
        [path] => {
            format!(": a driver that was killed left {path} behind, on which nobody listens; start one")
        }
        _ => format!(
            ": drivers that were killed left {} behind, on which nobody listens; start one",
            paths.join(", ")
        ),
    }
}

fn offer(names: &[String]) -> String {
    if names.is_empty() {
        "no driver publishes any device there".to_owned()
    } else {
        format!("there is {}", names.join(", "))
    }
}

fn connect_advice(error: &SocketError) -> String {
    use nix::errno::Errno;
    match error.errno() {
        Some(Errno::ECONNREFUSED) => {
            "nobody listens on the socket; a driver that was killed has left it behind, and its successor replaces it"
                .to_owned()
        }
        Some(Errno::ENOENT) => "there is no such socket".to_owned(),
        Some(Errno::EACCES) => {
            "this user may not use it; with clients.other_users in its settings, a driver serves all users".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use nnhal::wire::CauseOfDeath;

    use super::*;
    use crate::driver_process::Role;

    fn dead() -> Error {
        let death = Death {
            process: Process {
                role: Role::Worker,
                pid: 12,
            },
            cause: Some(CauseOfDeath::Killed {
                signal: 9,
                core_dumped: false,
            }),
            last_words: String::new(),
        };
        ErrorKind::DeadObject {
            call: "Execute",
            death: Arc::new(death),
        }
        .into()
    }

    #[test]
    fn dead_worker_is_named_with_its_end() {
        let error = dead();
        assert_eq!(
            error.to_string(),
            "Execute got no answer (DEAD_OBJECT): the driver's worker, process 12, was killed by SIGKILL"
        );
        assert!(error.is_dead_object());
        assert_eq!(error.remedy(), Remedy::Reconnect);
        assert_eq!(error.status(), ErrorStatus::GeneralFailure);
        assert_eq!(error.process().map(|process| process.pid), Some(12));
    }

    #[test]
    fn statuses_tell_whether_to_retry() {
        for (status, remedy) in [
            (ErrorStatus::InvalidArgument, Remedy::GiveUp),
            (ErrorStatus::GeneralFailure, Remedy::GiveUp),
            (ErrorStatus::DeviceUnavailable, Remedy::Retry),
            (ErrorStatus::MissedDeadlineTransient, Remedy::Retry),
            (ErrorStatus::MissedDeadlinePersistent, Remedy::GiveUp),
            (ErrorStatus::ResourceExhaustedTransient, Remedy::Retry),
        ] {
            let error: Error = ErrorKind::Status {
                call: "Execute",
                device: "a-b".into(),
                process: Process {
                    role: Role::Worker,
                    pid: 1,
                },
                failure: Failure::new(status, "why"),
                output_shapes: Vec::new(),
            }
            .into();
            assert_eq!(error.status(), status);
            assert_eq!(error.remedy(), remedy, "{status}");
            assert!(error.to_string().ends_with(&format!("{status}: why")), "{error}");
        }
    }

    #[test]
    fn missing_device_lists_those_that_are_there() {
        let error: Error = ErrorKind::NoSuchDevice {
            name: "a-b".into(),
            searched: vec!["/run/nnhal".into()],
            available: vec!["c-d".into(), "e-f".into()],
        }
        .into();
        assert_eq!(
            error.to_string(),
            "there is no device \"a-b\" in /run/nnhal; there is c-d, e-f"
        );
        assert!(size_of::<Error>() <= size_of::<usize>());
    }
}
