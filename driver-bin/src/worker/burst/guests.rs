//! Bursts that the thread of another one serves.
//!
//! A poll of the host's must take no longer than one without guests, or requests are seen later. So it looks at those guests
//! that something has come for lately, and now and then at one of the others.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal::fmq::{Bell, Company, Consumer};
use nnhal::time::{Deadline, TimePoint};

use super::serve::{Runner, Server};
use super::sharing::Sharing;

/// How many of the guests that are busy are looked at in one poll.
const BUSY_GLANCES: usize = 4;

/// In one poll of so many, one guest is looked at that is not busy.
const POLLS_BETWEEN_OTHERS: u32 = 8;

/// A guest for which nothing has come in so many looks is not busy any more: some microseconds where one is.
const BUSY_FOR: u32 = 256;

/// After so many requests without a pause guests give back what they keep between requests, so that what the client has freed
/// goes.
const REQUESTS_BETWEEN_RESTS: u32 = 64;

/// The guests of one thread: of a host, or nobody's.
#[derive(Debug)]
pub(super) struct Guests<'a> {
    host: Option<(&'a Sharing, Arc<Bell>)>,
    /// Those that are busy first.
    guests: Vec<Guest>,
    busy: usize,
    /// Which of those that are busy, and of the others, to look at next.
    next_busy: usize,
    next_other: usize,
    polls_until_others: u32,
    /// For whom something has come.
    ready: Option<usize>,
    /// Requests since the guests have last given back what they keep between requests.
    requests: u32,
    memory: MemoryLook,
}

/// When to look whether guests have not used their memory for long.
#[derive(Debug, Default)]
struct MemoryLook {
    /// Whether any has used it since the last look.
    is_used: bool,
    next: Option<TimePoint>,
}

/// A burst that is lent to a host. It goes home when this is dropped, whatever happens to the host.
#[derive(Debug)]
pub(super) struct Guest {
    server: Option<Box<Server>>,
    home: Arc<Home>,
    /// Looks since something has come for it.
    looks_in_vain: u32,
}

/// Where a burst's thread waits for the burst.
#[derive(Debug, Default)]
pub(super) struct Home {
    returned: Mutex<Option<Box<Server>>>,
    has_returned: Condvar,
}

impl<'a> Guests<'a> {
    /// Those of a thread that is no host.
    pub(super) fn none() -> Guests<'a> {
        Guests::new(None)
    }

    /// Those of the host with this bell.
    pub(super) fn of_host(sharing: &'a Sharing, bell: Arc<Bell>) -> Guests<'a> {
        Guests::new(Some((sharing, bell)))
    }

    fn new(host: Option<(&'a Sharing, Arc<Bell>)>) -> Guests<'a> {
        Guests {
            host,
            guests: Vec::new(),
            busy: 0,
            next_busy: 0,
            next_other: 0,
            polls_until_others: POLLS_BETWEEN_OTHERS,
            ready: None,
            requests: 0,
            memory: MemoryLook::default(),
        }
    }

    /// Carries out what has come for one of the guests that are busy, if something has: between requests of the host's own,
    /// which go first while it waits.
    #[inline]
    pub(super) fn serve_between(&mut self, host: &mut Runner) {
        if self.seems_ready() {
            self.serve(host);
        }
    }

    /// Carries out what was seen to have come for a guest, and sends it home if it is to go; lets in those that have arrived. The
    /// slot goes from the host to the guest and back.
    pub(super) fn serve(&mut self, host: &mut Runner) {
        self.let_in();
        let Some(at) = self.ready.take() else { return };
        let Some(server) = self.guests.get_mut(at).and_then(Guest::server) else {
            return;
        };
        host.pass_slot(server.runner());
        let stays = server.serve_ready();
        server.runner().pass_slot(host);
        self.memory.is_used = true;
        if !stays {
            self.send_home(at);
        }
        self.requests += 1;
        if self.requests >= REQUESTS_BETWEEN_RESTS {
            self.rest();
            host.rest();
        }
    }

    fn let_in(&mut self) {
        if let Some((sharing, bell)) = &self.host
            && bell.has_rung()
        {
            bell.silence();
            self.guests.extend(sharing.arrived(bell));
        }
    }

    #[cold]
    fn send_home(&mut self, at: usize) {
        let at = self.is_idle(at);
        drop(self.guests.swap_remove(at));
        if let Some((sharing, bell)) = &self.host {
            sharing.has_left(bell);
        }
    }

    /// Looks at some of the guests that are busy.
    #[inline]
    fn glance(&mut self) -> bool {
        for _ in 0..self.busy.min(BUSY_GLANCES) {
            if self.next_busy >= self.busy {
                self.next_busy = 0;
            }
            let at = self.next_busy;
            let Some(guest) = self.guests.get_mut(at) else {
                break;
            };
            if guest.has_packet() {
                self.next_busy = at + 1;
                self.ready = Some(at);
                return true;
            }
            if guest.looks_in_vain >= BUSY_FOR {
                self.is_idle(at);
            } else {
                self.next_busy = at + 1;
            }
        }
        self.polls_until_others -= 1;
        self.polls_until_others == 0 && self.glance_at_other()
    }

    /// Looks at one of the guests that are not busy.
    #[cold]
    fn glance_at_other(&mut self) -> bool {
        self.polls_until_others = POLLS_BETWEEN_OTHERS;
        if self.next_other < self.busy || self.next_other >= self.guests.len() {
            self.next_other = self.busy;
        }
        let at = self.next_other;
        self.next_other += 1;
        let is_ready = self.guests.get_mut(at).is_some_and(Guest::is_ready);
        if is_ready {
            self.ready = Some(self.is_busy(at));
        }
        is_ready
    }

    /// Something has come for this one. Returns where it is now.
    fn is_busy(&mut self, at: usize) -> usize {
        if at < self.busy {
            return at;
        }
        self.guests.swap(at, self.busy);
        self.busy += 1;
        self.busy - 1
    }

    /// Nothing has come for this one in a while, or nothing will. Returns where it is now.
    #[cold]
    fn is_idle(&mut self, at: usize) -> usize {
        if at >= self.busy {
            return at;
        }
        self.busy -= 1;
        self.guests.swap(at, self.busy);
        self.busy
    }

    /// Has them give back what they keep between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.requests = 0;
        let busy = self.guests.iter_mut().take(self.busy);
        busy.filter_map(Guest::server).for_each(Server::rest);
    }

    /// Has those give back the memory of their executions that did not use it for that long, twice as long at most; returns
    /// when to look again.
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
                server.runner().release_unused_memory(now, patience) | any
            });
        self.memory.next = holds.then(|| now.saturating_add(patience));
        self.memory.next.map_or(Deadline::NONE, Deadline::at)
    }
}

