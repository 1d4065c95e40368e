//! Waiting for answers, and handing them out.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::task::Waker;

use nix::poll::{PollFd, PollFlags};
use nnhal::wire::{Message, MessageError};
use nnhal_os::poll;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::calls::{Calls, Effects, Interest, Reader};
use super::ending::Trouble;
use super::link::Link;
use crate::error::{ErrorKind, Result};

/// Only what is there already.
const NOW: Deadline = Deadline::from_raw(0);

/// What reading for an answer came to.
enum Reading {
    Ready,
    TimedOut,
    Trouble(Trouble),
}

impl Link {
    /// Waits until an answer to the call is there. Reads the socket if nobody else does.
    pub(super) fn wait(
        &self,
        id: u64,
        name: &'static str,
        interest: Interest,
        deadline: Deadline,
    ) -> Result<()> {
        let mut calls = self.lock();
        calls.set_attended(id, true);
        let result = loop {
            if calls.is_ready(id, interest) {
                break Ok(());
            }
            if calls.has_ended {
                break Err(self.ended_error(name));
            }
            let is_over;
            (calls, is_over) = if calls.reader == Reader::Nobody {
                self.read_myself(calls, id, interest, deadline)
            } else {
                self.sleep(calls, id, interest, deadline)
            };
            if is_over {
                break Err(ErrorKind::TimedOut {
                    call: name,
                    process: self.worker,
                }
                .into());
            }
        };
        calls.set_attended(id, false);
        self.hand_on(calls);
        result
    }

    /// Gives a call up and has its answers dropped.
    pub(super) fn abandon(&self, id: u64) {
        let effects = self.lock().abandon(id);
        self.carry_out(effects);
        self.attend_unattended();
    }

    /// Sees to it that somebody reads, if answers are due that nobody waits for.
    pub(super) fn attend_unattended(&self) {
        self.hand_on(self.lock());
    }

    /// Hands one message to whoever waits for it.
    ///
    /// A worker can say only so much: each message answers a call of this side, but for one goodbye and one
    /// last message. So whoever reads what is there comes to an end.
    ///
    /// # Errors
    /// What the worker did wrong; its end, if that is what the message tells.
    pub(super) fn dispatch(&self, message: Message, fds: Vec<OwnedFd>) -> std::result::Result<(), Trouble> {
        let expected = message.fd_count();
        if fds.len() != expected {
            return Err(Trouble::Protocol(format!(
                "it sent {} descriptors where {expected} were due",
                fds.len()
            )));
        }
        let mut calls = self.lock();
        let effects = match message {
            Message::Reply { id, result } => calls.reply(id, result.map(|reply| (reply, fds))),
            Message::Event { id, event } => calls.event(id, event),
            Message::Goodbye { reason } => match calls.farewell.goodbye.replace(reason) {
                None => Ok(Effects::default()),
                Some(_) => Err("it said goodbye twice".to_owned()),
            },
            Message::WorkerExit(worker_exit) => {
                calls.farewell.worker_exit = Some((worker_exit.cause, worker_exit.last_words));
                return Err(Trouble::Gone);
            }
        };
        drop(calls);
        self.carry_out(effects.map_err(Trouble::Protocol)?);
        Ok(())
    }

    /// Does what is to be done, without the lock, after an answer or the end.
    pub(super) fn carry_out(&self, effects: Effects) {
        effects.sleepers.iter().for_each(|sleeper| sleeper.notify_one());
        effects.wakers.into_iter().for_each(Waker::wake);
        for (callback, result) in effects.callbacks {
            self.callbacks.run(Box::new(move || callback(result)));
        }
        effects
            .orphans
            .into_iter()
            .for_each(|object| self.release(object));
    }

    /// Reads all messages that are there. `Ok(true)` as soon as `is_enough` says so.
    pub(super) fn drain(&self, is_enough: impl Fn(&Calls) -> bool) -> std::result::Result<bool, Trouble> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match inbox.receive::<Message>(&self.socket, NOW) {
                Ok((message, fds)) => self.dispatch(message, fds)?,
                Err(error) if error.is_timeout() => return Ok(false),
                Err(error) if error.is_closed() => return Err(Trouble::Gone),
                Err(MessageError::Socket(error)) if error.errno().is_some() => return Err(Trouble::Gone),
                Err(error) => return Err(Trouble::Protocol(error.to_string())),
            }
            if is_enough(&self.lock()) {
                return Ok(true);
            }
        }
    }

    /// Takes the reader's place until the answer is there; `true` if the deadline came first.
    fn read_myself<'a>(
        &'a self,
        mut calls: MutexGuard<'a, Calls>,
        id: u64,
        interest: Interest,
        deadline: Deadline,
    ) -> (MutexGuard<'a, Calls>, bool) {
        calls.reader = Reader::Caller;
        drop(calls);
        let reading = self.read_for(id, interest, deadline);
        let mut calls = self.lock();
        calls.reader = Reader::Nobody;
        let Reading::Trouble(trouble) = reading else {
            return (calls, matches!(reading, Reading::TimedOut));
        };
        // The watcher finds out what it means, and ends all calls.
        calls.trouble.get_or_insert(trouble);
        calls.reader = Reader::Watcher;
        self.wake_watcher();
        let ended = self.ended.wait_while(calls, |calls| !calls.has_ended);
        (ended.unwrap_or_else(PoisonError::into_inner), false)
    }

    fn read_for(&self, id: u64, interest: Interest, deadline: Deadline) -> Reading {
        loop {
            let mut fds = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            fds.extend(
                self.pidfd
                    .as_ref()
                    .map(|pidfd| PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)),
            );
            match poll::wait(&mut fds, deadline) {
                Ok(0) => return Reading::TimedOut,
                Ok(_) => {}
                Err(error) => return Reading::Trouble(Trouble::Protocol(error.to_string())),
            }
            let is_dead = fds.get(1).is_some_and(|pidfd| pidfd.any().unwrap_or(false));
            match self.drain(|calls| calls.is_ready(id, interest)) {
                Ok(true) => return Reading::Ready,
                Ok(false) if is_dead => return Reading::Trouble(Trouble::Gone),
                Ok(false) => {}
                Err(trouble) => return Reading::Trouble(trouble),
            }
        }
    }

    /// Sleeps until the reader has the answer, or somebody else must read; `true` if the deadline came first.
    fn sleep<'a>(
        &'a self,
        mut calls: MutexGuard<'a, Calls>,
        id: u64,
        interest: Interest,
        deadline: Deadline,
    ) -> (MutexGuard<'a, Calls>, bool) {
        let woken = Arc::new(Condvar::new());
        calls.set_sleeper(id, Some(Arc::clone(&woken)));
        let is_over = match deadline.remaining(MonotonicClock.now()) {
            None => {
                calls = woken.wait(calls).unwrap_or_else(PoisonError::into_inner);
                false
            }
            Some(left) => {
                let waited = woken.wait_timeout(calls, left);
                let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                calls = after;
                timeout.timed_out() && !calls.is_ready(id, interest)
            }
        };
        calls.set_sleeper(id, None);
        (calls, is_over)
    }

    /// If nobody reads, finds somebody to do it: one who waits for an answer, or the watcher for all others.
    pub(super) fn hand_on(&self, calls: MutexGuard<'_, Calls>) {
        if calls.reader != Reader::Nobody {
            return;
        }
        if let Some(next) = calls.next_reader() {
            next.notify_one();
        } else if calls.needs_watcher() {
            drop(calls);
            self.wake_watcher();
        }
    }
}
