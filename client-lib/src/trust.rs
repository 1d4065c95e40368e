//! Whose drivers this process believes: a driver sees what its clients compute, and its answers are their
//! results.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use nnhal::diag::tags;
use nnhal::wire::directory::SYSTEM_RUNTIME_DIR;
use nnhal_os::environment;

/// Names further users whose drivers are trusted: their numbers, separated by commas.
pub const DRIVER_USERS_VARIABLE: &str = "NNHAL_DRIVER_USERS";

/// Why a driver, or the directory of its socket, is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// The directory is somebody's whose drivers are not trusted.
    #[error(
        "belongs to user {user}, whose drivers are not trusted; {DRIVER_USERS_VARIABLE} can name that user"
    )]
    Owner {
        /// That user.
        user: u32,
    },
    /// Others than its owner can put sockets into the directory.
    #[error("has mode {mode:04o}, so that other users can write to it; chmod go-w mends that")]
    Writable {
        /// Its mode.
        mode: u32,
    },
    /// Whoever listens on the socket is somebody else.
    #[error(
        "is served by user {user}, whose drivers are not trusted; {DRIVER_USERS_VARIABLE} can name that user"
    )]
    Server {
        /// That user.
        user: u32,
    },
}

/// The users whose drivers are trusted beside this process's own and root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust(Vec<u32>);

impl Trust {
    /// Those that the program names, and those that the environment does.
    pub(crate) fn new(named: &[u32]) -> Trust {
        let mut users = named.to_vec();
        let text = environment::var(DRIVER_USERS_VARIABLE).unwrap_or_default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.parse() {
                Ok(user) => users.push(user),
                Err(_) => {
                    tracing::warn!(target: tags::MANAGER, word, "{DRIVER_USERS_VARIABLE} takes numbers of users");
                }
            }
        }
        Trust(users)
    }

    fn has(&self, user: u32) -> bool {
        user == 0 || user == geteuid().as_raw() || self.0.contains(&user)
    }

    /// Whether sockets in this directory are those of somebody who is trusted. Root alone makes the system's
    /// directory, so whomever it belongs to has it of root.
    pub(crate) fn directory(&self, path: &Path, opened: &File) -> std::io::Result<Result<(), Distrust>> {
        let metadata = opened.metadata()?;
        let (user, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        Ok(if !self.has(user) && path != Path::new(SYSTEM_RUNTIME_DIR) {
            Err(Distrust::Owner { user })
        } else if mode & 0o022 != 0 {
            Err(Distrust::Writable { mode })
        } else {
            Ok(())
        })
    }

    /// Whether the user who listens on this socket is trusted.
    pub(crate) fn server(&self, socket: &Path, user: u32) -> Result<(), Distrust> {
        let system = Path::new(SYSTEM_RUNTIME_DIR);
        let has_it_of_root = || {
            socket.parent() == Some(system)
                && std::fs::metadata(system).is_ok_and(|found| found.uid() == user)
        };
        if self.has(user) || has_it_of_root() {
            Ok(())
        } else {
            Err(Distrust::Server { user })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn users_are_trusted_who_are_named() {
        let socket = Path::new("/somewhere/a-b.sock");
        let user = geteuid().as_raw();
        let stranger = user + 1;
        let trust = Trust::default();
        assert_eq!([0, user].map(|user| trust.server(socket, user)), [Ok(()); 2]);
        assert_eq!(
            trust.server(socket, stranger),
            Err(Distrust::Server { user: stranger })
        );
        assert_eq!(Trust::new(&[stranger]).server(socket, stranger), Ok(()));
    }

    #[test]
    fn directory_that_others_can_write_to_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, is_trusted) in [(0o755, true), (0o775, false), (0o1777, false)] {
            std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).unwrap();
            let opened = File::open(directory.path()).unwrap();
            let judged = Trust::default().directory(directory.path(), &opened).unwrap();
            assert_eq!(judged.is_ok(), is_trusted, "{judged:?}");
        }
    }
}
