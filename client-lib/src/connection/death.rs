//! The end of a connection: finding out why, and telling everyone who waits.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::wire::{CauseOfDeath, Inbox, Message};
use nnhal_os::pidfd;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::ending::{self, Ending, Farewell, Trouble};
use super::link::Link;
use crate::driver_process::Death;
use crate::error::{Error, ErrorKind};

/// How long the supervisor may take to tell how its worker ended. It is told by a signal at the same moment
/// as this side, so it takes a fraction of this, unless it is dead or stopped.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_millis(15);

/// How long after the end of the connection the process behind it may take to end, for its exit status.
const EXIT_TIMEOUT: Duration = Duration::from_millis(5);

/// How long a caller waits for the watcher to find out why the connection has ended: far longer than it
/// takes.
const FIND_OUT_TIMEOUT: Duration = Duration::from_secs(2);

impl Link {
    /// The error of a call that cannot be answered any more.
    pub(crate) fn ended_error(&self, call: &'static str) -> Error {
        match self.ending.get() {
            Some(Ending::Death(death)) => ErrorKind::DeadObject {
                call,
                death: Arc::clone(death),
            }
            .into(),
            Some(Ending::Protocol(message)) => ErrorKind::Protocol {
                process: self.worker,
                message: message.clone(),
            }
            .into(),
            None => ErrorKind::DeadObject {
                call,
                death: Arc::new(self.death_of_unknown_cause()),
            }
            .into(),
        }
    }

    /// The error of every further call, once the connection has ended.
    pub(crate) fn ended_with(&self) -> Option<Error> {
        self.ending.get().map(|_| self.ended_error("the call"))
    }

    /// Waits until it is known why the connection has ended, which it has, and returns the error for `call`.
    pub(crate) fn wait_for_end(&self, call: &'static str) -> Error {
        self.wake_watcher();
        let calls = self.lock();
        let waited = self
            .ended
            .wait_timeout_while(calls, FIND_OUT_TIMEOUT, |calls| !calls.has_ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.ended_error(call)
    }

    fn death_of_unknown_cause(&self) -> Death {
        Death {
            process: self.worker,
            cause: None,
            last_words: String::new(),
        }
    }

    /// Ends every call, with the reason.
    pub(super) fn end(&self, trouble: Trouble) {
        let ending = match trouble {
            Trouble::Gone => Ending::Death(Arc::new(self.find_out())),
            Trouble::Protocol(message) => {
                self.socket.shutdown();
                Ending::Protocol(message)
            }
        };
        tracing::debug!(target: tags::DRIVER, device = %self.name, ?ending, "connection ended");
        // The watcher alone ends a connection, once.
        let _ = self.ending.set(ending);
        let (effects, listeners) = self.lock().end(|| self.ended_error("the call"));
        ending::fail(
            listeners
                .iter()
                .filter_map(|listener| listener.connection_ended()),
        );
        self.carry_out(effects);
        self.ended.notify_all();
    }

    /// Finds out how the worker ended: from what it said, from its supervisor, or from the kernel.
    fn find_out(&self) -> Death {
        // Who reads gives the inbox up as soon as it sees the end, which is now.
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_farewell(&mut inbox);
        drop(inbox);
        let Farewell { goodbye, worker_exit } = std::mem::take(&mut self.lock().farewell);
        let (cause, last_words) = match worker_exit {
            Some((cause, last_words)) => (Some(cause), last_words),
            None => (self.exit_status().map(cause_of), String::new()),
        };
        let last_words = if last_words.is_empty() {
            goodbye.unwrap_or_default()
        } else {
            last_words
        };
        Death {
            process: self.worker,
            cause,
            last_words,
        }
    }

    /// Reads what is left on the socket, up to the worker exit. Answers that came in time still count.
    fn read_farewell(&self, inbox: &mut Inbox) {
        if self.lock().farewell.worker_exit.is_some() {
            return;
        }
        let deadline = Deadline::after(MonotonicClock.now(), WORKER_EXIT_TIMEOUT);
        while let Ok((message, fds)) = inbox.receive::<Message>(&self.socket, deadline) {
            if self.dispatch(message, fds).is_err() {
                return;
            }
        }
    }

    /// The worker's exit status, from the kernel: the supervisor cannot tell if it is dead itself.
    fn exit_status(&self) -> Option<ExitStatus> {
        let pidfd = self.pidfd.as_ref()?.as_fd();
        let deadline = Deadline::after(MonotonicClock.now(), EXIT_TIMEOUT);
        if !pidfd::wait_for_end(pidfd, deadline).ok()? {
            return None;
        }
        pidfd::exit_status(pidfd)
    }
}

fn cause_of(status: ExitStatus) -> CauseOfDeath {
    match status.signal() {
        Some(signal) => CauseOfDeath::Killed {
            signal,
            core_dumped: status.core_dumped(),
        },
        None => CauseOfDeath::Exited {
            code: status.code().unwrap_or_default(),
        },
    }
}
