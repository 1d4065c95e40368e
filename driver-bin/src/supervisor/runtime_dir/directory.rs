//! The directory itself: whose it is, who may look into it, and when it goes.

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, lstat};
use nnhal::diag::tags;
use nnhal::wire::directory;

use super::super::keeper::Keeper;
use super::error::RuntimeDirError;

/// Which users a driver serves beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::supervisor) enum Others {
    /// None.
    KeptOut,
    /// All.
    LetIn,
}

/// A runtime directory that has been found fit. Dropping it removes it if it is empty and there for this
/// driver alone.
#[derive(Debug)]
pub(in crate::supervisor) struct RuntimeDir {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// Whether it was made here.
    is_made: bool,
    /// Whether the driver's owner made it for this driver alone.
    ends_with_driver: bool,
    /// Who removes it, once this thread cannot.
    keeper: Option<Keeper>,
}

impl RuntimeDir {
    /// Opens the directory, making it if needed. One that is made can be looked into by other users if they
    /// are let in, or if all of them look there.
    pub(super) fn open(path: &Path, others: Others) -> Result<RuntimeDir, RuntimeDirError> {
        let failed = |source| RuntimeDirError::Open {
            path: path.to_owned(),
            source,
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let (fd, is_made) = loop {
            let is_made = match std::fs::DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => true,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(failed(error)),
            };
            match open(path, flags, Mode::empty()) {
                Ok(fd) => break (fd, is_made),
                // Another driver took away what was there.
                Err(Errno::ENOENT) if !is_made => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        };
        let directory = RuntimeDir {
            path: path.to_owned(),
            fd,
            is_made,
            ends_with_driver: false,
            keeper: None,
        };
        directory.let_look(others)?;
        directory.check(others)?;
        Ok(directory)
    }

    /// Makes the directory one that other users can look into, if they shall and it was made here.
    pub(in crate::supervisor) fn let_look(&self, others: Others) -> Result<(), RuntimeDirError> {
        let mode = mode_of_directory(&self.path, others);
        if !self.is_made || mode == 0o700 {
            return Ok(());
        }
        // Whatever the umask is.
        fchmod(&self.fd, Mode::from_bits_truncate(mode)).map_err(|errno| self.unusable(errno))
    }

    fn check(&self, others: Others) -> Result<(), RuntimeDirError> {
        let stat = fstat(&self.fd).map_err(|errno| self.unusable(errno))?;
        let user = nix::unistd::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(RuntimeDirError::ForeignOwner {
                path: self.path.clone(),
                owner: stat.st_uid,
                user,
            });
        }
        let mode = stat.st_mode & 0o7777;
        if mode & 0o022 != 0 {
            return Err(RuntimeDirError::TooOpen {
                path: self.path.clone(),
                mode,
            });
        }
        if others == Others::LetIn && mode & 0o050 != 0o050 && mode & 0o005 != 0o005 {
            tracing::warn!(
                target: tags::DRIVER, directory = %self.path.display(), mode = format!("{mode:04o}"),
                "other users may connect, but cannot find the sockets in a directory of this mode; chmod 755 lets them"
            );
        }
        self.check_writable()
    }

    /// Says so before anything is started, rather than at the first file.
    fn check_writable(&self) -> Result<(), RuntimeDirError> {
        use nix::unistd::{AccessFlags, faccessat};
        faccessat(
            &self.fd,
            ".",
            AccessFlags::W_OK | AccessFlags::X_OK,
            AtFlags::AT_EACCESS,
        )
        .map_err(|errno| self.unusable(errno))
    }

    fn unusable(&self, errno: Errno) -> RuntimeDirError {
        RuntimeDirError::Open {
            path: self.path.clone(),
            source: errno.into(),
        }
    }

    /// Whether the path leads to it no more.
    pub(super) fn is_gone(&self) -> bool {
        let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
        let here = fstat(&self.fd).map(identity);
        here.is_ok() && here != lstat(&self.path).map(identity)
    }

    /// Has it removed even if it was there before: by the driver's owner, who made it for this driver alone
    /// and may be dead by then.
    pub(in crate::supervisor) fn end_with_driver(&mut self) {
        self.ends_with_driver = true;
    }

    /// Has somebody else remove it in the end.
    pub(in crate::supervisor) fn remove_by(&mut self, keeper: Keeper) {
        self.keeper = Some(keeper);
    }

    /// The directory's path.
    #[must_use]
    pub(in crate::supervisor) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        // One that took its place is somebody else's.
        if (self.is_made || self.ends_with_driver) && !self.is_gone() {
            match &self.keeper {
                Some(keeper) => keeper.remove_directory(self.path.clone()),
                // Whatever is in it keeps it.
                None => {
                    let _ = std::fs::remove_dir(&self.path);
                }
            }
        }
    }
}

/// The mode of a directory that is made: the one where the clients of all users look must not be closed to
/// them, whoever is let in.
fn mode_of_directory(path: &Path, others: Others) -> u32 {
    if others == Others::LetIn || path == Path::new(directory::SYSTEM_RUNTIME_DIR) {
        0o755
    } else {
        0o700
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_all_users_look_a_directory_is_open_to_them() {
        let system = Path::new(directory::SYSTEM_RUNTIME_DIR);
        let users = Path::new("/tmp/nnhal-7");
        let modes = [Others::KeptOut, Others::LetIn].map(|others| {
            (
                mode_of_directory(system, others),
                mode_of_directory(users, others),
            )
        });
        assert_eq!(modes, [(0o755, 0o700), (0o755, 0o755)]);
    }
}
