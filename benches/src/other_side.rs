//! The other process of a row: this program again, led by its command line to [`answer`].
//!
//! Its standard input is one end of a socket on which it first receives what it needs (bytes and
//! descriptors), and then, before each round, how many round trips to answer. It ends with the socket.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::{Error, Result};

/// Within this time another process must have started, or come to the end of a round.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest set-up message.
const SETUP_BYTES: usize = 4096;
/// The first byte of the set-up message.
const MARK: u8 = 1;

/// A deadline that only another process that hangs lets pass.
#[must_use]
pub fn default_deadline() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// How to start this program as an other side: the arguments before the role.
#[derive(Clone, Debug)]
pub struct Invocation {
    prefix: Vec<OsString>,
}

impl Invocation {
    /// With these arguments before the role.
    #[must_use]
    pub fn new<S: Into<OsString>>(prefix: impl IntoIterator<Item = S>) -> Invocation {
        Invocation {
            prefix: prefix.into_iter().map(Into::into).collect(),
        }
    }

    /// Starts this program as an other side.
    ///
    /// # Errors
    /// The system cannot start another process.
    pub fn start(&self, role: &str, setup: &[u8], fds: &[BorrowedFd<'_>]) -> Result<OtherSide> {
        let (own, theirs) = Connection::pair()?;
        let executable = std::env::current_exe().map_err(Error::io("find this program's file"))?;
        let child = Command::new(executable)
            .args(&self.prefix)
            .arg(role)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(Error::io(format!("start the other side of {role}")))?;
        let other = OtherSide {
            child,
            connection: Some(own),
        };
        // An empty message would look like the end.
        let message: Vec<u8> = [&[MARK], setup].concat();
        other.connection()?.send(&message, fds, default_deadline())?;
        other.wait_until_ready()?;
        Ok(other)
    }
}

/// The other process, seen from this one. It ends when this is dropped.
#[derive(Debug)]
pub struct OtherSide {
    child: Child,
    /// `None` only while it is dropped.
    connection: Option<Connection>,
}

impl OtherSide {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it answer so many round trips; returns when it is about to.
    ///
    /// # Errors
    /// It has ended, or does not answer.
    pub fn begin(&self, trips: u32) -> Result<()> {
        self.connection()?
            .send(&trips.to_ne_bytes(), &[], default_deadline())?;
        self.wait_until_ready()
    }

    /// What it says when its round is over.
    ///
    /// # Errors
    /// It has ended, or does not answer.
    pub fn receive(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; SETUP_BYTES];
        let received = self.connection()?.receive(&mut bytes, default_deadline())?;
        bytes.truncate(received.length);
        Ok(bytes)
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.connection()?.receive(&mut [0; 8], default_deadline())?;
        Ok(())
    }

    fn connection(&self) -> Result<&Connection> {
        let gone = || Error::Row {
            what: "the other side".to_owned(),
            reason: "it was told to end".to_owned(),
        };
        self.connection.as_ref().ok_or_else(gone)
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        self.connection = None;
        // It may wait for a packet that never comes, after an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that measures, seen from the other process.
#[derive(Debug)]
pub struct Caller {
    connection: Connection,
}

/// What an other side was given to begin with.
#[derive(Debug)]
pub struct Setup {
    /// Bytes that only the role understands.
    pub bytes: Vec<u8>,
    /// Descriptors that only the role understands.
    pub fds: Vec<OwnedFd>,
}

impl Setup {
    /// The only descriptor.
    ///
    /// # Errors
    /// There is none.
    pub fn only_fd(&mut self) -> Result<OwnedFd> {
        self.fds.pop().ok_or_else(|| Error::Row {
            what: "the other side".to_owned(),
            reason: "it was given no descriptor".to_owned(),
        })
    }

    /// The bytes as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Caller {
    /// What comes to the other side first.
    ///
    /// # Errors
    /// The caller is gone, or standard input is no socket.
    pub fn setup() -> Result<(Caller, Setup)> {
        let stdin = std::io::stdin();
        let fd = stdin
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::io("keep standard input"))?;
        let connection = Connection::from_fd(fd);
        let mut bytes = vec![0; SETUP_BYTES];
        let received = connection.receive(&mut bytes, default_deadline())?;
        bytes.truncate(received.length);
        bytes.drain(..1.min(received.length));
        let setup = Setup {
            bytes,
            fds: received.fds,
        };
        Ok((Caller { connection }, setup))
    }

    /// Says that the next round trips are answered from now on.
    ///
    /// # Errors
    /// The caller is gone.
    pub fn say_ready(&self) -> Result<()> {
        Ok(self.connection.send(b"ready", &[], default_deadline())?)
    }

    /// Says something that [`OtherSide::receive`] receives.
    ///
    /// # Errors
    /// The caller is gone.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        Ok(self.connection.send(bytes, &[], default_deadline())?)
    }

    /// How many round trips the next round has; `None` if none follows.
    ///
    /// # Errors
    /// The system's.
    pub fn next_round(&self) -> Result<Option<u32>> {
        use nnhal_os::socket::SocketError;
        let mut count = [0; 4];
        match self.connection.receive(&mut count, Deadline::NONE) {
            Ok(received) if received.length == count.len() => Ok(Some(u32::from_ne_bytes(count))),
            Ok(_) | Err(SocketError::Closed) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers round after round: says that it is ready, then lets `answer` do all of its round trips.
    ///
    /// # Errors
    /// Those of `answer`.
    pub fn serve(&self, mut answer: impl FnMut(u32) -> Result<()>) -> Result<()> {
        self.say_ready()?;
        while let Some(trips) = self.next_round()? {
            self.say_ready()?;
            answer(trips)?;
        }
        Ok(())
    }
}

/// A role of the other process.
pub type Role = (&'static str, fn() -> Result<()>);

/// Plays the role with this name until the caller ends it.
///
/// # Errors
/// There is no such role; what went wrong in it.
pub fn answer(role: &str, roles: &[Role]) -> Result<()> {
    let found = roles.iter().find(|(name, _)| *name == role);
    match found {
        Some((_, play)) => play(),
        None => Err(Error::Row {
            what: role.to_owned(),
            reason: "there is no such other side".to_owned(),
        }),
    }
}
