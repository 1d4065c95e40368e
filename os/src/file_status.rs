//! What the kernel says of the file of a descriptor.
//!
//! By one system call on every system, which a worker's list needs to name: C libraries differ in which one
//! their `fstat` makes.

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
pub fn type_of(fd: impl AsFd) -> Result<SFlag, SysError> {
    let status = statx(&fd, libc::AT_STATX_DONT_SYNC, libc::STATX_TYPE)?;
    Ok(SFlag::from_bits_truncate(
        u32::from(status.stx_mode) & SFlag::S_IFMT.bits(),
    ))
}

/// The size of a file in bytes. Whoever serves the file may be asked.
///
/// # Errors
/// The kernel's reason.
pub fn size_of(fd: impl AsFd) -> Result<u64, SysError> {
    Ok(statx(&fd, libc::AT_STATX_SYNC_AS_STAT, libc::STATX_SIZE)?.stx_size)
}

fn statx(fd: &impl AsFd, sync: i32, mask: u32) -> Result<libc::statx, SysError> {
    let mut status = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the path is a string that ends, and the kernel writes at most a `statx` into `status`.
    let result = unsafe {
        libc::statx(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | sync,
            mask,
            status.as_mut_ptr(),
        )
    };
    Errno::result(result).map_err(SysError::of("statx"))?;
    // SAFETY: the call has succeeded, so the kernel has filled it.
    Ok(unsafe { status.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_directories_devices_and_what_is_none_of_them_are_told_apart() {
        assert_eq!(type_of(tempfile::tempfile().unwrap()).unwrap(), SFlag::S_IFREG);
        assert_eq!(type_of(File::open("/").unwrap()).unwrap(), SFlag::S_IFDIR);
        assert_eq!(type_of(File::open("/dev/null").unwrap()).unwrap(), SFlag::S_IFCHR);
        assert_eq!(type_of(std::io::pipe().unwrap().0).unwrap(), SFlag::S_IFIFO);
        assert_eq!(
            type_of(crate::eventfd::create().unwrap()).unwrap(),
            SFlag::empty()
        );
    }

    #[test]
    fn sizes_are_those_of_the_files() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(size_of(&file).unwrap(), 0);
        file.set_len(12_345).unwrap();
        assert_eq!(size_of(&file).unwrap(), 12_345);
    }
}
