//! The thread that sees a worker's end, and reads what nobody waits for.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags};
use nnhal_os::poll;
use nnhal_os::time::Deadline;

use super::calls::Reader;
use super::ending::Trouble;
use super::link::Link;

/// What the watcher's sleep ended with.
#[derive(Default)]
struct Wakeup {
    is_woken: bool,
    is_gone: bool,
    is_readable: bool,
}

/// Watches until the connection ends or is given up.
pub(super) fn watch(link: &Link) {
    if let Err(trouble) = watch_until_trouble(link) {
        link.end(trouble);
    }
}

fn watch_until_trouble(link: &Link) -> Result<(), Trouble> {
    loop {
        let reads = {
            let mut calls = link.lock();
            if calls.is_stopping {
                return Ok(());
            }
            if let Some(trouble) = calls.trouble.take() {
                return Err(trouble);
            }
            if calls.reader == Reader::Nobody && calls.needs_watcher() {
                calls.reader = Reader::Watcher;
            }
            calls.reader == Reader::Watcher
        };
        let wakeup = sleep(link, reads)?;
        if wakeup.is_woken {
            clear_wakeup(link);
        }
        if reads && wakeup.is_readable {
            link.drain(|_| false)?;
            let mut calls = link.lock();
            if !calls.needs_watcher() {
                calls.reader = Reader::Nobody;
                link.hand_on(calls);
            }
        }
        if wakeup.is_gone {
            return Err(Trouble::Gone);
        }
    }
}

fn sleep(link: &Link, reads: bool) -> Result<Wakeup, Trouble> {
    // A hang-up is reported without being asked for.
    let of_socket = if reads {
        PollFlags::POLLIN
    } else {
        PollFlags::empty()
    };
    let mut fds = vec![
        PollFd::new(link.wake.as_fd(), PollFlags::POLLIN),
        PollFd::new(link.socket.as_fd(), of_socket),
    ];
    fds.extend(
        link.pidfd
            .as_ref()
            .map(|pidfd| PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)),
    );
    // Without a deadline: what ends this sleep is the end of the process it watches.
    poll::wait(&mut fds, Deadline::NONE)
        .map_err(|error| Trouble::Protocol(format!("watching the worker failed: {error}")))?;
    let events = |index: usize| {
        fds.get(index)
            .and_then(PollFd::revents)
            .unwrap_or(PollFlags::empty())
    };
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    Ok(Wakeup {
        is_woken: !events(0).is_empty(),
        is_readable: events(1).contains(PollFlags::POLLIN),
        is_gone: events(1).intersects(closed) || !events(2).is_empty(),
    })
}

fn clear_wakeup(link: &Link) {
    // Only this thread reads it, after it was seen to be readable.
    let _ = nix::unistd::read(&link.wake, &mut [0; 8]);
}
