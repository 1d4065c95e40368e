//! Sequenced-packet Unix sockets: one message in, one message out, with the file descriptors that belong to
//! it.
//!
//! Contract: a message arrives whole or not at all (`SOCK_SEQPACKET`). Whatever the peer sends,
//! [`Connection::receive`] never leaves a descriptor behind: a message that is too long or carries too many
//! descriptors is an error, and every descriptor that came with it is closed. No call blocks beyond the
//! deadline it was given, but for [`Connection::discard_unread`], which closes what others have sent; no call
//! raises `SIGPIPE`, and signals do not cut a wait short. Nothing here looks at the bytes of a message.

mod error;
mod message;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::sockopt::{self, SendTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, getsockopt, listen,
    setsockopt, socket, socketpair,
};
use nix::sys::time::TimeVal;

pub use self::error::{MAX_FDS, SocketError};
pub use self::message::Received;
use self::message::{receive_message, send_message};
use super::poll;
use crate::time::{Clock, Deadline, MonotonicClock};

/// The least that a message takes up of a connection's memory: less than the kernel's own records of an empty
/// one.
pub const MESSAGE_BYTES: usize = 512;

/// How long to wait before descriptors are sent again that were too many: no call tells when others are read.
const READERS_PAUSE: Duration = Duration::from_millis(1);

/// What is attempted by [`Connection::connect`] and [`probe`].
const CONNECT: &str = "connect";