impl Company for Guests<'_> {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        let servers = self.guests.iter().filter_map(|guest| guest.server.as_ref());
        servers.map(|server| server.consumer())
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        let servers = self.guests.iter_mut().filter_map(Guest::server);
        servers.map(Server::consumer_mut)
    }

    #[inline]
    fn bell(&self) -> Option<&Bell> {
        self.host.as_ref().map(|(_, bell)| &**bell)
    }

    fn is_ready(&mut self) -> bool {
        if let Some(at) = self.guests.iter_mut().position(Guest::is_ready) {
            self.ready = Some(self.is_busy(at));
            return true;
        }
        self.bell().is_some_and(Bell::has_rung)
    }

    #[inline]
    fn seems_ready(&mut self) -> bool {
        match self.bell() {
            None => false,
            Some(bell) if bell.has_rung() => true,
            Some(_) => self.glance(),
        }
    }
}

impl Drop for Guests<'_> {
    fn drop(&mut self) {
        if let Some((sharing, bell)) = &self.host {
            sharing.closes(bell);
        }
    }
}

impl Guest {
    pub(super) fn new(server: Box<Server>, home: Arc<Home>) -> Guest {
        Guest {
            server: Some(server),
            home,
            looks_in_vain: 0,
        }
    }

    #[inline]
    fn server(&mut self) -> Option<&mut Server> {
        self.server.as_deref_mut()
    }

    /// Whether a packet has come. Of the end it says nothing.
    #[inline]
    fn has_packet(&mut self) -> bool {
        let has_packet = self
            .server()
            .is_some_and(|server| server.consumer_mut().has_packet());
        self.looks_in_vain = if has_packet { 0 } else { self.looks_in_vain + 1 };
        has_packet
    }

    /// Whether a packet or the end has come.
    fn is_ready(&mut self) -> bool {
        self.looks_in_vain = 0;
        self.server()
            .is_some_and(|server| server.consumer_mut().is_ready())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.rest();
            *self.home.lock() = Some(server);
            self.home.has_returned.notify_one();
        }
    }
}

impl Home {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Server>>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the burst is home.
    pub(super) fn wait(&self) -> Box<Server> {
        let mut returned = self.lock();
        loop {
            match returned.take() {
                Some(server) => return server,
                None => {
                    let woken = self.has_returned.wait(returned);
                    returned = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
