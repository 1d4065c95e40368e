//! Messages over a connection.
//!
//! A message travels as one packet: a byte that says how, then its encoding, or, where the encoding is longer
//! than a packet may be, its length; the encoding is then the content of a sealed memfd, the last descriptor
//! of the packet.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::SealFlag;

use super::Wire;
use super::codec::{self, CodecError, MAX_MESSAGE};
use super::handshake::VERSIONS;
use nnhal_os::SysError;
use nnhal_os::memfd;
use nnhal_os::socket::{Connection, SocketError};
use nnhal_os::time::Deadline;

/// The longest packet; what is longer travels in a memfd. A socket's send buffer, 208 KiB by default, holds
/// several.
pub const MAX_PACKET: usize = 32 * 1024;

const INLINE: u8 = 0;
const ATTACHED: u8 = 1;
/// Kind and length.
const ATTACHED_PACKET: usize = 1 + size_of::<u64>();

/// What must hold of a memfd that carries a message, so that nobody can change it while it is read.
const SEALS: SealFlag = SealFlag::F_SEAL_WRITE
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// Why a message could not be sent or received. After any of them but a time-out the connection is of no use.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The bytes are no message.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The packet is not as the protocol has it.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// A memfd for a long message could not be made or read.
    #[error("failed to {action} a long message: {source}")]
    Attachment {
        /// What was attempted.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl MessageError {
    /// Whether the peer has closed the connection, or died.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, MessageError::Socket(SocketError::Closed))
    }

    /// Whether the deadline passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, MessageError::Socket(SocketError::TimedOut { .. }))
    }
}