/// A socket that connections are accepted from.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Binds `path`, which must not exist, and listens there.
    ///
    /// The caller answers for the directory: it must not be writable by others.
    ///
    /// # Errors
    ///
    /// [`SocketError::PathTooLong`], or [`SocketError::Io`] (`EADDRINUSE` if the path exists).
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let (address, _directory) = address(path)?;
        let fd = new_socket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
        bind(fd.as_raw_fd(), &address).map_err(|errno| SocketError::io("bind the socket", errno))?;
        listen(&fd, Backlog::MAXCONN).map_err(|errno| SocketError::io("listen on the socket", errno))?;
        Ok(Self { fd })
    }

    /// Takes over a socket that is bound and listens already, as socket activation hands it on.
    ///
    /// # Errors
    ///
    /// [`SocketError::Io`] if the descriptor is not a listening `SOCK_SEQPACKET` Unix socket.
    pub fn from_activation(fd: OwnedFd) -> Result<Self, SocketError> {
        let kind = getsockopt(&fd, sockopt::SockType)
            .map_err(|errno| SocketError::io("read the kind of the activated socket", errno))?;
        let listens = getsockopt(&fd, sockopt::AcceptConn)
            .map_err(|errno| SocketError::io("read the state of the activated socket", errno))?;
        let is_unix = nix::sys::socket::getsockname::<UnixAddr>(fd.as_raw_fd()).is_ok();
        if kind != SockType::SeqPacket || !listens || !is_unix {
            return Err(SocketError::Io {
                action: "use the activated socket",
                source: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is not a listening Unix socket of type SOCK_SEQPACKET (ListenSequentialPacket=)",
                ),
            });
        }
        set_nonblocking(&fd)?;
        Ok(Self { fd })
    }

    /// Has the connections that are accepted from now on take no descriptors before [`Connection::take_fds`]:
    /// messages with some fail for their senders (`EPERM`), so whoever lets clients in has none of theirs to
    /// close. Returns whether the kernel can do that, as Linux can since 6.16.
    pub fn refuse_fds(&self) -> bool {
        set_takes_fds(self.fd.as_fd(), false)
    }

    /// The next connection, or `None` if nobody is waiting. Never blocks.
    ///
    /// # Errors
    ///
    /// [`SocketError::Io`]; with `EMFILE` and `ENFILE` the connection stays in the queue.
    pub fn accept(&self) -> Result<Option<Connection>, SocketError> {
        let raw = loop {
            match accept4(self.fd.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                Ok(raw) => break raw,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(errno) => return Err(SocketError::io("accept a connection", errno)),
            }
        };
        // SAFETY: accept4 has just opened this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Some(Connection { fd }))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the socket at `path` can be connected to, found out without a connection that whoever listens
/// would have to answer: the kernel tells a datagram socket that the one at `path` is of another type only
/// while that one is open, and that this user may not use it before that. Anything but certainty is `Ok`, for
/// who connects to run into.
///
/// # Errors
///
/// [`SocketError::Io`], as [`Connection::connect`] would fail: `ENOENT`, `ECONNREFUSED`, `EACCES` or `EPERM`.
pub fn probe(path: &Path) -> Result<(), SocketError> {
    let Ok((address, _directory)) = address(path) else {
        return Ok(());
    };
    let Ok(probe) = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    ) else {
        return Ok(());
    };
    match connect(probe.as_raw_fd(), &address) {
        Err(errno @ (Errno::ENOENT | Errno::ECONNREFUSED | Errno::EACCES | Errno::EPERM)) => {
            Err(SocketError::Io {
                action: CONNECT,
                source: errno.into(),
            })
        }
        _ => Ok(()),
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
}

impl Connection {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// [`SocketError::PathTooLong`], [`SocketError::TimedOut`] if the listener's queue stays full, or
    /// [`SocketError::Io`] (`ENOENT`: there is no such socket; `ECONNREFUSED`: nobody listens on it;
    /// `EACCES`: this user may not use it).
    pub fn connect(path: &Path, deadline: Deadline) -> Result<Self, SocketError> {
        let (address, _directory) = address(path)?;
        let fd = new_socket(SockFlag::SOCK_CLOEXEC)?;
        loop {
            // A full queue cannot be polled for; the kernel bounds the wait by the send time-out instead.
            // Zero would mean no limit, so the last microsecond is kept.
            let left = deadline.remaining(MonotonicClock.now());
            set_send_timeout(&fd, left.map(|left| left.max(Duration::from_micros(1))))?;
            match connect(fd.as_raw_fd(), &address) {
                Ok(()) | Err(Errno::EISCONN) => break,
                Err(Errno::EAGAIN) if deadline.is_past(MonotonicClock.now()) => {
                    return Err(SocketError::TimedOut { action: CONNECT });
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => {
                    return Err(SocketError::Io {
                        action: CONNECT,
                        source: errno.into(),
                    });
                }
            }
        }
        set_send_timeout(&fd, None)?;
        Ok(Self { fd })
    }

    /// Two ends connected with each other.
    ///
    /// # Errors
    ///
    /// [`SocketError::Io`] if the process has no descriptors left.
    pub fn pair() -> Result<(Self, Self), SocketError> {
        let (left, right) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .map_err(|errno| SocketError::io("make a pair of sockets", errno))?;
        Ok((Self { fd: left }, Self { fd: right }))
    }

    /// Takes over one end of a connection that another process handed on.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// A second handle on the same end. The connection closes when the last handle is dropped.
    ///
    /// # Errors
    ///
    /// [`SocketError::Io`] if the process has no descriptors left.
    pub fn try_clone(&self) -> Result<Self, SocketError> {
        let fd = self.fd.try_clone().map_err(|source| SocketError::Io {
            action: "duplicate the connection",
            source,
        })?;
        Ok(Self { fd })
    }

    /// Sends one message. With a deadline that has passed: now or not at all.
    ///
    /// The kernel counts the descriptors that nobody has read yet by user, and refuses more of them
    /// (`ETOOMANYREFS`). That ends when any receiver reads, so it is waited for like room in the queue.
    ///
    /// # Errors
    ///
    /// [`SocketError::TooManyFds`] beyond [`MAX_FDS`], [`SocketError::Closed`], [`SocketError::TimedOut`] if
    /// the peer does not read, or too many descriptors of this user stay unread, or [`SocketError::Io`].
    /// After an error nothing was sent.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], deadline: Deadline) -> Result<(), SocketError> {
        const ACTION: &str = "send a message";
        if fds.len() > MAX_FDS {
            return Err(SocketError::TooManyFds);
        }
        loop {
            match send_message(self.fd.as_fd(), bytes, fds) {
                Ok(()) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, deadline, ACTION)?,
                Err(Errno::ETOOMANYREFS) => pause_for_readers(deadline)?,
                Err(errno) => return Err(SocketError::io(ACTION, errno)),
            }
        }
    }

    /// Bytes of memory that messages take up which this end has sent and the peer has not read. A message
    /// takes up [`MESSAGE_BYTES`] at least; 0 if nothing is unread.
    ///
    /// # Errors
    ///
    /// [`SocketError::Io`].
    pub fn unread_bytes(&self) -> Result<usize, SocketError> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one int, which outlives the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        Errno::result(done).map_err(|errno| SocketError::io("ask what is unread", errno))?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Receives one message into `buffer`. With a deadline that has passed: only what is there already.
    ///
    /// # Errors
    ///
    /// [`SocketError::Closed`] once the peer is gone and all its messages are read;
    /// [`SocketError::TimedOut`]; [`SocketError::MessageTooLong`] and [`SocketError::TooManyFds`], after
    /// which the message and its descriptors are gone and the connection should be dropped;
    /// [`SocketError::Io`].
    pub fn receive(&self, buffer: &mut [u8], deadline: Deadline) -> Result<Received, SocketError> {
        self.receive_with(buffer, MAX_FDS, deadline)
    }

    /// The same for messages with at most so many descriptors: of one with more no more are opened in this
    /// process.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_with(
        &self,
        buffer: &mut [u8],
        most_fds: usize,
        deadline: Deadline,
    ) -> Result<Received, SocketError> {
        const ACTION: &str = "receive a message";
        let mut was_reset = false;
        loop {
            match receive_message(self.fd.as_fd(), buffer, most_fds) {
                Ok(message) => return message.checked(buffer.len()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLIN, deadline, ACTION)?,
                // A peer that closed without having read everything; what it said before is still to be had.
                Err(Errno::ECONNRESET) if !was_reset => was_reset = true,
                Err(errno) => return Err(SocketError::io(ACTION, errno)),
            }
        }
    }

    /// Has messages to this end carry descriptors, where [`Listener::refuse_fds`] has not let them.
    pub fn take_fds(&self) {
        // A kernel that cannot do it has let them all the time.
        let _ = set_takes_fds(self.fd.as_fd(), true);
    }

    /// Has nothing come to this end any more: the other one cannot send.
    pub fn stop_receiving(&self) {
        // The only possible failure is that the connection is closed already.
        let _ = nix::sys::socket::shutdown(self.fd.as_raw_fd(), nix::sys::socket::Shutdown::Read);
    }

    /// Ends the connection for both sides, whoever else holds a handle on this end.
    pub fn shutdown(&self) {
        // The only possible failure is that the connection is closed already.
        let _ = nix::sys::socket::shutdown(self.fd.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    }

    /// Ends the connection as [`Connection::shutdown`] does, and gives up what nobody has read of what came,
    /// here and now: descriptors whose closing waits for somebody keep this thread waiting, and nobody who
    /// closes this end later, such as a process that is just being started and has a copy of it.
    pub fn discard_unread(&self) {
        self.shutdown();
        // With it every message announces ancillary data, for which there is no room: by that an empty one
        // differs from the end. Without it, what comes after an empty one is closed with the descriptor.
        let _ = setsockopt(&self.fd, sockopt::PassCred, &true);
        let mut was_reset = false;
        loop {
            match receive_message(self.fd.as_fd(), &mut [0], 0) {
                Ok(message) if message.is_end() => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) if !was_reset => was_reset = true,
                Err(_) => return,
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Deadline, action: &'static str) -> Result<(), SocketError> {
        let ready =
            poll::one(&self.fd, events, deadline).map_err(|error| SocketError::io(action, error.errno))?;
        if ready.is_empty() {
            Err(SocketError::TimedOut { action })
        } else {
            Ok(())
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.fd
    }
}

/// Waits for somebody to read descriptors, until the deadline at most.
fn pause_for_readers(deadline: Deadline) -> Result<(), SocketError> {
    const ACTION: &str = "send descriptors while too many are unread";
    let now = MonotonicClock.now();
    if deadline.is_past(now) {
        return Err(SocketError::TimedOut { action: ACTION });
    }
    let pause = Deadline::after(now, READERS_PAUSE).earlier(deadline);
    poll::wait(&mut [], pause)
        .map(drop)
        .map_err(|error| SocketError::io(ACTION, error.errno))
}

/// `SO_PASSRIGHTS` of Linux 6.16, which the C library does not name yet.
const PASS_RIGHTS: libc::c_int = 83;

/// Sets whether messages to a socket, or to those accepted from it, may carry descriptors; says whether the
/// kernel can.
fn set_takes_fds(socket: BorrowedFd<'_>, takes: bool) -> bool {
    let value = libc::c_int::from(takes);
    // SAFETY: the value is an int, outlives the call, and its true size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

/// A socket's address. The directory may be as deep as it likes: a path that is too long for a socket address
/// is reached through a descriptor of its directory, which must stay open until the address has been used.
fn address(path: &Path) -> Result<(UnixAddr, Option<OwnedFd>), SocketError> {
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    if let Ok(address) = UnixAddr::new(path) {
        return Ok((address, None));
    }
    let too_long = || SocketError::PathTooLong {
        path: path.to_owned(),
    };
    let (directory, name) = path.parent().zip(path.file_name()).ok_or_else(too_long)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(directory, flags, Mode::empty())
        .map_err(|errno| SocketError::io("open the directory of the socket", errno))?;
    let short = Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name);
    Ok((UnixAddr::new(&short).map_err(|_| too_long())?, Some(directory)))
}

fn new_socket(flags: SockFlag) -> Result<OwnedFd, SocketError> {
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
        .map_err(|errno| SocketError::io("make a socket", errno))
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), SocketError> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags =
        fcntl(fd, FcntlArg::F_GETFL).map_err(|errno| SocketError::io("read the socket's flags", errno))?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(fd, FcntlArg::F_SETFL(flags)).map_err(|errno| SocketError::io("set the socket's flags", errno))?;
    Ok(())
}

/// Bounds how long a call that sends may block; `None` is for ever.
fn set_send_timeout(fd: &OwnedFd, limit: Option<Duration>) -> Result<(), SocketError> {
    let limit = limit.unwrap_or_default();
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let value = TimeVal::new(seconds, i64::from(limit.subsec_micros()));
    setsockopt(fd, SendTimeout, &value)
        .map_err(|errno| SocketError::io("bound the wait for a connection", errno))
}

#[cfg(test)]
mod tests;
