//! What kind of file a descriptor is of.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::stat::SFlag;

use super::SysError;

/// The type in a file's mode; empty for what the kernel gives none, such as an eventfd.
///
/// What the kernel knows is told, and nobody is asked: whoever serves the file, such as a daemon of FUSE, may
/// take for ever to answer.
///
/// # Errors
/// The kernel's reason.
pub fn of(fd: impl AsFd) -> Result<SFlag, SysError> {
    let mut status = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the path is a string that ends, and the kernel writes at most a `statx` into `status`.
    let result = unsafe {
        libc::statx(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            status.as_mut_ptr(),
        )
    };
    Errno::result(result).map_err(SysError::of("statx"))?;
    // SAFETY: the call has succeeded, so the kernel has filled it.
    let status = unsafe { status.assume_init() };
    Ok(SFlag::from_bits_truncate(
        u32::from(status.stx_mode) & SFlag::S_IFMT.bits(),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_directories_devices_and_what_is_none_of_them_are_told_apart() {
        assert_eq!(of(tempfile::tempfile().unwrap()).unwrap(), SFlag::S_IFREG);
        assert_eq!(of(File::open("/").unwrap()).unwrap(), SFlag::S_IFDIR);
        assert_eq!(of(File::open("/dev/null").unwrap()).unwrap(), SFlag::S_IFCHR);
        assert_eq!(of(std::io::pipe().unwrap().0).unwrap(), SFlag::S_IFIFO);
        assert_eq!(of(crate::eventfd::create().unwrap()).unwrap(), SFlag::empty());
    }
}
