//! What is in the directory: devices' sockets, and the locks on their names.

use std::fs::{File, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Pid, UnlinkatFlags, unlinkat};
use nnhal::wire::directory;
use nnhal_os::socket::Listener;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::directory::{Others, RuntimeDir};
use super::error::RuntimeDirError;

/// How long a lock may outlive the process that took it: one that was being started when that was killed has
/// it until it is a program of its own.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// The right to publish a device. Dropping it gives the right up.
#[derive(Debug)]
pub(in crate::supervisor) struct Claim {
    device: String,
    directory: OwnedFd,
    _lock: Lock,
}

/// A lock file that is locked. Dropping it unlocks it at once, also where a process that is being started has
/// it open still. A refusal is no harm: the last one who closes it unlocks it, too.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// A device that clients can connect to. Dropping it takes the socket away.
#[derive(Debug)]
pub(in crate::supervisor) struct Published {
    /// Where clients connect.
    pub(in crate::supervisor) listener: Listener,
    claim: Claim,
    socket: Option<(u64, u64)>,
}

impl RuntimeDir {
    /// Opens the directory, making it if needed, and takes the names of these devices there.
    ///
    /// # Errors
    ///
    /// [`RuntimeDirError`].
    pub(in crate::supervisor) fn open_and_claim(
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
    pub(super) fn claim(&self, device: &str) -> Result<Claim, RuntimeDirError> {
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
    pub(in crate::supervisor) fn publish(
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
    fn lock(&self, device: &str) -> Result<Lock, RuntimeDirError> {
        let name = lock_name(device);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let deadline = Deadline::after(MonotonicClock.now(), EXIT_TIMEOUT);
        loop {
            let fd = openat(&self.fd, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
                .map_err(|errno| self.file_error("open", &name, errno.into()))?;
            let mut file = File::from(fd);
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&mut file);
                    if has_ended(&holder) && !deadline.is_past(MonotonicClock.now()) {
                        std::thread::park_timeout(PAUSE);
                        continue;
                    }
                    return Err(RuntimeDirError::AlreadyServed {
                        device: device.to_owned(),
                        path: self.path.clone(),
                        holder,
                    });
                }
                Err(TryLockError::Error(error)) => return Err(self.file_error("lock", &name, error)),
            }
            let mut lock = Lock(file);
            let file = &mut lock.0;
            let held = fstat(&*file).map_err(|errno| self.file_error("inspect", &name, errno.into()))?;
            let named = self.stat(&name)?;
            if named.is_some_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)) {
                file.set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| writeln!(file, "{}", std::process::id()))
                    .map_err(|source| self.file_error("write", &name, source))?;
                return Ok(lock);
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
    pub(in crate::supervisor) fn device(&self) -> &str {
        &self.claim.device
    }

    /// Opens the socket to these users, as [`RuntimeDir::publish`] did. One that a service manager made has
    /// the mode that was set there.
    pub(in crate::supervisor) fn let_connect(&self, others: Others) -> std::io::Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        let name = socket_name(&self.claim.device);
        set_mode_of_socket(&descriptor_path(&self.claim.directory).join(name), others)
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

pub(super) fn lock_name(device: &str) -> String {
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
