//! Who is at the other end of a unix socket.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use super::SysError;

/// The process at the other end of a connected unix socket, as the kernel recorded it when the connection was made.
///
/// The ids are those of the moment of `connect` (or `socketpair`), whoever holds the socket now. A pid alone can be
/// reused after that process is gone; the pid descriptor cannot, so it is the identity to wait on and to compare.
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

/// The user id by which the kernel names users that have none here: in a user namespace several may be behind it.
#[must_use]
pub fn overflow_uid() -> u32 {
    const USUAL: u32 = 65_534;
    let named = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    named
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(USUAL)
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
    fn no_socket_gives_the_call_and_the_reason() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(identify(&file).unwrap_err().errno, Errno::ENOTSOCK);
    }
}
