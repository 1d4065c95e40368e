//! Who is at the other end of a unix socket.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use super::SysError;

/// The process at the other end of a connected unix socket, as the kernel recorded it when the connection was
/// made.
///
/// The ids are those of the moment of `connect` (or `socketpair`), whoever holds the socket now. A pid alone
/// can be reused after that process is gone; the pid descriptor cannot, so it is the identity to wait on and
/// to compare.
#[derive(Debug)]
pub struct PeerIdentity {
    /// Process id at connect time.
    pub pid: i32,
    /// Effective user id at connect time.
    pub uid: u32,
    /// Effective group id at connect time.
    pub gid: u32,
    /// The process itself; `None` on kernels before 6.5 or if it had ended before it was asked for.
    pub pidfd: Option<OwnedFd>,
}

/// Asks the kernel who is at the other end of `socket`.
pub fn identify(socket: impl AsFd) -> Result<PeerIdentity, SysError> {
    let socket = socket.as_fd();
    let credentials =
        getsockopt(&socket, sockopt::PeerCredentials).map_err(SysError::of("getsockopt(SO_PEERCRED)"))?;
    let pidfd = match getsockopt(&socket, sockopt::PeerPidfd) {
        Ok(pidfd) => Some(pidfd),
        // ENOPROTOOPT: an old kernel. ESRCH and ENODATA: the peer is gone. EINVAL: reaped, on newer kernels.
        Err(Errno::ENOPROTOOPT | Errno::ESRCH | Errno::ENODATA | Errno::EINVAL) => None,
        Err(errno) => {
            return Err(SysError {
                call: "getsockopt(SO_PEERPIDFD)",
                errno,
            });
        }
    };
    if let Some(pidfd) = &pidfd {
        super::fds::set_inheritable(pidfd, false)?;
    }
    Ok(PeerIdentity {
        pid: credentials.pid(),
        uid: credentials.uid(),
        gid: credentials.gid(),
        pidfd,
    })
}

/// The user id by which the kernel names users that have none here: in a user namespace several may be behind
/// it. `None` where every user has a number, as in the first namespace: there it is that of one user like any
/// other.
#[must_use]
pub fn unnumbered_uid() -> Option<u32> {
    const USUAL: u32 = 65_534;
    if std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_all_numbers(&map)) {
        return None;
    }
    let named = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let named = named.ok().and_then(|text| text.trim().parse().ok());
    Some(named.unwrap_or(USUAL))
}

/// Whether these ranges, which the kernel keeps apart, have as many numbers as there are users.
fn has_all_numbers(uid_map: &str) -> bool {
    let length = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    // The last number stands for none.
    uid_map.lines().filter_map(length).sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn socket_pair_identifies_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = identify(&one).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
    }

    #[test]
    fn users_without_a_number_are_in_namespaces_that_lack_some() {
        assert!(has_all_numbers("         0          0 4294967295\n"));
        assert!(has_all_numbers("0 1000 1\n1 100000 4294967294\n"));
        for map in [
            "",
            "0 1000 1\n",
            "0 100000 65536\n",
            "0 1000 1\n1 100000 4294967293\n",
            "nonsense",
        ] {
            assert!(!has_all_numbers(map), "{map:?}");
        }
    }

    #[test]
    fn no_socket_gives_the_call_and_the_reason() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(identify(&file).unwrap_err().errno, Errno::ENOTSOCK);
    }
}