/// Sends one message with its descriptors, in the version that was agreed on. With a deadline that has
/// passed: now or not at all.
///
/// # Errors
///
/// See [`MessageError`]; after an error nothing was sent.
pub fn send<T: Wire>(
    connection: &Connection,
    version: u32,
    message: &T,
    fds: &[BorrowedFd<'_>],
    deadline: Deadline,
) -> Result<(), MessageError> {
    let mut packet = vec![INLINE];
    codec::encode_in(version, message, &mut packet)?;
    if packet.len() <= MAX_PACKET {
        return Ok(connection.send(&packet, fds, deadline)?);
    }
    let body = &packet[1..];
    let attachment = seal(body).map_err(|source| MessageError::Attachment {
        action: "store",
        source,
    })?;
    let mut head = [ATTACHED; ATTACHED_PACKET];
    head[1..].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let mut all = fds.to_vec();
    all.push(attachment.as_fd());
    Ok(connection.send(&head, &all, deadline)?)
}

/// Receives messages from one connection, into a buffer that is kept.
#[derive(Debug)]
pub struct Inbox {
    buffer: Vec<u8>,
    version: u32,
}

impl Inbox {
    /// An inbox with a buffer for the longest packet, for messages in the newest version.
    #[must_use]
    pub fn new() -> Inbox {
        Inbox {
            buffer: vec![0; MAX_PACKET],
            version: VERSIONS.newest,
        }
    }

    /// From now on messages are in this version, which was agreed on.
    pub fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// Receives one message and its descriptors. With a deadline that has passed: only what is there already.
    ///
    /// # Errors
    ///
    /// See [`MessageError`]. Descriptors that came with a message that is refused are closed.
    pub fn receive<T: Wire>(
        &mut self,
        connection: &Connection,
        deadline: Deadline,
    ) -> Result<(T, Vec<OwnedFd>), MessageError> {
        let received = connection.receive(&mut self.buffer, deadline)?;
        let packet = self.buffer.get(..received.length).unwrap_or_default();
        let mut fds = received.fds;
        match packet.split_first() {
            Some((&INLINE, body)) => Ok((codec::decode_in(self.version, body)?, fds)),
            Some((&ATTACHED, length)) => {
                let length = length
                    .try_into()
                    .map(u64::from_le_bytes)
                    .map_err(|_| MessageError::Protocol("the length of a long message is not 8 bytes"))?;
                let attachment = fds
                    .pop()
                    .ok_or(MessageError::Protocol("a long message came without its memfd"))?;
                Ok((
                    codec::decode_in(self.version, &read_sealed(attachment, length)?)?,
                    fds,
                ))
            }
            _ => Err(MessageError::Protocol("a packet is of no known kind")),
        }
    }

    /// Receives the bytes of one packet as they are, for the handshake.
    ///
    /// # Errors
    ///
    /// See [`SocketError`].
    pub fn receive_bytes(
        &mut self,
        connection: &Connection,
        deadline: Deadline,
    ) -> Result<(&[u8], Vec<OwnedFd>), SocketError> {
        let received = connection.receive(&mut self.buffer, deadline)?;
        Ok((
            self.buffer.get(..received.length).unwrap_or_default(),
            received.fds,
        ))
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// The message of a packet that has no descriptors, if it is one, from a peer with which no version has been
/// agreed on.
#[must_use]
pub fn read_inline<T: Wire>(packet: &[u8]) -> Option<T> {
    let (&INLINE, body) = packet.split_first()? else {
        return None;
    };
    codec::decode_in(VERSIONS.oldest, body).ok()
}

fn seal(body: &[u8]) -> std::io::Result<OwnedFd> {
    let system = |error: SysError| std::io::Error::from(error.errno);
    let mut file = File::from(memfd::create(c"nnhal-message").map_err(system)?);
    file.write_all(body)?;
    memfd::seal(&file, SEALS).map_err(system)?;
    Ok(file.into())
}

/// Copies a sealed message out of its memfd. Seals also prove that it is memory: reading it cannot block.
fn read_sealed(fd: OwnedFd, length: u64) -> Result<Vec<u8>, MessageError> {
    if length > MAX_MESSAGE as u64 {
        return Err(CodecError::TooLong { length }.into());
    }
    if !memfd::seals(&fd).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(MessageError::Protocol("a long message is not in a sealed memfd"));
    }
    let file = File::from(fd);
    let attachment = |source| MessageError::Attachment {
        action: "read",
        source,
    };
    if file.metadata().map_err(attachment)?.len() != length {
        return Err(MessageError::Protocol(
            "a long message is not of the length that was announced",
        ));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(attachment)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nnhal_os::time::{Clock, MonotonicClock};
    use std::time::Duration;

    const NOW: Deadline = Deadline::from_raw(0);

    fn soon() -> Deadline {
        Deadline::after(MonotonicClock.now(), Duration::from_secs(10))
    }

    fn attached(length: u64) -> Vec<u8> {
        let mut head = vec![ATTACHED];
        head.extend_from_slice(&length.to_le_bytes());
        head
    }

    #[test]
    fn short_and_long_messages_arrive_with_their_descriptors() {
        let (left, right) = Connection::pair().unwrap();
        let mut inbox = Inbox::new();
        for length in [0, MAX_PACKET - 9, MAX_PACKET - 8, 5_000_000] {
            let text = "x".repeat(length);
            send(&left, VERSIONS.newest, &text, &[left.as_fd()], soon()).unwrap();
            let (received, fds) = inbox.receive::<String>(&right, soon()).unwrap();
            assert!(received == text, "{length}");
            assert_eq!(fds.len(), 1);
        }
    }

    #[test]
    fn long_message_in_unsealed_memory_is_refused() {
        let (left, right) = Connection::pair().unwrap();
        let body = codec::encode(&"text".to_owned()).unwrap();
        let mut file = File::from(memfd::create(c"test").unwrap());
        file.write_all(&body).unwrap();
        left.send(&attached(body.len() as u64), &[file.as_fd()], NOW)
            .unwrap();
        let error = Inbox::new().receive::<String>(&right, soon()).unwrap_err();
        assert!(matches!(error, MessageError::Protocol(_)), "{error}");
    }

    #[test]
    fn long_message_with_false_length_is_refused() {
        let (left, right) = Connection::pair().unwrap();
        let body = codec::encode(&"text".to_owned()).unwrap();
        let memory = seal(&body).unwrap();
        for length in [
            0,
            body.len() as u64 - 1,
            body.len() as u64 + 1,
            MAX_MESSAGE as u64,
            1 << 40,
            u64::MAX,
        ] {
            left.send(&attached(length), &[memory.as_fd()], NOW).unwrap();
            assert!(
                Inbox::new().receive::<String>(&right, soon()).is_err(),
                "{length}"
            );
        }
        left.send(&attached(body.len() as u64), &[memory.as_fd()], NOW)
            .unwrap();
        assert_eq!(Inbox::new().receive::<String>(&right, soon()).unwrap().0, "text");
    }

    #[test]
    fn packets_of_no_known_form_are_refused() {
        let (left, right) = Connection::pair().unwrap();
        for packet in [&[2_u8, 0, 0][..], &[ATTACHED], &[ATTACHED, 1, 2], &attached(4)] {
            left.send(packet, &[], NOW).unwrap();
            let error = Inbox::new().receive::<String>(&right, soon()).unwrap_err();
            assert!(matches!(error, MessageError::Protocol(_)), "{error}");
        }
    }

    #[test]
    fn closed_connection_is_told_from_other_failures() {
        let (left, right) = Connection::pair().unwrap();
        let mut inbox = Inbox::new();
        assert!(inbox.receive::<String>(&right, NOW).unwrap_err().is_timeout());
        drop(left);
        assert!(inbox.receive::<String>(&right, soon()).unwrap_err().is_closed());
    }
}
