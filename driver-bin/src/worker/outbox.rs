//! Answers on their way to the client.
//!
//! Any thread may post an answer; it is sent at once if the socket takes it. What the socket does not take
//! waits in a bounded queue, for the main thread to send once the client reads again. A client that does not
//! read in time is dropped: the queue would be the memory of answers nobody wants.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nnhal::diag::tags;
use nnhal::wire::{self, ChannelError, Event, Message, Reply};
use nnhal_hal::Failure;
use nnhal_os::eventfd;
use nnhal_os::socket::Connection;
use nnhal_os::time::Deadline;

/// Answers that may wait.
const MAX_WAITING: usize = 1024;

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// The client's connection, as those who answer see it.
#[derive(Debug)]
pub(crate) struct Outbox {
    connection: Connection,
    /// Of the protocol, which both sides go on with.
    version: u32,
    waiting: Mutex<VecDeque<(Message, Option<OwnedFd>)>>,
    has_waiting: AtomicBool,
    is_broken: AtomicBool,
    /// Wakes the main thread.
    wake: OwnedFd,
}

impl Outbox {
    pub(crate) fn new(connection: Connection, version: u32, wake: OwnedFd) -> Outbox {
        Outbox {
            connection,
            version,
            waiting: Mutex::default(),
            has_waiting: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            wake,
        }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Answers a call.
    pub(crate) fn reply(&self, id: u64, result: Result<Reply, Failure>) {
        self.post(Message::Reply { id, result }, None);
    }

    /// Answers a call, with a descriptor.
    pub(crate) fn reply_with(&self, id: u64, reply: Reply, fd: Option<OwnedFd>) {
        self.post(
            Message::Reply {
                id,
                result: Ok(reply),
            },
            fd,
        );
    }

    /// Tells what a call has come to.
    pub(crate) fn event(&self, id: u64, event: Event) {
        self.post(Message::Event { id, event }, None);
    }

    /// Says why the worker is about to end.
    pub(crate) fn goodbye(&self, reason: &str) {
        self.post(
            Message::Goodbye {
                reason: reason.to_owned(),
            },
            None,
        );
    }

    /// Whether answers wait for the client to read.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Acquire)
    }

    /// Whether the client can no longer be answered.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Sends what waits, as far as the client reads.
    pub(crate) fn flush(&self) {
        let mut waiting = self.lock();
        while let Some((message, fd)) = waiting.pop_front() {
            if !self.try_send(&message, fd.as_ref()) {
                waiting.push_front((message, fd));
                break;
            }
        }
        self.has_waiting.store(!waiting.is_empty(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Message, Option<OwnedFd>)>> {
        // The queue is whole between any two statements of this module.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, message: Message, fd: Option<OwnedFd>) {
        let mut waiting = self.lock();
        if waiting.is_empty() && self.try_send(&message, fd.as_ref()) {
            return;
        }
        if waiting.len() >= MAX_WAITING {
            self.break_off("the client does not read its answers");
            waiting.clear();
        } else {
            waiting.push_back((message, fd));
        }
        self.has_waiting.store(!waiting.is_empty(), Ordering::Release);
        // A full counter wakes as well.
        let _ = eventfd::add(&self.wake, 1);
    }

    /// Whether the message is off our hands.
    fn try_send(&self, message: &Message, fd: Option<&OwnedFd>) -> bool {
        if self.is_broken() {
            return true;
        }
        let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
        match wire::send(&self.connection, self.version, message, &fds, NOW) {
            Ok(()) => true,
            Err(error) if error.is_timeout() => false,
            Err(error) => {
                self.break_off_with(&error);
                true
            }
        }
    }

    fn break_off_with(&self, error: &ChannelError) {
        if error.is_closed() {
            self.is_broken.store(true, Ordering::Release);
        } else {
            self.break_off(&error.to_string());
        }
    }

    fn break_off(&self, reason: &str) {
        tracing::warn!(target: tags::DRIVER, reason, "the client can no longer be answered");
        self.is_broken.store(true, Ordering::Release);
        self.connection.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nnhal::wire::Inbox;
    use nnhal::wire::handshake::VERSIONS;
    use nnhal_os::time::{Clock, MonotonicClock};

    use super::*;

    fn outbox() -> (Outbox, Connection) {
        let (ours, theirs) = Connection::pair().unwrap();
        (
            Outbox::new(ours, VERSIONS.newest, eventfd::create().unwrap()),
            theirs,
        )
    }

    fn id_of(message: &Message) -> u64 {
        match message {
            Message::Reply { id, .. } => *id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_wait_for_a_slow_client_and_keep_their_order() {
        let (outbox, client) = outbox();
        let text = "x".repeat(Failure::MAX_DETAIL - 10);
        let mut sent = 0;
        while !outbox.has_waiting() {
            outbox.reply(sent, Err(Failure::general(text.clone())));
            sent += 1;
        }
        outbox.reply(sent, Ok(Reply::Done));
        assert_eq!(eventfd::drain(&outbox.wake).unwrap(), 2);
        let mut inbox = Inbox::new();
        let soon = Deadline::after(MonotonicClock.now(), Duration::from_secs(10));
        for expected in 0..=sent {
            let (message, _) = inbox.receive::<Message>(&client, soon).unwrap();
            assert_eq!(id_of(&message), expected);
            outbox.flush();
        }
        assert!(!outbox.has_waiting() && !outbox.is_broken());
    }

    #[test]
    fn client_that_never_reads_is_dropped() {
        let (outbox, _client) = outbox();
        let text = "x".repeat(Failure::MAX_DETAIL - 10);
        let mut posted = 0;
        while !outbox.is_broken() {
            outbox.reply(posted, Err(Failure::general(text.clone())));
            posted += 1;
            assert!(posted < 10_000);
        }
        assert!(outbox.lock().is_empty());
    }

    #[test]
    fn answers_to_a_client_that_is_gone_are_dropped() {
        let (outbox, client) = outbox();
        drop(client);
        outbox.reply(1, Ok(Reply::Done));
        assert!(outbox.is_broken() && !outbox.has_waiting());
    }
}
