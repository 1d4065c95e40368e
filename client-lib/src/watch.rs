//! Watching devices come and go.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::PollFlags;
use nnhal_os::directory_watch::DirectoryWatch;
use nnhal_os::fork::ForkStamp;
use nnhal_os::poll;
use nnhal_os::time::Deadline;

use crate::devices::Devices;
use crate::drivers::Drivers;
use crate::error::{Error, ErrorKind, Result};

/// When to look again after a driver has closed a file: the end of a driver is seen by its lock, which may be
/// a moment before its socket is closed.
const LOOKS_AGAIN: [Duration; 3] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// A device that came or went.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceChange {
    /// The device with this name can be opened.
    Came(String),
    /// It cannot any more. Handles on it stay what they are: a worker outlives the driver that started it.
    Went(String),
}

/// Tells which devices come and go; see [`Devices::watch`].
///
/// No thread is behind it. It is a descriptor that becomes readable when there is something to ask for: wait
/// with [`DeviceWatch::wait`], or put it into an event loop and, when it is readable, call `wait` with a
/// deadline that has passed until there is no more.
///
/// ```no_run
/// use nnhal_client::{Deadline, DeviceChange, Devices};
///
/// let mut watch = Devices::open()?.watch()?;
/// while let Some(change) = watch.wait(Deadline::NONE)? {
///     match change {
///         DeviceChange::Came(name) => println!("{name} is there"),
///         DeviceChange::Went(name) => println!("{name} is gone"),
///     }
/// }
/// # Ok::<(), nnhal_client::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceWatch {
    drivers: Drivers,
    directories: DirectoryWatch,
    /// The devices as far as the changes tell that were found.
    known: BTreeMap<String, Identity>,
    /// Found, but not asked for yet.
    changes: VecDeque<DeviceChange>,
    /// How often it was looked again since a driver closed a file.
    looks_again: usize,
    stamp: ForkStamp,
}

/// Tells a socket from another one under the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    made: (i64, i64),
}

impl Identity {
    /// `None` if the socket is gone by now.
    fn of(path: &Path) -> Option<Identity> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Identity {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            made: (found.mtime(), found.mtime_nsec()),
        })
    }
}

impl Devices {
    /// Watches which devices come and go. The first changes tell the devices that there are already.
    ///
    /// The devices of drivers that run are watched, in [`Devices::directories`], whether these directories
    /// are there yet or not; a private driver belongs to this process and neither comes nor goes by itself.
    ///
    /// # Errors
    /// The directory that was named cannot be read; the system has no descriptors or watches left.
    pub fn watch(&self) -> Result<DeviceWatch> {
        let mut watch = DeviceWatch {
            drivers: self.drivers.clone(),
            directories: DirectoryWatch::new().map_err(Error::system("watch devices"))?,
            known: BTreeMap::new(),
            changes: VecDeque::new(),
            looks_again: LOOKS_AGAIN.len(),
            stamp: ForkStamp::take(),
        };
        watch.look()?;
        watch.set_timer()?;
        Ok(watch)
    }
}

impl DeviceWatch {
    /// The next change; `None` if there was none before the deadline. A driver that was started anew counts
    /// as gone and come.
    ///
    /// # Errors
    /// The directory that was named cannot be read; [`ErrorKind::Forked`] in a child of the process that made
    /// the watch.
    pub fn wait(&mut self, deadline: Deadline) -> Result<Option<DeviceChange>> {
        if !self.stamp.is_current() {
            return Err(ErrorKind::Forked.into());
        }
        loop {
            if let Some(change) = self.changes.pop_front() {
                self.set_timer()?;
                return Ok(Some(change));
            }
            let ready = poll::one(&self.directories, PollFlags::POLLIN, deadline)
                .map_err(Error::system("wait for devices"))?;
            if ready.is_empty() {
                return Ok(None);
            }
            let happened = self
                .directories
                .take_in()
                .map_err(Error::system("watch devices"))?;
            self.looks_again = if happened.file_closed {
                0
            } else {
                self.looks_again.saturating_add(1)
            };
            self.look()?;
            self.set_timer()?;
        }
    }

    /// Looks which devices there are and notes what has changed.
    fn look(&mut self) -> Result<()> {
        // Before looking, so that nothing is missed in between.
        let directories = self.drivers.directories().iter().map(PathBuf::as_path);
        self.directories
            .watch(directories)
            .map_err(Error::system("watch the directories of drivers"))?;
        let served = self.drivers.served()?.into_iter();
        let now: BTreeMap<_, _> = served
            .filter_map(|(device, path)| Some((device, Identity::of(&path)?)))
            .collect();
        for (name, identity) in &self.known {
            if now.get(name) != Some(identity) {
                self.changes.push_back(DeviceChange::Went(name.clone()));
            }
        }
        for (name, identity) in &now {
            if self.known.get(name) != Some(identity) {
                self.changes.push_back(DeviceChange::Came(name.clone()));
            }
        }
        self.known = now;
        Ok(())
    }

    /// Keeps the descriptor readable while there are changes to ask for, and else has it wake for the next
    /// look.
    fn set_timer(&self) -> Result<()> {
        let time = if self.changes.is_empty() {
            LOOKS_AGAIN.get(self.looks_again).copied()
        } else {
            Some(Duration::ZERO)
        };
        self.directories
            .wake_after(time)
            .map_err(Error::system("watch devices"))
    }
}

impl AsFd for DeviceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directories.as_fd()
    }
}
