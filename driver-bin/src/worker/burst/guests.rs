//! Bursts that the thread of another one serves.
//!
//! A poll of the host's should take hardly longer than one without guests, or requests are seen later. So it
//! looks at those guests that something has come for lately, and now and then at one of the others. What is
//! served without a pause is interrupted after some rounds by a look at all of them.

use std::sync::Arc;
use std::time::Duration;

use nnhal::fmq::{Consumer, WaitSet, Waker};
use nnhal_os::time::{Deadline, TimePoint};

use super::guest::Guest;
use super::move_to_front::{Look, MoveToFront};
use super::runner::Runner;
use super::serve::Server;
use super::sharing::Sharing;

/// How many of the guests that are busy are looked at in one poll.
const BUSY_GLANCES: usize = 4;

/// A look at a guest takes about as long as so many polls of a ring alone that do not pause, and the look
/// whether there are any as one.
const POLLS_IN_GLANCE: u32 = 4;

/// In one poll of so many, one guest is looked at that is not busy.
const POLLS_BETWEEN_OTHERS: u32 = 8;

/// A guest for which nothing has come in so many looks is not busy any more: some microseconds where one is.
const BUSY_FOR: u32 = 256;

/// After so many batch of requests without a pause, of the host and of guests, all guests are looked at, and
/// all give back what they keep between requests, so that what the client has freed goes.
const SERIES_BETWEEN_ROUNDS: u32 = 64;

/// The guests of one thread: of a host, or nobody's.
#[derive(Debug)]
pub(super) struct Guests<'a> {
    host: Option<(&'a Sharing, Arc<Waker>)>,
    guests: MoveToFront<Guest>,
    polls_until_others: u32,
    /// For whom something has come.
    ready: Option<usize>,
    /// Batch since the last round or pause.
    batch: u32,
    memory: MemoryLook,
}

/// When to look whether guests have not used their memory for long.
#[derive(Debug, Default)]
struct MemoryLook {
    /// Whether any has used it since the last look.
    is_used: bool,
    next: Option<TimePoint>,
}

