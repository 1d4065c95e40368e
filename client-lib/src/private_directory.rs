//! The directory of a private driver's sockets.
//!
//! The process that makes one holds a lock on it for as long as it lives, however it ends. A directory that
//! is not locked has no owner any more, and its driver, if it is not dead itself, is about to end with its
//! owner: whoever makes the next directory removes it.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nnhal::diag::tags;
use nnhal_os::environment;
use tempfile::TempDir;

/// What the names of these directories begin with. Nobody else's may: they are removed with what is in them.
const PREFIX: &str = "nnhal-private-";

/// How many random characters follow.
const RANDOM_CHARACTERS: usize = 10;

/// How often making a directory is tried if others take it for one that was left behind.
const ATTEMPTS: usize = 8;

/// A directory that only this user can enter. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    directory: TempDir,
    /// Closed after the directory is gone, which unlocks it unless a forked process has it open too.
    _locked: File,
}

impl PrivateDirectory {
    /// Makes one among the temporary files, after removing those there that were left behind.
    pub(crate) fn create() -> Result<PrivateDirectory> {
        if environment::is_foreign() {
            return PrivateDirectory::create_in(Path::new("/tmp"));
        }
        PrivateDirectory::create_in(&tempfile::env::temp_dir())
    }

    fn create_in(parent: &Path) -> Result<PrivateDirectory> {
        remove_left_behind(parent);
        for _ in 0..ATTEMPTS {
            let directory = tempfile::Builder::new()
                .prefix(PREFIX)
                .rand_bytes(RANDOM_CHARACTERS)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)?;
            if let Some(locked) = lock(directory.path())? {
                return Ok(PrivateDirectory {
                    directory,
                    _locked: locked,
                });
            }
            // Before it was locked it looked like one that was left behind.
        }
        Err(Error::new(ErrorKind::ResourceBusy, "other processes remove it"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it where it is, for a process that was forked from the owner.
    pub(crate) fn keep(self) {
        let _ = self.directory.keep();
    }
}

/// Locks a directory of this user's. `None` if it has an owner or is not there any more.
fn lock(path: &Path) -> Result<Option<File>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
        .open(path);
    let directory = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let metadata = directory.metadata()?;
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Its last owner may have removed it just before.
    let is_there = std::fs::symlink_metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (metadata.dev(), metadata.ino()));
    Ok(is_there.then_some(directory))
}

/// Removes directories whose owners were killed. What cannot be removed stays.
fn remove_left_behind(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_private = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(|rest| rest.len() == RANDOM_CHARACTERS);
        if is_private
            && let Ok(Some(locked)) = lock(&entry.path())
            && let Err(error) = remove(&entry.path(), &locked)
        {
            tracing::debug!(target: tags::MANAGER, path = %entry.path().display(), %error, "cannot remove what a private driver left behind");
        }
    }
}

/// Empties the directory that is locked, and removes it from `path` if it is still there.
fn remove(path: &Path, locked: &File) -> Result<()> {
    let contents = PathBuf::from(format!("/proc/self/fd/{}", locked.as_raw_fd()));
    for entry in std::fs::read_dir(contents)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parent: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(parent)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn directory_is_for_this_user_only_and_goes_with_its_handle() {
        let parent = tempfile::tempdir().unwrap();
        let directory = PrivateDirectory::create_in(parent.path()).unwrap();
        let mode = std::fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(directory.path().join("file"), "").unwrap();
        drop(directory);
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn directory_without_an_owner_is_removed_by_the_next_owner() {
        let parent = tempfile::tempdir().unwrap();
        let left_behind = PrivateDirectory::create_in(parent.path()).unwrap();
        let path = left_behind.path().to_owned();
        std::fs::create_dir_all(path.join(".a-b.workers").join("deep")).unwrap();
        std::fs::write(path.join("a-b.lock"), "1").unwrap();
        let owned = PrivateDirectory::create_in(parent.path()).unwrap();
        assert!(path.join("a-b.lock").exists(), "it has an owner");
        // As if its owner had been killed: the lock goes, the directory stays.
        left_behind.keep();
        let next = PrivateDirectory::create_in(parent.path()).unwrap();
        assert!(!path.exists());
        assert!(owned.path().exists() && next.path().exists());
    }

    #[test]
    fn whatever_else_has_such_a_name_stays() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("precious"), "").unwrap();
        let name = |rest: &str| format!("{PREFIX}{rest}");
        std::fs::write(parent.path().join(name("aFileXXXXX")), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join(name("aLinkXXXXX"))).unwrap();
        std::fs::create_dir(parent.path().join(name("of-another-length"))).unwrap();
        std::fs::create_dir(parent.path().join("nnhal-models")).unwrap();
        let before = names(parent.path());
        drop(PrivateDirectory::create_in(parent.path()).unwrap());
        assert_eq!(names(parent.path()), before);
        assert!(elsewhere.path().join("precious").exists());
    }
}
