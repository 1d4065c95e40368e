//! Which versions of the protocol there are.

/// A range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The newest one.
    pub newest: u32,
    /// The oldest one.
    pub oldest: u32,
}

impl Versions {
    /// The newest version that both ranges have, if any.
    #[must_use]
    pub fn agree(self, other: Versions) -> Option<u32> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest && version >= other.oldest).then_some(version)
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.newest == self.oldest {
            write!(f, "{}", self.newest)
        } else {
            write!(f, "{} to {}", self.oldest, self.newest)
        }
    }
}

/// The versions of the protocol that this release speaks: the newest and the one before, so that a client and
/// a driver one version apart work together. How messages grow is said in docs/protocol.md.
///
/// | version | new |
/// |--:|---|
/// | 1 | the protocol |
/// | 2 | [`super::Call::StartTrace`] |
/// | 3 | [`super::Call::CancelBurst`], [`super::Call::GetBurstFence`] and fenced requests of bursts, devices of NNAPI's feature levels 6 and 7 |
pub const VERSIONS: Versions = Versions { newest: 3, oldest: 2 };

const _: () = assert!(VERSIONS.newest - VERSIONS.oldest <= 1);

/// From which version on a client can be told of a device that is newer than HAL 1.3.
pub(super) const LEVELS_SINCE: u32 = 3;

/// From which version on a worker can be asked to end an execution of a burst early.
pub const CANCEL_BURST_SINCE: u32 = 3;

/// From which version on the requests of a burst can be fenced executions.
pub const FENCED_BURSTS_SINCE: u32 = 3;
