//! Anonymous memory files and their seals.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::SysError;

/// Creates an empty memory file that can be sealed, cannot be executed and closes on exec. `name` shows in
/// `/proc/PID/maps` only.
///
/// Kernels before 6.3 do not know the no-execution seal; there the file is created without it.
pub fn create(name: &CStr) -> Result<OwnedFd, SysError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let no_exec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    match memfd_create(name, flags | no_exec) {
        Err(Errno::EINVAL) => memfd_create(name, flags),
        other => other,
    }
    .map_err(SysError::of("memfd_create"))
}

/// Sets the size of a file in bytes.
pub fn set_size(fd: impl AsFd, size: u64) -> Result<(), SysError> {
    let size = i64::try_from(size).map_err(|_| SysError {
        call: "ftruncate",
        errno: Errno::EFBIG,
    })?;
    nix::unistd::ftruncate(fd, size).map_err(SysError::of("ftruncate"))
}

/// Adds seals, which nobody can take away again.
pub fn seal(fd: impl AsFd, seals: SealFlag) -> Result<(), SysError> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(seals))
        .map(drop)
        .map_err(SysError::of("fcntl(F_ADD_SEALS)"))
}

/// The seals of a file; none for a file of a kind that has no seals.
pub fn seals(fd: impl AsFd) -> Result<SealFlag, SysError> {
    match fcntl(fd, FcntlArg::F_GET_SEALS) {
        Ok(bits) => Ok(SealFlag::from_bits_retain(bits)),
        Err(Errno::EINVAL) => Ok(SealFlag::empty()),
        Err(errno) => Err(SysError {
            call: "fcntl(F_GET_SEALS)",
            errno,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_sealed_file_refuses_to_shrink() {
        let file = create(c"nnhal-test").unwrap();
        set_size(&file, 4096).unwrap();
        seal(&file, SealFlag::F_SEAL_SHRINK).unwrap();
        assert!(seals(&file).unwrap().contains(SealFlag::F_SEAL_SHRINK));
        assert_eq!(set_size(&file, 0).unwrap_err().errno, Errno::EPERM);
    }

    #[test]
    fn file_without_seals_has_none() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(seals(&file).unwrap(), SealFlag::empty());
    }
}
