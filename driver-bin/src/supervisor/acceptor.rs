//! Letting clients in.

use std::time::Duration;

use nnhal::diag::tags;
use nnhal::wire::handshake::Refusal;
use nnhal_os::peer;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, MonotonicClock};

use super::admission::{Refused, turn_away};
use super::options::SupervisorError;
use super::pending::{PendingConnection, TIMEOUT};
use super::state::{Phase, Supervisor};
use super::waiting::{WaitingClient, has_hung_up};
use super::workers::Service;
use crate::link::ClientIdentity;

/// How many connections are accepted before anything else is looked at.
const ACCEPTS_AT_ONCE: usize = 64;

/// How long to wait after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Lets in who has connected to a device's socket.
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Phase::Serving { published } = &self.phase else {
                return;
            };
            let Some(published) = published.get(index) else {
                return;
            };
            let device = published.device().to_owned();
            match published.listener.accept() {
                Ok(Some(client)) => self.welcome(client, device),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(target: tags::DRIVER, %error, "cannot accept");
                    self.reserve.release();
                    let refused = Refused {
                        refusal: Refusal::Busy,
                        reason: "the driver has no descriptors left".to_owned(),
                    };
                    match published.listener.accept() {
                        Ok(Some(client)) => turn_away(&client, &refused),
                        // Until a descriptor is free nothing can be done; trying on would only burn time.
                        _ => self.accept_again = Some(MonotonicClock.now().saturating_add(ACCEPT_PAUSE)),
                    }
                    self.reserve.refill();
                    return;
                }
            }
        }
    }

    /// Lets a client in, or turns it away.
    fn welcome(&mut self, client: Connection, device: String) {
        // Before anything is done for it: connections can be made and ended faster than they are served.
        if has_hung_up(&client) {
            return;
        }
        let peer = match peer::identify(&client) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(target: tags::DRIVER, %error, "cannot tell who connects");
                return;
            }
        };
        let connection = PendingConnection { client, device, peer };
        match self.admit(&connection) {
            Ok(()) => self.let_in(connection),
            // It may know of an end that has not been heard of here.
            Err(refused) if refused.refusal == Refusal::Busy => {
                if let Err(connection) = self.pending.add(connection) {
                    refuse(&connection, &refused);
                }
            }
            Err(refused) => refuse(&connection, &refused),
        }
    }

    fn admit(&mut self, connection: &PendingConnection) -> Result<(), Refused> {
        self.admission.admit(&connection.peer)
    }

    /// Whether a client that is refused now may have a place soon: somebody goes, of the same user if that
    /// one has as many as it may.
    fn may_become_free(&self, connection: &PendingConnection) -> bool {
        let now = MonotonicClock.now();
        let uid = connection.peer.uid;
        let is_full = self.admission.has_all(uid);
        let is_just_going = |service: &Service| {
            let helps = !is_full || service.uid == uid;
            let has_just = |since| now.saturating_since(since) < TIMEOUT;
            helps && service.hung_up.is_some_and(has_just)
        };
        self.reaper.is_anybody_leaving(TIMEOUT, is_full.then_some(uid))
            || self.workers.serving().any(|(_, service)| is_just_going(service))
    }

    /// Lets in those who have waited for a place and have one now, and turns away those who have waited for
    /// long enough.
    pub(super) fn admit_pending(&mut self) -> Result<(), SupervisorError> {
        let pending = self.pending.take();
        if pending.is_empty() {
            return Ok(());
        }
        self.reap()?;
        self.let_go();
        for (connection, until) in pending {
            if has_hung_up(&connection.client) {
                continue;
            }
            match self.admit(&connection) {
                Ok(()) => self.let_in(connection),
                Err(_) if !until.is_past(MonotonicClock.now()) && self.may_become_free(&connection) => {
                    self.pending.keep(connection, until);
                }
                Err(refused) => refuse(&connection, &refused),
            }
        }
        Ok(())
    }

    /// Has a client that is admitted wait for a worker.
    fn let_in(&mut self, connection: PendingConnection) {
        let PendingConnection { client, device, peer } = connection;
        tracing::debug!(target: tags::DRIVER, uid = peer.uid, pid = peer.pid, device, "client");
        let identity = ClientIdentity {
            uid: peer.uid,
            gid: peer.gid,
            pid: peer.pid,
        };
        self.waiting.push(WaitingClient {
            client,
            device,
            identity,
        });
    }

    /// Turns away all who have waited for a place.
    pub(super) fn turn_away_pending(&mut self, refused: &Refused) {
        for (connection, _) in self.pending.take() {
            refuse(&connection, refused);
        }
    }
}

/// Turns away a client that is not admitted.
fn refuse(connection: &PendingConnection, refused: &Refused) {
    tracing::info!(
        target: tags::DRIVER, uid = connection.peer.uid,
        pid = connection.peer.pid,
        reason = refused.reason,
        "client turned away"
    );
    turn_away(&connection.client, refused);
}
