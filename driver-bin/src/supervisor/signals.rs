//! Signals as something to poll for.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

/// The signals that a supervisor lives by.
#[derive(Debug)]
pub(super) struct Signals {
    pipe: UnixStream,
    terminate: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    child: Arc<AtomicBool>,
}

/// What has been asked for since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Raised {
    /// SIGTERM or SIGINT.
    pub(super) terminate: bool,
    /// SIGHUP.
    pub(super) reload: bool,
    /// SIGCHLD.
    pub(super) child: bool,
}

impl Signals {
    pub(super) fn install() -> std::io::Result<Signals> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let signals = Signals {
            pipe,
            terminate: Arc::default(),
            reload: Arc::default(),
            child: Arc::default(),
        };
        let all = [
            (SIGTERM, &signals.terminate),
            (SIGINT, &signals.terminate),
            (SIGHUP, &signals.reload),
            (SIGCHLD, &signals.child),
        ];
        for (signal, flag) in all {
            // The flag first: actions run in the order of their registration, so whoever is woken finds it
            // set.
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(signals)
    }

    /// Takes what has been raised, and makes the descriptor quiet until there is more.
    pub(super) fn take(&mut self) -> Raised {
        let mut bytes = [0; 64];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let take = |flag: &AtomicBool| flag.swap(false, Ordering::SeqCst);
        Raised {
            terminate: take(&self.terminate),
            reload: take(&self.reload),
            child: take(&self.child),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