impl<'a> Guests<'a> {
    /// Those of a thread that is no host.
    pub(super) fn none() -> Guests<'a> {
        Guests::new(None)
    }

    /// Those of the host with this waker.
    pub(super) fn of_host(sharing: &'a Sharing, waker: Arc<Waker>) -> Guests<'a> {
        Guests::new(Some((sharing, waker)))
    }

    fn new(host: Option<(&'a Sharing, Arc<Waker>)>) -> Guests<'a> {
        Guests {
            host,
            guests: MoveToFront::new(),
            polls_until_others: POLLS_BETWEEN_OTHERS,
            ready: None,
            batch: 0,
            memory: MemoryLook::default(),
        }
    }

    /// Carries out what has come for guests that are busy, a batch for each at most: between two batch of
    /// the host's own, which go first while it waits.
    #[inline]
    pub(super) fn serve_between(&mut self, host: &mut Runner) {
        if self.host.is_none() {
            return;
        }
        self.count_series(host);
        for _ in 0..self.guests.busy().max(1) {
            if !self.seems_ready() {
                break;
            }
            self.serve(host);
        }
    }

    /// Carries out what was seen to have come for a guest, and sends it home if it is to go; lets in those
    /// that have arrived. The slot goes from the host to the guest and back.
    pub(super) fn serve(&mut self, host: &mut Runner) {
        self.let_in();
        let Some(at) = self.ready.take() else { return };
        let Some(server) = self.guests.get_mut(at).and_then(Guest::server) else {
            return;
        };
        host.pass_slot(&mut server.runner);
        let stays = server.serve_ready();
        server.runner.pass_slot(host);
        self.memory.is_used = true;
        if !stays {
            let guest = self.guests.remove(at);
            self.goes_home(guest);
        }
        self.count_series(host);
    }

    #[inline]
    fn count_series(&mut self, host: &mut Runner) {
        self.batch = if self.is_empty() { 0 } else { self.batch + 1 };
        if self.batch >= SERIES_BETWEEN_ROUNDS {
            self.go_round();
            host.rest();
        }
    }

    /// Has all guests rest, sends those home that have ended, and finds out for which something has come that
    /// are not busy.
    #[cold]
    fn go_round(&mut self) {
        self.rest();
        let gone = self.guests.go_round(|guest| {
            let Some(server) = guest.server() else {
                return Look::Same;
            };
            if server.has_no_more() {
                // Its own thread finds out, too.
                Look::Gone
            } else if server.consumer_mut().has_packet() {
                Look::Busy
            } else {
                Look::Same
            }
        });
        gone.into_iter().for_each(|guest| self.goes_home(guest));
    }

    /// Has no thread be a host any more.
    pub(super) fn give_sharing_up(&self) {
        if let Some((sharing, _)) = &self.host {
            sharing.give_up();
        }
    }

    /// Whether the thread has had no pause for so long that it is time to look whether its own burst has
    /// ended.
    #[inline]
    pub(super) fn has_gone_round(&self) -> bool {
        self.batch == 0
    }

    fn let_in(&mut self) {
        if let Some((sharing, waker)) = &self.host
            && waker.is_woken()
        {
            waker.clear();
            let arrived = sharing.arrived(waker);
            arrived.into_iter().for_each(|guest| self.guests.push_busy(guest));
            // What its executions hold was taken before.
            self.memory.is_used = true;
        }
    }

    #[cold]
    fn goes_home(&self, guest: Guest) {
        drop(guest);
        if let Some((sharing, waker)) = &self.host {
            sharing.has_left(waker);
        }
    }

    /// Looks at one of the guests that are not busy now and then, and at some of those that are.
    #[inline]
    fn glance(&mut self) -> bool {
        self.polls_until_others -= 1;
        if self.polls_until_others == 0 && self.glance_at_other() {
            return true;
        }
        for _ in 0..self.guests.busy().min(BUSY_GLANCES) {
            let Some((at, guest)) = self.guests.next_busy() else {
                break;
            };
            if guest.has_packet() {
                self.ready = Some(at);
                return true;
            }
            if guest.looks_in_vain >= BUSY_FOR {
                self.let_be(at);
            }
        }
        false
    }

    #[cold]
    fn glance_at_other(&mut self) -> bool {
        self.polls_until_others = POLLS_BETWEEN_OTHERS;
        let Some((at, guest)) = self.guests.next_other() else {
            return false;
        };
        let is_ready = guest.is_ready();
        if is_ready {
            self.ready = Some(self.guests.make_busy(at));
        }
        is_ready
    }

    /// Nothing has come for this one in a while.
    #[cold]
    fn let_be(&mut self, at: usize) {
        let at = self.guests.make_idle(at);
        if let Some(server) = self.guests.get_mut(at).and_then(Guest::server) {
            server.rest();
        }
    }

    /// Has them give back what they keep between requests that follow each other at once: only who is busy
    /// keeps something.
    pub(super) fn rest(&mut self) {
        self.batch = 0;
        self.guests
            .busy_mut()
            .filter_map(Guest::server)
            .for_each(Server::rest);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Has those give back the memory of their executions that did not use it for that long, twice as long at
    /// most; returns when to look again.
    pub(super) fn release_unused_memory(&mut self, now: TimePoint, patience: Duration) -> Deadline {
        if std::mem::take(&mut self.memory.is_used) && self.memory.next.is_none() {
            self.memory.next = Some(now);
        }
        match self.memory.next {
            None => return Deadline::NONE,
            Some(next) if now < next => return Deadline::at(next),
            Some(_) => {}
        }
        let holds = self
            .guests
            .iter_mut()
            .filter_map(Guest::server)
            .fold(false, |any, server| {
                server.runner.release_unused_memory(now, patience) | any
            });
        self.memory.next = holds.then(|| now.saturating_add(patience));
        self.memory.next.map_or(Deadline::NONE, Deadline::at)
    }
}

impl WaitSet for Guests<'_> {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.guests.iter().filter_map(Guest::consumer)
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        let servers = self.guests.iter_mut().filter_map(Guest::server);
        servers.map(Server::consumer_mut)
    }

    #[inline]
    fn waker(&self) -> Option<&Waker> {
        self.host.as_ref().map(|(_, waker)| &**waker)
    }

    #[inline]
    fn polls_in_one(&self) -> u32 {
        let glances = self.guests.busy().min(BUSY_GLANCES) as u32;
        1 + u32::from(self.host.is_some()) + glances * POLLS_IN_GLANCE
    }

    fn is_ready(&mut self) -> bool {
        let first = self.guests.iter_mut().position(Guest::is_ready);
        self.ready = first.map(|at| self.guests.make_busy(at));
        self.ready.is_some() || self.waker().is_some_and(Waker::is_woken)
    }

    #[inline]
    fn seems_ready(&mut self) -> bool {
        match self.waker() {
            None => false,
            Some(waker) if waker.is_woken() => true,
            Some(_) => self.glance(),
        }
    }
}

impl Drop for Guests<'_> {
    fn drop(&mut self) {
        if let Some((sharing, waker)) = &self.host {
            sharing.closes(waker);
        }
    }
}
