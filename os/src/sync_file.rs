//! Kernel fences (`sync_file` descriptors of display, GPU and DMA drivers).

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

use super::SysError;

/// `struct sync_file_info` of the kernel's `linux/sync_file.h`.
#[repr(C)]
struct SyncFileInfo {
    name: [u8; 32],
    status: i32,
    flags: u32,
    num_fences: u32,
    pad: u32,
    sync_fence_info: u64,
}

/// `_IOWR('>', 4, struct sync_file_info)`.
const SYNC_IOC_FILE_INFO: u32 =
    (3 << 30) | ((size_of::<SyncFileInfo>() as u32) << 16) | ((b'>' as u32) << 8) | 4;

/// State of a `sync_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFileStatus {
    /// Not signalled yet.
    Active,
    /// Signalled without error.
    Signalled,
    /// Signalled with this error.
    Failed(Errno),
}

/// The state of a `sync_file`; `None` if `fd` is none.
pub fn status(fd: impl AsFd) -> Result<Option<SyncFileStatus>, SysError> {
    // With num_fences 0 the kernel writes the summary only and follows no pointer.
    let mut info = SyncFileInfo {
        name: [0; 32],
        status: 0,
        flags: 0,
        num_fences: 0,
        pad: 0,
        sync_fence_info: 0,
    };
    // SAFETY: `info` has the layout this request number names (its size is part of the number) and lives for
    // the call; drivers of other descriptors refuse the number.
    let done = unsafe {
        libc::ioctl(
            fd.as_fd().as_raw_fd(),
            SYNC_IOC_FILE_INFO as libc::Ioctl,
            &mut info,
        )
    };
    if done < 0 {
        return match Errno::last() {
            Errno::ENOTTY | Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP => Ok(None),
            errno => Err(SysError {
                call: "ioctl(SYNC_IOC_FILE_INFO)",
                errno,
            }),
        };
    }
    Ok(Some(match info.status {
        0 => SyncFileStatus::Active,
        1.. => SyncFileStatus::Signalled,
        error => SyncFileStatus::Failed(Errno::from_raw(error.saturating_neg())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eventfd_is_no_sync_file() {
        let event = crate::eventfd::create().unwrap();
        assert_eq!(status(&event).unwrap(), None);
    }
}
