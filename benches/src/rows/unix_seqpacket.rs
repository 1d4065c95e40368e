//! Messages over a Unix socket that keeps their bounds.

use std::os::fd::{AsFd, OwnedFd};

use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;

use crate::other_side::{Caller, Invocation, Role, default_deadline};
use crate::{Contestant, Error, OtherSide, Result};

const NAME: &str = "unix_seqpacket";

/// The other side.
pub(super) const ROLE: Role = (NAME, answer);

/// The socket.
#[derive(Debug)]
pub struct UnixSeqpacket {
    other: OtherSide,
    connection: Connection,
    sent: Vec<u8>,
    received: Vec<u8>,
    count: u64,
    deadline: Deadline,
}

impl UnixSeqpacket {
    /// The longest message that fits the kernel's buffers as they are set by default.
    pub const LARGEST: u32 = 65_536;

    /// Starts the other process, for messages of so many bytes, at least 8.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(invocation: &Invocation, payload: u32) -> Result<UnixSeqpacket> {
        let (connection, theirs) = Connection::pair()?;
        let theirs = OwnedFd::from(theirs);
        Ok(UnixSeqpacket {
            other: invocation.start(NAME, &payload.to_ne_bytes(), &[theirs.as_fd()])?,
            connection,
            sent: vec![0; payload as usize],
            received: vec![0; payload as usize],
            count: 0,
            deadline: Deadline::NONE,
        })
    }
}

impl Contestant for UnixSeqpacket {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        self.sent.len() as u64
    }

    fn others(&self) -> Vec<u32> {
        vec![self.other.pid()]
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.deadline = default_deadline();
        self.other.begin(trips)
    }

    fn trip(&mut self) -> Result<()> {
        self.count += 1;
        self.sent[..8].copy_from_slice(&self.count.to_ne_bytes());
        self.connection.send(&self.sent, &[], self.deadline)?;
        let received = self.connection.receive(&mut self.received, self.deadline)?;
        if received.length == self.sent.len() && self.received[..8] == self.sent[..8] {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}

fn answer() -> Result<()> {
    let (caller, mut setup) = Caller::setup()?;
    let connection = Connection::from_fd(setup.only_fd()?);
    let payload = setup.bytes.as_slice().try_into().map_or(0, u32::from_ne_bytes);
    let mut buffer = vec![0; payload as usize];
    caller.serve(|trips| {
        let deadline = default_deadline();
        for _ in 0..trips {
            let received = connection.receive(&mut buffer, deadline)?;
            connection.send(&buffer[..received.length], &[], deadline)?;
        }
        Ok(())
    })
}
