//! Watching directories for entries that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::SysError;

/// How often a path may change under the eyes of [`DirectoryWatch::watch`] before it takes what it has.
const MAX_STEPS: usize = 64;

/// How many bufferfuls of events one [`DirectoryWatch::take_in`] reads; more make the descriptor readable
/// again.
const MAX_READS: usize = 64;

/// A set of directories that is watched. Its descriptor is readable when something happened in one of them,
/// or when the time of [`DirectoryWatch::wake_after`] has come.
#[derive(Debug)]
pub struct DirectoryWatch {
    inotify: Inotify,
    timer: TimerFd,
    /// Makes one descriptor of the two.
    epoll: Epoll,
    watched: BTreeSet<WatchDescriptor>,
}

/// What happened since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// An entry came, went, or was written and closed.
    pub anything: bool,
    /// A file that was open for writing was closed, or so much happened that it may have been: the end of the
    /// process that held it, if it was a lock.
    pub file_closed: bool,
}

impl DirectoryWatch {
    /// A watch of nothing yet.
    ///
    /// # Errors
    /// The system has no descriptors or watches left.
    pub fn new() -> Result<DirectoryWatch, SysError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(SysError::of("inotify_init1"))?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(SysError::of("timerfd_create"))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(SysError::of("epoll_create1"))?;
        for fd in [inotify.as_fd(), timer.as_fd()] {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(SysError::of("epoll_ctl"))?;
        }
        Ok(DirectoryWatch {
            inotify,
            timer,
            epoll,
            watched: BTreeSet::new(),
        })
    }

    /// Watches the entries of these directories and nothing else from now on. Of a directory that is not
    /// there or may not be read, the way to it is watched instead: call this again when something has
    /// happened. What happens after this returns is told, so look at the directories then.
    ///
    /// # Errors
    /// The system has no watches left.
    pub fn watch<'a>(&mut self, directories: impl IntoIterator<Item = &'a Path>) -> Result<(), SysError> {
        let mut masks = BTreeMap::new();
        let mut watched = BTreeSet::new();
        for directory in directories {
            watched.insert(self.watch_one(directory, &mut masks)?);
        }
        for &gone in self.watched.difference(&watched) {
            // One whose directory was removed is gone already.
            let _ = self.inotify.rm_watch(gone);
        }
        self.watched = watched;
        Ok(())
    }

    /// Watches a directory, or the nearest one above that there is. `masks` has what is watched for already.
    fn watch_one(
        &self,
        directory: &Path,
        masks: &mut BTreeMap<PathBuf, AddWatchFlags>,
    ) -> Result<WatchDescriptor, SysError> {
        let mut path = directory;
        let mut last = Err(Errno::ENOENT);
        // The first on the way that may not be read.
        let mut closed = None;
        for _ in 0..MAX_STEPS {
            let known = masks.get(path).copied().unwrap_or(AddWatchFlags::empty());
            // A change of its mode is told to who watches the one above.
            let opening = closed.map_or(AddWatchFlags::empty(), |_| AddWatchFlags::IN_ATTRIB);
            let mask = known | mask(path == directory) | opening;
            last = self.inotify.add_watch(spelled(path), mask);
            match last {
                Ok(descriptor) => {
                    masks.insert(path.to_owned(), mask);
                    // What is next on the way may have come before there was a watch for it.
                    match directory.ancestors().take_while(|above| *above != path).last() {
                        Some(next) if closed != Some(next) && next.is_dir() => path = next,
                        _ => return Ok(descriptor),
                    }
                }
                Err(errno @ (Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES)) => {
                    if errno == Errno::EACCES {
                        closed = Some(path);
                    }
                    match path.parent() {
                        Some(parent) => path = parent,
                        None => break,
                    }
                }
                Err(_) => break,
            }
        }
        last.map_err(SysError::of("inotify_add_watch"))
    }

    /// Makes the descriptor readable after this time, once; `None` takes that back.
    ///
    /// # Errors
    /// Only what the system refuses.
    pub fn wake_after(&self, time: Option<Duration>) -> Result<(), SysError> {
        let set = match time {
            // An expiration of 0 would disarm it.
            Some(time) => self.timer.set(
                Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1)))),
                TimerSetTimeFlags::empty(),
            ),
            None => self.timer.unset(),
        };
        set.map_err(SysError::of("timerfd_settime"))
    }

    /// Takes in what happened, after which the descriptor is not readable until more does.
    ///
    /// # Errors
    /// Only what the system refuses.
    pub fn take_in(&self) -> Result<Happened, SysError> {
        let mut happened = Happened::default();
        for _ in 0..MAX_READS {
            match self.inotify.read_events() {
                Ok(events) => {
                    // The end of a watch is of no interest: where it matters, something else is told too.
                    let ignored = AddWatchFlags::IN_IGNORED;
                    happened.anything |= events.iter().any(|event| !event.mask.contains(ignored));
                    let closed = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_Q_OVERFLOW;
                    happened.file_closed |= events.iter().any(|event| event.mask.intersects(closed));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(SysError::of("read of inotify")(errno)),
            }
        }
        match self.timer.wait() {
            Ok(()) | Err(Errno::EAGAIN) => Ok(happened),
            Err(errno) => Err(SysError::of("read of timerfd")(errno)),
        }
    }
}

