//! Who gets in: identity, quotas, and a polite answer to those who do not.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nnhal::wire::handshake::{self, Refusal};
use nnhal_os::peer::PeerIdentity;
use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;

use super::system_limits::SystemLimits;
use crate::settings::Settings;
use crate::usage::{THREADS_OF_WORKER, most_rows};

/// Descriptors that a client costs the supervisor at most: its connection, three of its worker, one while it
/// is let in, and one for the thread that listens to requests for weights.
const DESCRIPTORS_OF_CLIENT: u64 = 6;

/// Descriptors of the supervisor's own.
const OWN_DESCRIPTORS: u64 = 64;

/// Of so many places at least one stays for users who have no client, if others may connect.
const LEAST_PLACES_FOR_RESERVE: u32 = 4;

/// How many clients there may be, and what says so.
#[derive(Clone, Debug)]
struct Bound {
    most: u32,
    because: String,
}

impl Bound {
    fn new(most: u64, because: impl Into<String>) -> Bound {
        Bound {
            most: u32::try_from(most).unwrap_or(u32::MAX),
            because: because.into(),
        }
    }

    fn smaller(self, other: Bound) -> Bound {
        if other.most < self.most { other } else { self }
    }
}

/// How many clients may come in.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    all: Bound,
    of_user: Bound,
    /// The last places, which only users without a client may have.
    reserved: u32,
    other_users: bool,
}

impl Bounds {
    /// What settings and system allow.
    pub(super) fn new(settings: &Settings, system: SystemLimits) -> Bounds {
        let clients = &settings.clients;
        let descriptors = system.descriptors.saturating_sub(OWN_DESCRIPTORS) / DESCRIPTORS_OF_CLIENT;
        let all = Bound::new(clients.max.into(), "the driver's setting clients.max").smaller(Bound::new(
            descriptors.max(1),
            format!("the driver's {} descriptors (RLIMIT_NOFILE)", system.descriptors),
        ));
        let threads = system.threads_of_user(&settings.user_limits);
        let of_user = Bound::new(
            clients.max_per_user.into(),
            "the driver's setting clients.max_per_user",
        )
        .smaller(Bound::new(most_rows().into(), "no setting raises that"))
        .smaller(Bound::new(
            u64::from(threads / THREADS_OF_WORKER).max(1),
            format!(
                "each needs {THREADS_OF_WORKER} of the user's {threads} threads, the driver's setting \
                     user_limits.threads"
            ),
        ));
        Bounds {
            reserved: if clients.other_users {
                clients.reserved.min(all.most / LEAST_PLACES_FOR_RESERVE)
            } else {
                0
            },
            all,
            of_user,
            other_users: clients.other_users,
        }
    }
}

/// Counts the clients of each user.
#[derive(Debug)]
pub(super) struct Admission {
    by_user: HashMap<u32, u32>,
    total: u32,
    bounds: Bounds,
}

/// Why a client is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    pub(super) reason: String,
}

impl Admission {
    pub(super) fn new(bounds: Bounds) -> Admission {
        Admission {
            by_user: HashMap::new(),
            total: 0,
            bounds,
        }
    }

    /// The settings have changed. Who is in stays.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Counts one more client, if it may come in.
    pub(super) fn admit(&mut self, peer: &PeerIdentity) -> Result<(), Refused> {
        let own = nix::unistd::geteuid().as_raw();
        let uid = peer.uid;
        if !self.bounds.other_users && uid != own && uid != 0 {
            return Err(Refused {
                refusal: Refusal::NotAllowed,
                reason: format!(
                    "user {uid} may not use a driver of user {own} (the driver's setting clients.other_users)"
                ),
            });
        }
        let busy = |reason| Refused {
            refusal: Refusal::Busy,
            reason,
        };
        let Bounds {
            all,
            of_user,
            reserved,
            ..
        } = &self.bounds;
        let total = self.total;
        if total >= all.most {
            return Err(busy(format!(
                "the driver serves {total} clients, as many as it may: {}",
                all.because
            )));
        }
        let count = self.count_of(uid);
        if count >= of_user.most {
            return Err(busy(format!(
                "user {uid} has {count} clients, as many as one user may: {}",
                of_user.because
            )));
        }
        if count > 0 && total >= all.most - reserved {
            return Err(busy(format!(
                "the driver serves {total} clients, and keeps the last {reserved} of {} places for users who have \
                 none: the driver's settings clients.max and clients.reserved",
                all.most
            )));
        }
        *self.by_user.entry(uid).or_default() += 1;
        self.total += 1;
        Ok(())
    }

