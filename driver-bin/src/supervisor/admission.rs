//! Who gets in: identity, quotas, and a polite answer to those who do not.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nnhal::wire::handshake::{self, Refusal};
use nnhal_os::peer::PeerIdentity;
use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;

use crate::settings::ClientSettings;

/// Counts the clients of each user.
#[derive(Debug, Default)]
pub(super) struct Admission {
    by_user: HashMap<u32, u32>,
    total: u32,
}

/// Why a client is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    pub(super) reason: String,
}

impl Admission {
    /// Counts one more client, if it may come in.
    pub(super) fn admit(&mut self, peer: &PeerIdentity, settings: &ClientSettings) -> Result<(), Refused> {
        let own = nix::unistd::geteuid().as_raw();
        if !settings.other_users && peer.uid != own && peer.uid != 0 {
            return Err(Refused {
                refusal: Refusal::NotAllowed,
                reason: format!("user {} may not use a driver of user {own}", peer.uid),
            });
        }
        if self.total >= settings.max {
            return Err(Refused {
                refusal: Refusal::Busy,
                reason: format!("the driver serves {} clients, as many as it may", self.total),
            });
        }
        let of_user = self.by_user.entry(peer.uid).or_default();
        if *of_user >= settings.max_per_user {
            return Err(Refused {
                refusal: Refusal::Busy,
                reason: format!("user {} has {of_user} clients, as many as one user may", peer.uid),
            });
        }
        *of_user += 1;
        self.total += 1;
        Ok(())
    }

    /// Whether this user has as many clients as one may.
    pub(super) fn has_all(&self, uid: u32, settings: &ClientSettings) -> bool {
        let count = self.by_user.get(&uid).copied().unwrap_or_default();
        count >= settings.max_per_user
    }

    /// One client of this user is gone.
    pub(super) fn leave(&mut self, uid: u32) {
        if let Some(count) = self.by_user.get_mut(&uid) {
            self.total = self.total.saturating_sub(1);
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&uid);
            }
        }
    }
}

/// Tells a client that it is not served, and why.
pub(super) fn turn_away(client: &Connection, refused: &Refused) {
    let answer = handshake::refuse(handshake::VERSIONS, refused.refusal, &refused.reason);
    // A client that does not take the answer has no use for it.
    let _ = client.send(&answer, &[], Deadline::from_raw(0));
}

/// One descriptor in reserve, so that a client can be turned away when there are no others left.
#[derive(Debug)]
pub(super) struct Reserve(Option<OwnedFd>);

impl Reserve {
    pub(super) fn new() -> Reserve {
        let mut reserve = Reserve(None);
        reserve.refill();
        reserve
    }

    /// Gives the descriptor up, so that the next call that needs one succeeds.
    pub(super) fn release(&mut self) {
        self.0 = None;
    }

    pub(super) fn refill(&mut self) {
        if self.0.is_none() {
            self.0 = std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> PeerIdentity {
        PeerIdentity {
            pid: 1,
            uid,
            gid: uid,
            pidfd: None,
        }
    }

    fn settings(max: u32, max_per_user: u32, other_users: bool) -> ClientSettings {
        ClientSettings {
            max,
            max_per_user,
            other_users,
        }
    }

    #[test]
    fn quotas_hold_for_each_user_and_for_all_until_somebody_leaves() {
        let settings = settings(3, 2, true);
        let mut admission = Admission::default();
        admission.admit(&peer(7), &settings).unwrap();
        admission.admit(&peer(7), &settings).unwrap();
        assert_eq!(
            admission.admit(&peer(7), &settings).unwrap_err().refusal,
            Refusal::Busy
        );
        admission.admit(&peer(8), &settings).unwrap();
        assert_eq!(
            admission.admit(&peer(9), &settings).unwrap_err().refusal,
            Refusal::Busy
        );
        assert!(admission.has_all(7, &settings) && !admission.has_all(8, &settings));
        admission.leave(7);
        admission.admit(&peer(9), &settings).unwrap();
        [7, 8, 9, 9].into_iter().for_each(|uid| admission.leave(uid));
        assert_eq!((admission.total, admission.by_user.len()), (0, 0));
    }

    #[test]
    fn other_users_are_refused_unless_they_are_let_in() {
        let own = nix::unistd::geteuid().as_raw();
        let other = own + 1;
        let mut admission = Admission::default();
        admission.admit(&peer(own), &settings(9, 9, false)).unwrap();
        admission.admit(&peer(0), &settings(9, 9, false)).unwrap();
        let refused = admission.admit(&peer(other), &settings(9, 9, false)).unwrap_err();
        assert_eq!(refused.refusal, Refusal::NotAllowed);
        admission.admit(&peer(other), &settings(9, 9, true)).unwrap();
    }
}
