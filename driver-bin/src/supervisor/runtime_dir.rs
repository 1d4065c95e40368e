//! The directory where sockets are published, and what is found there.
//!
//! Contract: nothing is published in a directory that another user could write to, or through a symbolic
//! link. Who may look into it need not be who may connect: that is what the sockets' mode says, besides the
//! supervisor. A device's name belongs to the process that holds the lock on `{DEVICE}.lock`; only with the
//! lock is a socket that an earlier driver left behind removed, and only if it is a socket of this user. A
//! socket appears under its name when connections are accepted already.

use std::fs::File;
use std::fs::Permissions;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, lstat};
use nix::unistd::{Pid, UnlinkatFlags, unlinkat};
use nnhal::diag::tags;
use nnhal::wire::directory;
use nnhal_os::socket::{Listener, SocketError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// How long a lock may outlive the process that took it: one that was being started when that was killed has
/// it until it is a program of its own.
const PATIENCE_WITH_THE_DEAD: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Why sockets cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The directory cannot be made or opened.
    #[error("failed to use the runtime directory {}: {source}; set another one with --runtime-dir or {}", .path.display(), directory::RUNTIME_DIR_VARIABLE)]
    Open {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The directory is somebody else's.
    #[error("the runtime directory {} belongs to user {owner}, not to this driver's user {user}", .path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs the driver.
        user: u32,
    },
    /// Others have more access than they may.
    #[error("the runtime directory {} has mode {mode:04o}, so that other users can write to it; it must be 0755 at most (chmod go-w)", .path.display())]
    TooOpen {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another driver serves the device.
    #[error("device {device} is already served from {} by process {holder}", .path.display())]
    AlreadyServed {
        /// The device.
        device: String,
        /// The directory.
        path: PathBuf,
        /// The process id that the other driver wrote down.
        holder: String,
    },
    /// Something else stands where the socket should be.
    #[error("{} is in the way and is not a socket of this user; remove it", .path.display())]
    InTheWay {
        /// What.
        path: PathBuf,
    },
    /// A file there cannot be made, locked or removed.
    #[error("failed to {action} {}: {source}", .path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("failed to publish {device} in {}: {source}", .path.display())]
    Socket {
        /// The device.
        device: String,
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: SocketError,
    },
}

/// Which users a driver serves beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// None.
    KeptOut,
    /// All.
    LetIn,
}

/// A runtime directory that has been found fit. Dropping it removes it if it is empty and there for this
/// driver alone.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    path: PathBuf,
    fd: OwnedFd,
    /// Whether it was made here.
    is_made: bool,
    /// Whether the driver's owner made it for this driver alone.
    ends_with_driver: bool,
}

/// The right to publish a device. Dropping it gives the right up.
#[derive(Debug)]
pub(super) struct Claim {
    device: String,
    directory: OwnedFd,
    _lock: Flock<File>,
}

/// A device that clients can connect to. Dropping it takes the socket away.
#[derive(Debug)]
pub(super) struct Published {
    /// Where clients connect.
    pub(super) listener: Listener,
    claim: Claim,
    socket: Option<(u64, u64)>,
}

impl RuntimeDir {
    /// Opens the directory, making it if needed, and takes the names of these devices there.
    ///
    /// # Errors
    ///
    /// [`RuntimeDirError`].
    pub(super) fn open_and_claim(
        path: &Path,
        others: Others,
        devices: &[String],
    ) -> Result<(RuntimeDir, Vec<Claim>), RuntimeDirError> {
        loop {
            let directory = RuntimeDir::open(path, others)?;
            let claims = devices.iter().map(|device| directory.claim(device)).collect();
            match claims {
                // A driver that has ended meanwhile took it away.
                Err(_) if directory.is_gone() => {}
                claims => return Ok((directory, claims?)),
            }
        }
    }

