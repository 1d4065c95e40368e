//! What becomes of a message on its way.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::SealFlag;
use nnhal::wire::{MAX_PACKET, Message, Welcome, codec, handshake};
use nnhal_conformance::generator::choices::Random;
use nnhal_os::memfd;
use nnhal_os::socket::Connection;

use super::lies::{odd_fd, odd_number, once_in, spoil};
use super::shared::{Shared, soon};

/// How a packet says that its message is inside of it, or in a memfd.
const INLINE: u8 = 0;
const ATTACHED: u8 = 1;

/// One in so many messages is spoilt.
const SPOILT: u32 = 4;

/// Sends to one client.
pub(super) struct Sender {
    connection: Connection,
    version: u32,
    random: Random,
    shared: Arc<Shared>,
    /// Packets that come later than they should.
    delayed: Vec<Vec<u8>>,
}

impl Sender {
    pub(super) fn new(connection: Connection, version: u32, random: Random, shared: &Arc<Shared>) -> Sender {
        Sender {
            connection,
            version,
            random,
            shared: Arc::clone(shared),
            delayed: Vec::new(),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Says who it is. Tells whether it goes on.
    pub(super) fn welcome(&mut self, welcome: &Welcome, is_true: bool) -> bool {
        let encoded = |welcome: &Welcome| {
            let answer = handshake::accept(handshake::VERSIONS, self.version, welcome);
            answer.expect("a welcome")
        };
        let mut packet = encoded(welcome);
        let mut fds = Vec::new();
        if !is_true && once_in(&mut self.random, 8) {
            self.shared.count();
            match self.random.below(5) {
                0 => return false,
                1 => fds.push(odd_fd(&mut self.random)),
                // More files than there can be.
                2 => {
                    let mut welcome = welcome.clone();
                    welcome.device.cache_files.model = odd_number(&mut self.random) as u32;
                    packet = encoded(&welcome);
                }
                _ => spoil(&mut self.random, &mut packet),
            }
        }
        self.put(&packet, &fds)
    }

    /// Sends a message, as it is or not. Tells whether it goes on.
    pub(super) fn send(&mut self, message: &Message, fds: &[OwnedFd], is_of_little_use: bool) -> bool {
        let mut packet = vec![INLINE];
        if codec::encode_in(self.version, message, &mut packet).is_err() || packet.len() > MAX_PACKET {
            return true;
        }
        let times = if is_of_little_use { SPOILT * 8 } else { SPOILT };
        if once_in(&mut self.random, times) {
            self.shared.count();
            return self.send_spoilt(packet, fds);
        }
        let is_sent = self.put(&packet, fds);
        match self.delayed.pop() {
            Some(late) if is_sent => self.put(&late, &[]),
            _ => is_sent,
        }
    }

    fn send_spoilt(&mut self, mut packet: Vec<u8>, fds: &[OwnedFd]) -> bool {
        match self.random.below(14) {
            0..5 => spoil(&mut self.random, &mut packet),
            5 => return self.put(&packet, fds) && self.put(&packet, fds),
            6 => {
                self.delayed.push(packet);
                return true;
            }
            // Never.
            7 => return true,
            8 => {
                let fd = odd_fd(&mut self.random);
                let mut fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                fds.extend(std::iter::repeat_n(
                    fd.as_fd(),
                    1 + self.random.below(80) as usize,
                ));
                // Too many for one packet are not sent.
                fds.truncate(nnhal_os::socket::MAX_FDS);
                return self.connection.send(&packet, &fds, soon()).is_ok();
            }
            9 => return self.put(&packet, &[]),
            10 => return self.send_attached(&packet),
            11 => return false,
            12 => {
                self.put(&packet, fds);
                return false;
            }
            _ => {
                // The id.
                let id = odd_number(&mut self.random).to_le_bytes();
                packet[5..13].copy_from_slice(&id);
            }
        }
        self.put(&packet, fds)
    }

    /// As a long message, in a memfd that is not as it should be.
    fn send_attached(&mut self, packet: &[u8]) -> bool {
        let body = &packet[1..];
        let file = std::fs::File::from(memfd::create(c"nnhal-message").expect("a memfd"));
        let _ = std::os::unix::fs::FileExt::write_all_at(&file, body, 0);
        if !once_in(&mut self.random, 3) {
            let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
            let _ = memfd::seal(&file, seals | SealFlag::F_SEAL_SEAL);
        }
        let length = if once_in(&mut self.random, 2) {
            body.len() as u64
        } else {
            odd_number(&mut self.random)
        };
        let mut head = vec![ATTACHED];
        head.extend_from_slice(&length.to_le_bytes());
        let fd = if once_in(&mut self.random, 3) {
            odd_fd(&mut self.random)
        } else {
            file.into()
        };
        self.put(&head, &[fd])
    }

    fn put(&self, packet: &[u8], fds: &[OwnedFd]) -> bool {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        self.connection.send(packet, &fds, soon()).is_ok()
    }
}
