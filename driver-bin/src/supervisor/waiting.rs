//! Clients that are let in and wait for a worker: whose turn is next.
//!
//! Users take turns, so that no user waits for more than one client of each other user, however many connect.

use std::collections::VecDeque;

use nix::poll::PollFlags;
use nnhal_os::poll;
use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;

use crate::link::ClientIdentity;

/// A client that waits for a worker.
#[derive(Debug)]
pub(super) struct WaitingClient {
    pub(super) client: Connection,
    pub(super) device: String,
    pub(super) identity: ClientIdentity,
}

/// All clients that wait for a worker.
#[derive(Debug, Default)]
pub(super) struct WaitingClients {
    /// Those of each user, who come in turn. No list is empty.
    users: VecDeque<(u32, VecDeque<WaitingClient>)>,
}

impl WaitingClients {
    /// Has a client wait behind those of the same user.
    pub(super) fn push(&mut self, waiting: WaitingClient) {
        let uid = waiting.identity.uid;
        match self.users.iter_mut().find(|(user, _)| *user == uid) {
            Some((_, clients)) => clients.push_back(waiting),
            None => self.users.push_back((uid, VecDeque::from([waiting]))),
        }
    }

    /// Takes out the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<WaitingClient> {
        let (uid, mut clients) = self.users.pop_front()?;
        let next = clients.pop_front();
        if !clients.is_empty() {
            self.users.push_back((uid, clients));
        }
        next
    }

    /// Puts back a client that was taken out and is not served yet: it is its turn again.
    pub(super) fn put_back(&mut self, waiting: WaitingClient) {
        let uid = waiting.identity.uid;
        let at = self.users.iter().position(|(user, _)| *user == uid);
        let mut clients = at
            .and_then(|at| self.users.remove(at))
            .map_or_else(VecDeque::new, |(_, clients)| clients);
        clients.push_front(waiting);
        self.users.push_front((uid, clients));
    }

    pub(super) fn len(&self) -> usize {
        self.users.iter().map(|(_, clients)| clients.len()).sum()
    }

    /// The connections of all that wait.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.users
            .iter()
            .flat_map(|(_, clients)| clients.iter().map(|waiting| &waiting.client))
    }

    /// Takes out those that have hung up.
    pub(super) fn take_gone(&mut self) -> Vec<WaitingClient> {
        let mut gone = Vec::new();
        for (_, clients) in &mut self.users {
            let all = std::mem::take(clients).into_iter();
            let (ended, waiting): (VecDeque<_>, VecDeque<_>) =
                all.partition(|waiting| has_hung_up(&waiting.client));
            gone.extend(ended);
            *clients = waiting;
        }
        self.users.retain(|(_, clients)| !clients.is_empty());
        gone
    }
}

/// Whether a client is gone, without a look at what it has sent.
pub(super) fn has_hung_up(client: &Connection) -> bool {
    poll::one(client, PollFlags::empty(), Deadline::from_raw(0)).is_ok_and(|events| !events.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(uid: u32, pid: i32) -> (WaitingClient, Connection) {
        let (client, theirs) = Connection::pair().unwrap();
        let identity = ClientIdentity { uid, gid: uid, pid };
        let device = "a".to_owned();
        (
            WaitingClient {
                client,
                device,
                identity,
            },
            theirs,
        )
    }

    fn order(clients: &mut WaitingClients) -> Vec<i32> {
        std::iter::from_fn(|| clients.pop().map(|waiting| waiting.identity.pid)).collect()
    }

    #[test]
    fn users_take_turns_however_many_clients_they_have() {
        let mut clients = WaitingClients::default();
        let mut theirs = Vec::new();
        for (uid, pid) in [(7, 1), (7, 2), (7, 3), (7, 4), (8, 5), (9, 6), (8, 7)] {
            let (waiting, other) = waiting(uid, pid);
            clients.push(waiting);
            theirs.push(other);
        }
        assert_eq!((clients.len(), clients.connections().count()), (7, 7));
        let first = clients.pop().unwrap();
        assert_eq!(first.identity.pid, 1);
        clients.put_back(first);
        assert_eq!(order(&mut clients), [1, 5, 6, 2, 7, 3, 4]);
        assert_eq!(clients.len(), 0);
    }

    #[test]
    fn those_that_hang_up_wait_no_more() {
        let mut clients = WaitingClients::default();
        let mut theirs = Vec::new();
        for (uid, pid) in [(7, 1), (7, 2), (8, 3), (9, 4)] {
            let (waiting, other) = waiting(uid, pid);
            other.send(b"hello", &[], Deadline::from_raw(0)).unwrap();
            clients.push(waiting);
            theirs.push((pid, other));
        }
        assert!(clients.take_gone().is_empty());
        theirs.retain(|(pid, _)| pid % 2 == 0);
        let gone: Vec<_> = clients.take_gone().iter().map(|gone| gone.identity.pid).collect();
        assert_eq!(gone, [1, 3]);
        assert_eq!(order(&mut clients), [2, 4]);
    }
}
