//! A thread that serves a burst, and perhaps others that are lent to it: what the polling policy says, done.

use std::sync::Arc;
use std::time::Duration;

use nnhal::fmq::{Consumer, WaitSet, Waker};
use nnhal_os::time::{Deadline, TimePoint};

use super::lent::LentBurst;
use super::places::Places;
use super::polling::PollOrder;
use super::runner::Runner;

/// A look at a lent burst takes about as long as so many polls of a ring alone that do not pause, and the
/// look whether there are any as one.
const POLLS_IN_LOOK: u32 = 4;

/// What a thread serves beside its own burst: as a shared poller, or nothing.
#[derive(Debug)]
pub(super) struct Poller<'a> {
    /// A shared poller's place.
    place: Option<(&'a Places, Arc<Waker>)>,
    lent: PollOrder<LentBurst>,
    memory: MemoryLook,
}

/// When to look whether lent bursts have not used their memory for long.
#[derive(Debug, Default)]
struct MemoryLook {
    /// Whether any has used it since the last look.
    is_used: bool,
    next: Option<TimePoint>,
}

impl<'a> Poller<'a> {
    /// A thread that serves its own burst alone.
    pub(super) fn alone() -> Poller<'a> {
        Poller::new(None)
    }

    /// A shared poller, which this waker calls.
    pub(super) fn shared(places: &'a Places, waker: Arc<Waker>) -> Poller<'a> {
        Poller::new(Some((places, waker)))
    }

    fn new(place: Option<(&'a Places, Arc<Waker>)>) -> Poller<'a> {
        Poller {
            place,
            lent: PollOrder::new(),
            memory: MemoryLook::default(),
        }
    }

    /// Carries out what has come for lent bursts that are in use, a batch for each at most: between two
    /// batches of the own burst, which goes first while the thread waits.
    #[inline]
    pub(super) fn serve_between(&mut self, own: &mut Runner) {
        if self.place.is_none() {
            return;
        }
        self.end_batch(own);
        for _ in 0..self.lent.batches_between() {
            if !self.seems_ready() {
                break;
            }
            self.serve(own);
        }
    }

    /// Whether other bursts can be lent to it.
    pub(super) fn is_shared(&self) -> bool {
        self.place.is_some()
    }

    /// Gives the lent bursts back, and is a shared poller no more, if the next request would wait for a slot
    /// for long: the others would wait behind it, though they are cancelled, or late.
    #[inline]
    pub(super) fn separate_without_slot(&mut self, own: &mut Runner) {
        if self.is_shared() && !own.takes_slot_soon() {
            *self = Poller::alone();
        }
    }

    /// Carries out what was seen to have come for a lent burst, and gives it back if it is to go; takes in
    /// those that have arrived. The slot goes from the own burst to the lent one and back.
    pub(super) fn serve(&mut self, own: &mut Runner) {
        self.take_in();
        self.separate_without_slot(own);
        let Some((at, burst)) = self.lent.take_ready() else {
            return;
        };
        let Some(server) = burst.server() else { return };
        own.pass_slot(&mut server.runner);
        let stays = server.serve_ready();
        server.runner.pass_slot(own);
        self.memory.is_used = true;
        if !stays {
            let burst = self.lent.remove(at);
            self.give_back(burst);
        }
        self.end_batch(own);
    }

    #[inline]
    fn end_batch(&mut self, own: &mut Runner) {
        if self.lent.end_batch() {
            self.go_round();
            own.rest();
        }
    }

    /// Has all lent bursts rest, and gives those back that have ended: their own threads find out, too.
    #[cold]
    fn go_round(&mut self) {
        self.rest();
        let has_ended = |burst: &mut LentBurst| burst.server().is_some_and(|server| server.has_no_more());
        let gone = self.lent.take_gone(has_ended);
        gone.into_iter().for_each(|burst| self.give_back(burst));
    }

    /// Has no thread be a shared poller any more.
    pub(super) fn give_sharing_up(&self) {
        if let Some((places, _)) = &self.place {
            places.give_up();
        }
    }

    /// Whether the thread has had no pause for so long that it is time to look whether its own burst has
    /// ended.
    #[inline]
    pub(super) fn has_gone_round(&self) -> bool {
        self.lent.has_gone_round()
    }

    fn take_in(&mut self) {
        if let Some((places, waker)) = &self.place
            && waker.is_woken()
        {
            waker.clear();
            let arrived = places.arrived(waker);
            arrived.into_iter().for_each(|burst| self.lent.push(burst));
            // What its executions hold was taken before.
            self.memory.is_used = true;
        }
    }

    #[cold]
    fn give_back(&self, burst: LentBurst) {
        drop(burst);
        if let Some((places, waker)) = &self.place {
            places.has_left(waker);
        }
    }

    /// Has lent bursts give back what they keep between requests that follow each other at once: only those
    /// in use keep something.
    pub(super) fn rest(&mut self) {
        self.lent.pause().for_each(LentBurst::rest);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// Has those give back the memory of their executions that did not use it for that long, twice as long at
    /// most; returns when to look again.
    pub(super) fn release_unused_memory(&mut self, now: TimePoint, unused_for: Duration) -> Deadline {
        if std::mem::take(&mut self.memory.is_used) && self.memory.next.is_none() {
            self.memory.next = Some(now);
        }
        match self.memory.next {
            None => return Deadline::NONE,
            Some(next) if now < next => return Deadline::at(next),
            Some(_) => {}
        }
        let holds = self
            .lent
            .iter_mut()
            .filter_map(LentBurst::server)
            .fold(false, |any, server| {
                server.runner.release_unused_memory(now, unused_for) | any
            });
        self.memory.next = holds.then(|| now.saturating_add(unused_for));
        self.memory.next.map_or(Deadline::NONE, Deadline::at)
    }
}

impl WaitSet for Poller<'_> {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.lent.iter().filter_map(LentBurst::consumer)
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        let servers = self.lent.iter_mut().filter_map(LentBurst::server);
        servers.map(|server| server.consumer_mut())
    }

    #[inline]
    fn waker(&self) -> Option<&Waker> {
        self.place.as_ref().map(|(_, waker)| &**waker)
    }

    #[inline]
    fn polls_in_one(&self) -> u32 {
        let looks = self.lent.looks_in_poll() as u32;
        1 + u32::from(self.place.is_some()) + looks * POLLS_IN_LOOK
    }

    fn is_ready(&mut self) -> bool {
        let is_ready = self.lent.poll_all(LentBurst::is_ready);
        is_ready || self.waker().is_some_and(Waker::is_woken)
    }

    #[inline]
    fn seems_ready(&mut self) -> bool {
        match self.waker() {
            None => false,
            Some(waker) if waker.is_woken() => true,
            Some(_) => self.lent.poll(LentBurst::has_packet, LentBurst::rest),
        }
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        if let Some((places, waker)) = &self.place {
            places.closes(waker);
        }
    }
}
