//! One connection to one worker, and everyone in this process who waits for it.
//!
//! A call is a message under an id, and an entry in [`calls::Calls`] until all its answers are there. Whoever
//! waits for an answer reads the socket itself, one at a time (the *reader*), and hands out what belongs to
//! others; so a synchronous call costs no detour through another thread. Answers that nobody waits for, and
//! the end of the worker, are the watcher thread's business. It sleeps in the kernel until something happens:
//! no deadline wakes it.

mod burst_permit;
mod calls;
mod completer;
mod death;
mod ending;
mod link;
mod open;
pub(crate) mod pending;
mod receive;
#[cfg(test)]
pub(crate) mod tests;
mod watcher;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use nnhal::diag::tags;
use nnhal_hal::DeviceInfo;

pub(crate) use burst_permit::{BurstPermit, Holder};
pub(crate) use completer::Awaited;
pub(crate) use ending::EndListener;
pub(crate) use link::Link;

use crate::driver_process::Process;
use crate::error::{Error, ErrorKind};
use crate::private_driver::PrivateDriver;
use crate::trace::WorkerTrace;

/// The client's end of a connection. Dropping the last handle ends the connection and with it the worker.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Arc<Link>,
    watcher: Option<JoinHandle<()>>,
    socket_path: PathBuf,
    /// The worker's part of this process's trace.
    trace: Option<WorkerTrace>,
    /// After the link, so that the connection is closed before the driver is told to end.
    driver: Option<Arc<PrivateDriver>>,
}

impl Connection {
    /// The device behind the connection.
    pub(crate) fn device(&self) -> &Arc<DeviceInfo> {
        &self.link.device
    }

    /// The process that serves this connection.
    pub(crate) fn worker(&self) -> Process {
        self.link.worker
    }

    /// The process that accepted it.
    pub(crate) fn supervisor(&self) -> Process {
        self.link.supervisor
    }

    /// Where the driver publishes the device.
    pub(crate) fn socket_path(&self) -> &Path {
        &self.socket_path
    }

    /// The private driver that serves it, if one does.
    pub(crate) fn driver(&self) -> Option<&Arc<PrivateDriver>> {
        self.driver.as_ref()
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.link.stamp.is_current() {
            // A forked child has no watcher, and the connection is its parent's.
            return;
        }
        self.link.completer.stop();
        self.link.lock().is_stopping = true;
        self.link.wake_watcher();
        let Some(watcher) = self.watcher.take() else {
            return;
        };
        // The last handle may have been in a waker or a callback that the watcher itself runs.
        if watcher.thread().id() != std::thread::current().id() && watcher.join().is_err() {
            tracing::error!(target: tags::DRIVER, "the thread that watched a driver's worker panicked");
        }
    }
}

/// The error of a call that is made with objects of two connections.
pub(crate) fn wrong_connection(what: &str) -> Error {
    ErrorKind::Argument {
        message: format!(
            "{what} belongs to another connection; all objects of a call must come from one device handle"
        ),
    }
    .into()
}
