//! Clients for which there is no place yet, while another client is about to give one up.
//!
//! A program that starts when another has just ended knows of that end before all that the other one left is
//! closed. It is not turned away for that, and nobody else is kept waiting for it. How many wait is bounded:
//! others are turned away at once.

use std::time::Duration;

use nnhal_os::peer::PeerIdentity;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// How long a client waits for a place. Closing what nobody holds up is over long before.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is looked whether there is one.
const PAUSE: Duration = Duration::from_millis(1);

/// How many clients wait at most, of all users and of each.
const MOST: usize = 64;
const MOST_OF_USER: usize = 8;

/// A client that has connected to a device's socket.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) client: Connection,
    pub(super) device: String,
    pub(super) peer: PeerIdentity,
}

/// The clients that wait, the first one first.
#[derive(Debug, Default)]
pub(super) struct PendingConnections(Vec<(PendingConnection, Deadline)>);

impl PendingConnections {
    /// Has a client wait that would be refused now; gives it back if too many wait.
    pub(super) fn add(&mut self, connection: PendingConnection) -> Result<(), PendingConnection> {
        let of_user = |(other, _): &&(PendingConnection, Deadline)| other.peer.uid == connection.peer.uid;
        if self.0.len() >= MOST || self.0.iter().filter(of_user).count() >= MOST_OF_USER {
            return Err(connection);
        }
        let until = Deadline::after(MonotonicClock.now(), TIMEOUT);
        self.0.push((connection, until));
        Ok(())
    }

    /// When to look again whether there are places.
    pub(super) fn look_again(&self) -> Option<Deadline> {
        (!self.0.is_empty()).then(|| Deadline::after(MonotonicClock.now(), PAUSE))
    }

    /// Takes out all that wait, with until when they may.
    pub(super) fn take(&mut self) -> Vec<(PendingConnection, Deadline)> {
        std::mem::take(&mut self.0)
    }

    /// Has a client wait on.
    pub(super) fn keep(&mut self, connection: PendingConnection, until: Deadline) {
        self.0.push((connection, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pending: &mut PendingConnections, uid: u32) -> bool {
        let connection = PendingConnection {
            client: Connection::pair().unwrap().0,
            device: "a".to_owned(),
            peer: PeerIdentity {
                pid: 1,
                uid,
                gid: uid,
                pidfd: None,
            },
        };
        pending.add(connection).is_ok()
    }

    #[test]
    fn no_user_has_others_wait_no_more() {
        let mut pending = PendingConnections::default();
        assert!(pending.look_again().is_none());
        assert!((0..MOST_OF_USER).all(|_| add(&mut pending, 7)));
        assert!(!add(&mut pending, 7) && add(&mut pending, 8));
        assert!(pending.look_again().is_some());
        let waiting = pending.take();
        assert_eq!(waiting.len(), MOST_OF_USER + 1);
        assert!(pending.look_again().is_none());
        let users = (0..MOST as u32).filter(|uid| add(&mut pending, *uid)).count();
        assert_eq!((users, add(&mut pending, 1000)), (MOST, false));
    }
}
