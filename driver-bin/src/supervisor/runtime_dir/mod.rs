//! The directory where sockets are published, and what is found there.
//!
//! Contract: nothing is published in a directory that another user could write to, or through a symbolic
//! link. Who may look into it need not be who may connect: that is what the sockets' mode says, besides the
//! supervisor. A device's name belongs to the process that holds the lock on `{DEVICE}.lock`; only with the
//! lock is a socket that an earlier driver left behind removed, and only if it is a socket of this user. A
//! socket appears under its name when connections are accepted already.

mod directory;
mod error;
mod published;

pub(super) use self::directory::{Others, RuntimeDir};
pub use self::error::RuntimeDirError;
pub(super) use self::published::{Claim, Published};

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use nnhal::wire::directory;
    use nnhal_os::socket::{Connection, Listener, SocketError};
    use nnhal_os::time::{Clock, Deadline, MonotonicClock};

    use super::published::{PAUSE, lock_name};
    use super::*;

    const DEVICE: &str = "ACME-npu";

    struct Place {
        _parent: tempfile::TempDir,
        path: PathBuf,
    }

    impl Place {
        fn new() -> Place {
            let parent = tempfile::tempdir().unwrap();
            let path = parent.path().join("run");
            Place {
                _parent: parent,
                path,
            }
        }

        fn socket(&self) -> PathBuf {
            directory::socket_path(&self.path, DEVICE)
        }

        fn publish(&self) -> Result<Published, RuntimeDirError> {
            self.publish_for(Others::KeptOut)
        }

        fn publish_for(&self, others: Others) -> Result<Published, RuntimeDirError> {
            let directory = self.open(others)?;
            directory.publish(directory.claim(DEVICE)?, None, others)
        }

        fn open(&self, others: Others) -> Result<RuntimeDir, RuntimeDirError> {
            RuntimeDir::open(&self.path, others)
        }

        fn mode(&self) -> u32 {
            mode(&self.path)
        }

        fn connect(&self) -> Result<Connection, SocketError> {
            Connection::connect(
                &self.socket(),
                Deadline::after(MonotonicClock.now(), Duration::from_secs(10)),
            )
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn published_device_can_be_connected_to_and_leaves_nothing_behind() {
        let place = Place::new();
        let published = place.publish().unwrap();
        place.connect().unwrap();
        assert!(published.listener.accept().unwrap().is_some());
        assert_eq!((place.mode(), mode(&place.socket())), (0o700, 0o600));
        drop(published);
        assert_eq!(std::fs::read_dir(&place.path).unwrap().count(), 0);
    }

    #[test]
    fn second_driver_of_the_same_device_is_told_who_serves_it() {
        let place = Place::new();
        let _published = place.publish().unwrap();
        let error = place.publish().unwrap_err();
        assert!(matches!(error, RuntimeDirError::AlreadyServed { .. }), "{error}");
        assert!(
            error.to_string().contains(&std::process::id().to_string()),
            "{error}"
        );
        place.connect().unwrap();
    }

    #[test]
    fn lock_that_outlives_its_holder_for_a_moment_is_waited_for() {
        let place = Place::new();
        let directory = place.open(Others::KeptOut).unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let path = place.path.join(lock_name(DEVICE));
        std::fs::write(&path, dead.id().to_string()).unwrap();
        let lock = File::open(&path).unwrap();
        lock.try_lock().unwrap();
        std::thread::scope(|scope| {
            let claim = scope.spawn(|| directory.claim(DEVICE).map(drop));
            std::thread::park_timeout(20 * PAUSE);
            drop(lock);
            claim.join().unwrap().unwrap();
        });
    }

    #[test]
    fn socket_left_behind_is_replaced() {
        let place = Place::new();
        std::fs::create_dir(&place.path).unwrap();
        drop(Listener::bind(&place.socket()).unwrap());
        assert!(place.connect().is_err());
        let published = place.publish().unwrap();
        place.connect().unwrap();
        drop(published);
    }

    #[test]
    fn whatever_else_is_in_the_way_is_left_alone() {
        let place = Place::new();
        std::fs::create_dir(&place.path).unwrap();
        std::fs::write(place.socket(), "precious").unwrap();
        assert!(matches!(place.publish(), Err(RuntimeDirError::InTheWay { .. })));
        assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
        std::fs::remove_file(place.socket()).unwrap();
        symlink("/nowhere", place.socket()).unwrap();
        assert!(matches!(place.publish(), Err(RuntimeDirError::InTheWay { .. })));
        std::fs::remove_file(place.socket()).unwrap();
        symlink("/nowhere", place.path.join(lock_name(DEVICE))).unwrap();
        assert!(matches!(place.publish(), Err(RuntimeDirError::File { .. })));
    }

    #[test]
    fn directory_that_others_can_write_to_or_behind_a_link_is_refused() {
        let place = Place::new();
        std::fs::create_dir(&place.path).unwrap();
        for mode in [0o777, 0o770, 0o775, 0o757, 0o702] {
            std::fs::set_permissions(&place.path, PermissionsExt::from_mode(mode)).unwrap();
            let error = place.publish().unwrap_err();
            assert!(matches!(error, RuntimeDirError::TooOpen { .. }), "{error}");
        }
        for mode in [0o755, 0o750, 0o711, 0o700] {
            std::fs::set_permissions(&place.path, PermissionsExt::from_mode(mode)).unwrap();
            for others in [Others::KeptOut, Others::LetIn] {
                place.publish_for(others).unwrap();
            }
            assert_eq!(place.mode(), mode, "it is its maker's");
        }
        let link = place.path.with_extension("link");
        symlink(&place.path, &link).unwrap();
        assert!(matches!(
            RuntimeDir::open(&link, Others::LetIn),
            Err(RuntimeDirError::Open { .. })
        ));
    }

    #[test]
    fn who_may_connect_is_said_by_the_mode_of_the_socket_and_can_change() {
        let place = Place::new();
        let directory = place.open(Others::KeptOut).unwrap();
        let claim = directory.claim(DEVICE).unwrap();
        let published = directory.publish(claim, None, Others::KeptOut).unwrap();
        let mut modes = Vec::new();
        for others in [Others::KeptOut, Others::LetIn, Others::KeptOut] {
            directory.let_look(others).unwrap();
            published.let_connect(others).unwrap();
            modes.push(mode(&place.socket()));
        }
        assert_eq!(modes, [0o600, 0o666, 0o600]);
        assert_eq!(place.mode(), 0o755, "others may still find others' sockets there");
    }

    #[test]
    fn directory_that_was_made_goes_when_it_is_empty_and_others_stay() {
        let place = Place::new();
        drop(place.open(Others::LetIn).unwrap());
        assert!(!place.path.exists());
        let directory = place.open(Others::LetIn).unwrap();
        std::fs::write(place.path.join("precious"), "").unwrap();
        drop(directory);
        assert!(place.path.join("precious").exists());
        std::fs::remove_file(place.path.join("precious")).unwrap();
        drop(place.open(Others::LetIn).unwrap());
        assert!(place.path.exists(), "this one found it there");
        place.open(Others::LetIn).unwrap().end_with_driver();
        assert!(!place.path.exists());
    }

    #[test]
    fn directory_that_another_driver_takes_away_is_gone() {
        let place = Place::new();
        let first = place.open(Others::KeptOut).unwrap();
        let second = place.open(Others::KeptOut).unwrap();
        assert!(!second.is_gone());
        drop(first);
        assert!(second.is_gone() && second.claim(DEVICE).is_err());
        let devices = [DEVICE.to_owned()];
        let (third, claims) = RuntimeDir::open_and_claim(&place.path, Others::KeptOut, &devices).unwrap();
        assert!(second.is_gone() && !third.is_gone());
        assert_eq!(claims.len(), 1);
    }

    #[test]
    fn directory_that_cannot_be_made_is_named_with_the_reason() {
        let error = RuntimeDir::open(Path::new("/proc/nnhal"), Others::KeptOut).unwrap_err();
        assert!(error.to_string().contains("/proc/nnhal"), "{error}");
        assert!(error.to_string().contains("--runtime-dir"), "{error}");
    }

    #[test]
    fn socket_that_replaced_the_published_one_stays() {
        let place = Place::new();
        let published = place.publish().unwrap();
        std::fs::remove_file(place.socket()).unwrap();
        let _other = Listener::bind(&place.socket()).unwrap();
        drop(published);
        assert!(place.socket().exists());
    }
}