impl AsFd for DirectoryWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// What is watched for in a directory itself, and on the way to one.
fn mask(is_itself: bool) -> AddWatchFlags {
    let way = AddWatchFlags::IN_ONLYDIR
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    if is_itself {
        // Whether a socket may be used is in its mode.
        way | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
    } else {
        way
    }
}

/// The path as system calls take it: what is above a relative path is this directory.
fn spelled(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::PollFlags;

    use super::*;
    use crate::poll;
    use crate::time::{Clock, Deadline, MonotonicClock};

    fn is_readable(watch: &DirectoryWatch) -> bool {
        let ready = poll::ready_now(watch.as_fd(), PollFlags::POLLIN).unwrap();
        !ready.is_empty()
    }

    #[test]
    fn entries_that_come_and_go_make_it_readable_until_taken_in() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::new().unwrap();
        watch.watch([directory.path()]).unwrap();
        assert!(!is_readable(&watch));
        let file = std::fs::File::create(directory.path().join("lock")).unwrap();
        assert!(is_readable(&watch));
        let happened = watch.take_in().unwrap();
        assert!(happened.anything && !happened.file_closed);
        assert!(!is_readable(&watch));
        drop(file);
        assert!(watch.take_in().unwrap().file_closed);
        std::fs::remove_file(directory.path().join("lock")).unwrap();
        assert!(watch.take_in().unwrap().anything);
        assert_eq!(watch.take_in().unwrap(), Happened::default());
    }

    #[test]
    fn directory_that_is_not_there_is_found_when_it_comes() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("a").join("b");
        let mut watch = DirectoryWatch::new().unwrap();
        watch.watch([directory.as_path()]).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        assert!(watch.take_in().unwrap().anything);
        watch.watch([directory.as_path()]).unwrap();
        std::fs::write(above.path().join("unrelated"), "").unwrap();
        assert_eq!(watch.take_in().unwrap(), Happened::default());
        std::fs::write(directory.join("file"), "").unwrap();
        assert!(watch.take_in().unwrap().anything);
        std::fs::remove_dir_all(above.path().join("a")).unwrap();
        assert!(watch.take_in().unwrap().anything);
        watch.watch([directory.as_path()]).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        assert!(watch.take_in().unwrap().anything);
    }

    #[test]
    fn directories_inside_each_other_keep_their_watches() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        let mut watch = DirectoryWatch::new().unwrap();
        watch.watch([outer.path(), &inner]).unwrap();
        drop(std::fs::File::create(outer.path().join("file")).unwrap());
        assert!(watch.take_in().unwrap().file_closed);
    }

    #[test]
    fn timer_wakes_once() {
        let watch = DirectoryWatch::new().unwrap();
        watch.wake_after(Some(Duration::ZERO)).unwrap();
        let deadline = Deadline::after(MonotonicClock.now(), Duration::from_secs(60));
        assert!(!poll::one(&watch, PollFlags::POLLIN, deadline).unwrap().is_empty());
        assert_eq!(watch.take_in().unwrap(), Happened::default());
        assert!(!is_readable(&watch));
        watch.wake_after(Some(Duration::from_secs(3600))).unwrap();
        watch.wake_after(None).unwrap();
        assert!(!is_readable(&watch));
    }
}