    fn count_of(&self, uid: u32) -> u32 {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    /// Whether this user has as many clients as one may.
    pub(super) fn has_all(&self, uid: u32) -> bool {
        self.count_of(uid) >= self.bounds.of_user.most
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

    const AMPLE: SystemLimits = SystemLimits {
        descriptors: 1 << 20,
        threads: 1 << 20,
    };

    fn peer(uid: u32) -> PeerIdentity {
        PeerIdentity {
            pid: 1,
            uid,
            gid: uid,
            pidfd: None,
        }
    }

    fn settings(max: u32, max_per_user: u32, other_users: bool) -> Settings {
        let mut settings = Settings::default();
        settings.clients.max = max;
        settings.clients.max_per_user = max_per_user;
        settings.clients.other_users = other_users;
        settings
    }

    fn admission(settings: &Settings) -> Admission {
        Admission::new(Bounds::new(settings, AMPLE))
    }

    /// Why a client of this user is not let in.
    fn refusal(admission: &mut Admission, uid: u32) -> String {
        let refused = admission.admit(&peer(uid)).unwrap_err();
        assert_eq!(refused.refusal, Refusal::Busy);
        refused.reason
    }

    #[test]
    fn quotas_hold_for_each_user_and_for_all_until_somebody_leaves() {
        let mut admission = admission(&settings(3, 2, true));
        admission.admit(&peer(7)).unwrap();
        admission.admit(&peer(7)).unwrap();
        assert_eq!(
            refusal(&mut admission, 7),
            "user 7 has 2 clients, as many as one user may: the driver's setting clients.max_per_user"
        );
        admission.admit(&peer(8)).unwrap();
        assert_eq!(
            refusal(&mut admission, 9),
            "the driver serves 3 clients, as many as it may: the driver's setting clients.max"
        );
        assert!(admission.has_all(7) && !admission.has_all(8));
        admission.leave(7);
        admission.admit(&peer(9)).unwrap();
        [7, 8, 9, 9].into_iter().for_each(|uid| admission.leave(uid));
        assert_eq!((admission.total, admission.by_user.len()), (0, 0));
    }

    #[test]
    fn last_places_are_for_users_who_have_none() {
        let mut settings = settings(20, 100, true);
        settings.clients.reserved = 3;
        let mut admission = admission(&settings);
        assert!((0..17).all(|_| admission.admit(&peer(7)).is_ok()));
        assert_eq!(
            refusal(&mut admission, 7),
            "the driver serves 17 clients, and keeps the last 3 of 20 places for users who have none: the driver's \
             settings clients.max and clients.reserved"
        );
        admission.admit(&peer(8)).unwrap();
        assert!(refusal(&mut admission, 8).contains("clients.reserved"));
        (9..11).for_each(|uid| admission.admit(&peer(uid)).unwrap());
        assert!(refusal(&mut admission, 11).contains("clients.max"));
        // Nobody else can come: there is nobody to keep places for.
        settings.clients.other_users = false;
        let own = nix::unistd::geteuid().as_raw();
        let mut admission = Admission::new(Bounds::new(&settings, AMPLE));
        assert!((0..20).all(|_| admission.admit(&peer(own)).is_ok()));
    }

    #[test]
    fn no_more_clients_come_in_than_there_are_descriptors_and_threads_for() {
        let settings = settings(1000, 1000, true);
        let few = SystemLimits {
            descriptors: OWN_DESCRIPTORS + 3 * DESCRIPTORS_OF_CLIENT,
            ..AMPLE
        };
        let mut admission = Admission::new(Bounds::new(&settings, few));
        (7..10).for_each(|uid| admission.admit(&peer(uid)).unwrap());
        assert!(refusal(&mut admission, 10).contains("82 descriptors (RLIMIT_NOFILE)"));
        let few = SystemLimits {
            threads: 4 * u64::from(THREADS_OF_WORKER),
            ..AMPLE
        };
        let mut admission = Admission::new(Bounds::new(&settings, few));
        assert!((0..2).all(|_| admission.admit(&peer(7)).is_ok()));
        let reason = refusal(&mut admission, 7);
        assert!(
            reason.contains("each needs 4 of the user's 8 threads, the driver's setting user_limits.threads"),
            "{reason}"
        );
        admission.admit(&peer(8)).unwrap();
    }

    #[test]
    fn other_users_are_refused_unless_they_are_let_in() {
        let own = nix::unistd::geteuid().as_raw();
        let other = own + 1;
        let mut admission = admission(&settings(9, 9, false));
        admission.admit(&peer(own)).unwrap();
        admission.admit(&peer(0)).unwrap();
        let refused = admission.admit(&peer(other)).unwrap_err();
        assert_eq!(refused.refusal, Refusal::NotAllowed);
        admission.set_bounds(Bounds::new(&settings(9, 9, true), AMPLE));
        admission.admit(&peer(other)).unwrap();
    }
}
