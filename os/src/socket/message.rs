//! One message by one system call, with the descriptors in its ancillary data.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::error::{MAX_FDS, SocketError};

/// One message that was received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes of the buffer it fills.
    pub length: usize,
    /// The descriptors that came with it, in the sender's order, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// Bytes of ancillary data that [`MAX_FDS`] descriptors occupy, in units of `u64` so that the buffer is
/// aligned.
const CONTROL_WORDS: usize =
    (size_of::<libc::cmsghdr>() + MAX_FDS * size_of::<RawFd>()).div_ceil(size_of::<u64>());

/// Space for ancillary data, aligned as its headers must be.
struct ControlBuffer([u64; CONTROL_WORDS]);

impl ControlBuffer {
    fn new() -> Self {
        Self([0; CONTROL_WORDS])
    }
}

/// Sends bytes with at most [`MAX_FDS`] descriptors, now or not at all.
pub(super) fn send_message(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut control = ControlBuffer::new();
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        attach(&mut header, &mut control, fds);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points at a vector, bytes and control data that outlive the call, with their true
    // lengths; sending only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    Errno::result(sent).map(drop)
}

/// Puts `fds`, at most [`MAX_FDS`], into the control data and the control data into the header.
fn attach(header: &mut libc::msghdr, control: &mut ControlBuffer, fds: &[BorrowedFd<'_>]) {
    let payload = u32::try_from(size_of_val(fds)).unwrap_or(u32::MAX);
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as usize;
    debug_assert!(header.msg_controllen <= size_of_val(&control.0));
    // SAFETY: msg_control and msg_controllen describe the aligned buffer above, which holds at least one
    // header.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: CMSG_LEN only computes.
    let length = unsafe { libc::CMSG_LEN(payload) } as usize;
    // SAFETY: `first` points at the start of the control buffer, which is aligned for and larger than a
    // header.
    unsafe {
        first.write(libc::cmsghdr {
            cmsg_len: length,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        })
    };
    // SAFETY: the data of the one header starts right behind it, inside the buffer.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: BorrowedFd is a transparent RawFd; the caller bounds the count, so source and destination both
    // hold `size_of_val(fds)` bytes, and they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), data, size_of_val(fds)) };
}

/// A message as the kernel delivered it, before its flags are looked at. Owns its descriptors, so that
/// dropping it closes them.
pub(super) struct RawMessage {
    length: usize,
    flags: i32,
    fds: Vec<OwnedFd>,
}

impl RawMessage {
    /// Whether it is the end of the connection instead, on a socket that passes credentials and has no room
    /// for them.
    pub(super) fn is_end(&self) -> bool {
        self.length == 0 && self.flags & libc::MSG_CTRUNC == 0
    }

    /// The message, if it is whole.
    pub(super) fn checked(self, limit: usize) -> Result<Received, SocketError> {
        if self.flags & libc::MSG_CTRUNC != 0 {
            return Err(SocketError::TooManyFds);
        }
        if self.flags & libc::MSG_TRUNC != 0 {
            return Err(SocketError::MessageTooLong { limit });
        }
        // An empty packet cannot be told from the end of the stream, and no protocol here sends one.
        if self.length == 0 {
            return Err(SocketError::Closed);
        }
        Ok(Received {
            length: self.length,
            fds: self.fds,
        })
    }
}

/// Takes the next message, if there is one, with at most so many descriptors, or [`MAX_FDS`].
pub(super) fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    most_fds: usize,
) -> Result<RawMessage, Errno> {
    let mut control = ControlBuffer::new();
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE((most_fds.min(MAX_FDS) * size_of::<RawFd>()) as libc::c_uint) };
    header.msg_controllen = (space as usize).min(size_of_val(&control.0));
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points at a vector, a buffer and control space that outlive the call, exclusively
    // borrowed and with their true lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let length = Errno::result(length)?;
    Ok(RawMessage {
        length: usize::try_from(length).unwrap_or(0),
        flags: header.msg_flags,
        fds: take_fds(&header),
    })
}

/// Takes ownership of every descriptor that the kernel installed for this message.
fn take_fds(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in msg_control and msg_controllen of a header that described our buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a pointer to a whole header inside the buffer.
    while let Some(control) = unsafe { next.as_ref() } {
        if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: CMSG_LEN only computes.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = control.cmsg_len.saturating_sub(head) / size_of::<RawFd>();
            // SAFETY: the data follows the header inside the buffer.
            let data = unsafe { libc::CMSG_DATA(next) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel wrote `count` descriptors there, and `index` is below that.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; the data need not be aligned.
                let raw = unsafe { place.read_unaligned() };
                // SAFETY: the kernel has just opened this descriptor for us alone.
                fds.push(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
        // SAFETY: `next` came from CMSG_FIRSTHDR or CMSG_NXTHDR of the same message header.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    fds
}