    /// Opens the directory, making it if needed. One that is made can be looked into by other users if they
    /// are let in, or if all of them look there.
    fn open(path: &Path, others: Others) -> Result<RuntimeDir, RuntimeDirError> {
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
        };
        directory.let_look(others)?;
        directory.check(others)?;
        Ok(directory)
    }

    /// Makes the directory one that other users can look into, if they shall and it was made here.
    pub(super) fn let_look(&self, others: Others) -> Result<(), RuntimeDirError> {
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
    fn is_gone(&self) -> bool {
        let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
        let here = fstat(&self.fd).map(identity);
        here.is_ok() && here != lstat(&self.path).map(identity)
    }

    /// Has it removed even if it was there before: by the driver's owner, who made it for this driver alone
    /// and may be dead by then.
    pub(super) fn end_with_driver(&mut self) {
        self.ends_with_driver = true;
    }

    /// The directory's path.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory by way of its descriptor: the same directory whatever happens to its path, and short
    /// enough for any socket address.
    fn stable_path(&self) -> PathBuf {
        descriptor_path(&self.fd)
    }

    /// Takes the name of a device: no other driver can publish it here until the claim is gone.
    ///
    /// # Errors
    ///
    /// [`RuntimeDirError::AlreadyServed`], or what else stands in the way.
    fn claim(&self, device: &str) -> Result<Claim, RuntimeDirError> {
        let lock = self.lock(device)?;
        let directory = self
            .fd
            .try_clone()
            .map_err(|source| self.file_error("open", ".", source))?;
        Ok(Claim {
            device: device.to_owned(),
            directory,
            _lock: lock,
        })
    }

    /// Publishes a device's socket; takes over `activated` instead if a service manager holds the socket.
    ///
    /// # Errors
    ///
    /// [`RuntimeDirError`].
    pub(super) fn publish(
        &self,
        claim: Claim,
        activated: Option<OwnedFd>,
        others: Others,
    ) -> Result<Published, RuntimeDirError> {
        let socket_error = |source| RuntimeDirError::Socket {
            device: claim.device.clone(),
            path: self.path.clone(),
            source,
        };
        if let Some(fd) = activated {
            let listener = Listener::from_activation(fd).map_err(socket_error)?;
            listener.refuse_fds();
            return Ok(Published {
                listener,
                claim,
                socket: None,
            });
        }
        let name = socket_name(&claim.device);
        self.remove_stale(&name)?;
        let hidden = format!(".{name}.new");
        self.remove_stale(&hidden)?;
        let listener = Listener::bind(&self.stable_path().join(&hidden)).map_err(socket_error)?;
        // Nobody has found it yet. Where the kernel cannot do it, those who are turned away may leave some to
        // close.
        listener.refuse_fds();
        set_mode_of_socket(&self.stable_path().join(&hidden), others)
            .map_err(|source| self.file_error("set the mode of", &hidden, source))?;
        renameat(&self.fd, hidden.as_str(), &self.fd, name.as_str())
            .map_err(|errno| self.file_error("rename", &hidden, errno.into()))?;
        let socket = self.stat(&name)?.map(|stat| (stat.st_dev, stat.st_ino));
        Ok(Published {
            listener,
            claim,
            socket,
        })
    }

    /// Locks the device's name. The lock file is removed with the lock held, so a lock that was got on a file
    /// that is no longer there does not count.
    fn lock(&self, device: &str) -> Result<Flock<File>, RuntimeDirError> {
        let name = lock_name(device);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let patience = Deadline::after(MonotonicClock.now(), PATIENCE_WITH_THE_DEAD);
        loop {
            let fd = openat(&self.fd, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
                .map_err(|errno| self.file_error("open", &name, errno.into()))?;
            let mut file = match Flock::lock(File::from(fd), FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((mut file, Errno::EWOULDBLOCK)) => {
                    let holder = read_holder(&mut file);
                    if has_ended(&holder) && !patience.is_past(MonotonicClock.now()) {
                        std::thread::park_timeout(PAUSE);
                        continue;
                    }
                    return Err(RuntimeDirError::AlreadyServed {
                        device: device.to_owned(),
                        path: self.path.clone(),
                        holder,
                    });
                }
                Err((_, errno)) => return Err(self.file_error("lock", &name, errno.into())),
            };
            let held = fstat(&*file).map_err(|errno| self.file_error("inspect", &name, errno.into()))?;
            let named = self.stat(&name)?;
            if named.is_some_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)) {
                file.set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| writeln!(file, "{}", std::process::id()))
                    .map_err(|source| self.file_error("write", &name, source))?;
                return Ok(file);
            }
        }
    }

    /// Removes a socket that an earlier driver of this user left behind.
    fn remove_stale(&self, name: &str) -> Result<(), RuntimeDirError> {
        let Some(stat) = self.stat(name)? else {
            return Ok(());
        };
        let is_socket = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
        if !is_socket || stat.st_uid != nix::unistd::geteuid().as_raw() {
            return Err(RuntimeDirError::InTheWay {
                path: self.path.join(name),
            });
        }
        unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)
            .map_err(|errno| self.file_error("remove", name, errno.into()))
    }

    fn stat(&self, name: &str) -> Result<Option<FileStat>, RuntimeDirError> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.file_error("inspect", name, errno.into())),
        }
    }

    fn file_error(&self, action: &'static str, name: &str, source: std::io::Error) -> RuntimeDirError {
        RuntimeDirError::File {
            action,
            path: self.path.join(name),
            source,
        }
    }
}

impl Published {
    /// The device's name.
    #[must_use]
    pub(super) fn device(&self) -> &str {
        &self.claim.device
    }

    /// Opens the socket to these users, as [`RuntimeDir::publish`] did. One that a service manager made has
    /// the mode that was set there.
    pub(super) fn let_connect(&self, others: Others) -> std::io::Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        let name = socket_name(&self.claim.device);
        set_mode_of_socket(&descriptor_path(&self.claim.directory).join(name), others)
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        // One that took its place is somebody else's.
        if (self.is_made || self.ends_with_driver) && !self.is_gone() {
            // Whatever is in it keeps it.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Best effort: the directory may be gone already. A socket that somebody else put there stays.
        let name = socket_name(&self.claim.device);
        let directory = &self.claim.directory;
        let present = fstatat(directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok();
        let is_ours = present
            .map(|stat| (stat.st_dev, stat.st_ino))
            .is_some_and(|id| self.socket == Some(id));
        if is_ours {
            let _ = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While the lock is held: see RuntimeDir::lock.
        let _ = unlinkat(
            &self.directory,
            lock_name(&self.device).as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
}

impl AsFd for Published {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
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

fn set_mode_of_socket(path: &Path, others: Others) -> std::io::Result<()> {
    let mode = match others {
        Others::LetIn => 0o666,
        Others::KeptOut => 0o600,
    };
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

fn descriptor_path(fd: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

fn socket_name(device: &str) -> String {
    directory::socket_path(Path::new(""), device)
        .to_string_lossy()
        .into_owned()
}

fn lock_name(device: &str) -> String {
    format!("{device}.lock")
}

/// Whether the process that wrote itself into a lock file is no more.
fn has_ended(holder: &str) -> bool {
    let pid = holder.trim().parse().ok().filter(|pid| *pid > 0);
    pid.is_some_and(|pid| nix::sys::signal::kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(20).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nnhal_os::socket::Connection;

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
        let lock = Flock::lock(File::open(&path).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
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
