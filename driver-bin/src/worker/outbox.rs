//! Answers on their way to the client.
//!
//! Any thread may post an answer; it is sent at once if the socket takes it. What the socket does not take
//! waits in a bounded queue, for the main thread to send once the client reads again. A client that does not
//! read in time is dropped: the queue would be the memory of answers nobody wants.
//!
//! Descriptors in answers that nobody has read count against the driver's user, whose they are as long as
//! they are on their way: with too many of them the system lets no worker send any more. So only a few go to
//! a client that does not read, and those that follow wait here.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::wire::{self, Event, Message, MessageError, Reply};
use nnhal_hal::Failure;
use nnhal_os::eventfd;
use nnhal_os::socket::{Connection, MESSAGE_BYTES};
use nnhal_os::time::Deadline;

use crate::usage::Quotas;

/// Answers that may wait.
const MAX_WAITING: usize = 1024;

/// After how long to look again whether descriptors can be sent, and how long that may become while they
/// cannot. The system does not tell when they can.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// The client's connection, as those who answer see it.
#[derive(Debug)]
pub(crate) struct Outbox {
    connection: Connection,
    /// Of the protocol, which both sides go on with.
    version: u32,
    queue: Mutex<Queue>,
    has_waiting: AtomicBool,
    is_broken: AtomicBool,
    /// Wakes the main thread.
    wake: OwnedFd,
    quotas: Quotas,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Message, Option<OwnedFd>)>,
    /// Messages with a descriptor that have been sent since all had been read.
    sent_with_fd: usize,
    /// If a descriptor cannot be sent: after how long to look again.
    pause: Option<Duration>,
}

/// Whether a message is off our hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Done,
    /// The client has to read first.
    Full,
    /// Too many descriptors are unread.
    TooManyUnread,
}

impl Outbox {
    pub(crate) fn new(connection: Connection, version: u32, wake: OwnedFd, quotas: Quotas) -> Outbox {
        Outbox {
            connection,
            version,
            quotas,
            queue: Mutex::default(),
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

    /// When to flush although the client's connection says nothing: it is only to be waited for until then.
    /// `None` if the connection says when there is room.
    pub(crate) fn look_again_after(&self) -> Option<Duration> {
        self.lock().pause
    }

    /// Sends what waits, as far as the client reads.
    pub(crate) fn flush(&self) {
        let mut queue = self.lock();
        while let Some((message, fd)) = queue.waiting.pop_front() {
            let sending = self.try_send(&mut queue, &message, fd.as_ref());
            queue.note(sending);
            if sending != Sending::Done {
                queue.waiting.push_front((message, fd));
                break;
            }
        }
        self.has_waiting
            .store(!queue.waiting.is_empty(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole between any two statements of this module.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, message: Message, fd: Option<OwnedFd>) {
        let mut queue = self.lock();
        if queue.waiting.is_empty() {
            let sending = self.try_send(&mut queue, &message, fd.as_ref());
            queue.note(sending);
            if sending == Sending::Done {
                return;
            }
        }
        if queue.waiting.len() >= MAX_WAITING {
            self.break_off("the client does not read its answers");
            queue.waiting.clear();
        } else {
            queue.waiting.push_back((message, fd));
        }
        self.has_waiting
            .store(!queue.waiting.is_empty(), Ordering::Release);
        eventfd::wake(&self.wake);
    }

    fn try_send(&self, queue: &mut Queue, message: &Message, fd: Option<&OwnedFd>) -> Sending {
        if self.is_broken() {
            return Sending::Done;
        }
        if fd.is_some() && self.unread_with_fd(queue) >= self.quotas.unread_descriptors() as usize {
            return Sending::TooManyUnread;
        }
        let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
        match wire::send(&self.connection, self.version, message, &fds, NOW) {
            Ok(()) => {
                queue.sent_with_fd += fds.len();
                Sending::Done
            }
            // It may also be the descriptor that the system does not take: of many workers at once.
            Err(error) if error.is_timeout() && fd.is_some() => Sending::TooManyUnread,
            Err(error) if error.is_timeout() => Sending::Full,
            Err(error) => {
                self.break_off_with(&error);
                Sending::Done
            }
        }
    }

    /// How many messages with a descriptor the client has not read, at most.
    fn unread_with_fd(&self, queue: &mut Queue) -> usize {
        // Where that is not known, they all count.
        let unread = self.connection.unread_bytes().unwrap_or(usize::MAX);
        if unread == 0 {
            queue.sent_with_fd = 0;
        }
        queue.sent_with_fd.min(unread / MESSAGE_BYTES)
    }

    fn break_off_with(&self, error: &MessageError) {
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

impl Queue {
    fn note(&mut self, sending: Sending) {
        self.pause = match (sending, self.pause) {
            (Sending::TooManyUnread, None) => Some(FIRST_PAUSE),
            (Sending::TooManyUnread, Some(pause)) => Some((2 * pause).min(LONGEST_PAUSE)),
            (Sending::Done | Sending::Full, _) => None,
        };
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
            Outbox::new(ours, VERSIONS.newest, eventfd::create().unwrap(), Quotas::alone()),
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
        assert!(outbox.lock().waiting.is_empty());
    }

    #[test]
    fn few_descriptors_are_under_way_to_a_client_that_does_not_read() {
        let (outbox, client) = outbox();
        let most = u64::from(outbox.quotas.unread_descriptors());
        let post = |id| outbox.reply_with(id, Reply::Done, Some(eventfd::create().unwrap()));
        (0..most).for_each(post);
        assert!(!outbox.has_waiting());
        (most..2 * most).for_each(post);
        assert!(outbox.has_waiting());
        assert_eq!(outbox.lock().waiting.len() as u64, most);
        let pauses: Vec<_> = (0..10)
            .map(|_| {
                outbox.flush();
                outbox.look_again_after().unwrap()
            })
            .collect();
        assert!(
            pauses.is_sorted() && pauses.ends_with(&[LONGEST_PAUSE; 2]),
            "{pauses:?}"
        );
        let mut inbox = Inbox::new();
        for expected in 0..2 * most {
            let (message, fds) = inbox.receive::<Message>(&client, NOW).unwrap();
            assert_eq!((id_of(&message), fds.len()), (expected, 1));
            outbox.flush();
        }
        assert!(!outbox.has_waiting());
        assert_eq!(outbox.look_again_after(), None);
        // Who reads is not held up by how many it has read.
        for id in 0..2 * most {
            post(id);
            assert!(!outbox.has_waiting());
            inbox.receive::<Message>(&client, NOW).unwrap();
        }
    }

    #[test]
    fn answers_to_a_client_that_is_gone_are_dropped() {
        let (outbox, client) = outbox();
        drop(client);
        outbox.reply(1, Ok(Reply::Done));
        assert!(outbox.is_broken() && !outbox.has_waiting());
    }
}
