//! Waiting for packets: what the waiting policy says, done.

use super::consumer::Consumer;
use super::error::ReceiveError;
use super::memory::RingMemory;
use super::packet::Packet;
use super::sync::{Ordering, fence};
use super::wait::{Event, Slept, Step, Wait};
use super::wait_set::{EmptyWaitSet, WaitSet};
use super::words::{AWAKE, SLEEPING};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{SysError, futex};

/// Where something has come that a wait with a wait set was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// A packet on the ring itself, which was received.
    Here,
    /// Something elsewhere, which is for others to receive.
    Elsewhere,
}

/// What a look has found.
#[derive(Clone, Copy)]
enum Sign {
    /// The packet with this sequence word.
    Here(u64),
    Elsewhere,
}

impl Consumer {
    /// Receives the next packet, waiting for it until `deadline`: first by polling, as long as the policy
    /// finds it worthwhile, then asleep, and polling again where the policy knows about when it comes. The
    /// deadline is looked at every 20 us of polling.
    ///
    /// # Errors
    /// [`ReceiveError`]; after `TimedOut` the call can be repeated.
    #[inline]
    pub fn receive(&mut self, packet: &mut Packet, deadline: Deadline) -> Result<(), ReceiveError> {
        self.receive_by(packet, || deadline)
    }

    /// The same, waiting until what `deadline` says, which is asked only if the packet is not there after the
    /// first stretch of polling: one that comes at once costs no look at the clock, and what is kept for
    /// packets that follow at once can be given up then.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    #[inline(always)]
    pub fn receive_by(
        &mut self,
        packet: &mut Packet,
        deadline: impl FnOnce() -> Deadline,
    ) -> Result<(), ReceiveError> {
        self.receive_in(&mut EmptyWaitSet, packet, |_| Some(deadline()))
            .map(|_| ())
    }

    /// The same with a wait set: ends as well when something has come there, and leaves it where it is. What
    /// came on this ring goes first. If `deadline` says nothing, the wait is over with the first stretch of
    /// polling.
    ///
    /// # Errors
    /// As [`Consumer::receive`]; those of the other rings are left to whoever receives from them.
    #[inline(always)]
    pub fn receive_in<C: WaitSet>(
        &mut self,
        wait_set: &mut C,
        packet: &mut Packet,
        deadline: impl FnOnce(&mut C) -> Option<Deadline>,
    ) -> Result<Came, ReceiveError> {
        let mut wait = self.policy.begin();
        let weight = wait_set.polls_in_one();
        loop {
            if let Some(sign) = self.look(wait_set)? {
                self.policy.found_at_once(&wait);
                return self.come(sign, packet);
            }
            if !wait.polls.next(weight) {
                break;
            }
        }
        match deadline(wait_set) {
            Some(deadline) => self.receive_slow(wait_set, packet, deadline, wait),
            None if self.is_closed() => self
                .look_again(wait_set, ReceiveError::Closed)
                .and_then(|sign| self.come(sign, packet)),
            None => Err(ReceiveError::TimedOut),
        }
    }

    /// Whether [`Consumer::receive`] would return at once, now or within the first stretch of polling.
    pub fn is_ready_soon(&mut self) -> bool {
        let mut wait = self.policy.begin();
        loop {
            if self.is_ready() {
                self.policy.found_at_once(&wait);
                return true;
            }
            if !wait.polls.next(1) {
                return false;
            }
        }
    }

    /// Goes on past the first polls, as the policy says.
    #[cold]
    fn receive_slow<C: WaitSet>(
        &mut self,
        wait_set: &mut C,
        packet: &mut Packet,
        deadline: Deadline,
        mut wait: Wait,
    ) -> Result<Came, ReceiveError> {
        let has_rung = self.has_rung(wait_set);
        let mut event = Event::Polled { has_rung };
        loop {
            let mut step = self.policy.next(&mut wait, event);
            if matches!(step, Step::Poll | Step::Yield) && (self.is_closed() || is_past(deadline)) {
                step = self.policy.next(&mut wait, Event::Stopped);
            }
            event = match step {
                Step::Poll => match self.poll_stretch(wait_set, &mut wait)? {
                    Some(sign) => {
                        self.policy.found(&wait);
                        return self.come(sign, packet);
                    }
                    None => Event::Polled { has_rung: false },
                },
                Step::Yield => self.yielder.offer(),
                Step::SleepFor(length) => {
                    let start = MonotonicClock.now();
                    let up = Deadline::after(start, length);
                    if up.earlier(deadline) != up {
                        Event::Stopped
                    } else {
                        match self.sleep_through(wait_set, &wait, start, up) {
                            Err(ReceiveError::TimedOut) => {
                                Event::SleptFor(MonotonicClock.now().saturating_since(start))
                            }
                            sign => return self.come(sign?, packet),
                        }
                    }
                }
                Step::Sleep => {
                    let start = MonotonicClock.now();
                    let sign = self.sleep_through(wait_set, &wait, start, deadline);
                    if sign.is_err() {
                        let whole = MonotonicClock.now().saturating_since(start);
                        self.policy.woken(&wait, Slept::in_vain(whole));
                    }
                    return self.come(sign?, packet);
                }
            };
        }
    }

    /// Polls as often as the policy has said; returns what has come, if something does.
    fn poll_stretch(
        &mut self,
        wait_set: &mut impl WaitSet,
        wait: &mut Wait,
    ) -> Result<Option<Sign>, ReceiveError> {
        loop {
            if let Some(sign) = self.look(wait_set)? {
                return Ok(Some(sign));
            }
            if !wait.polls.next(1) {
                return Ok(None);
            }
        }
    }

    /// Sleeps until something has come, or until `until`, and has the policy learn from it unless that is
    /// what ends it.
    fn sleep_through(
        &mut self,
        wait_set: &mut impl WaitSet,
        wait: &Wait,
        start: TimePoint,
        until: Deadline,
    ) -> Result<Sign, ReceiveError> {
        let rung_before = self.rung_at(wait_set);
        let sign = match self.sleep(wait_set, until) {
            Err(ReceiveError::TimedOut) => return Err(ReceiveError::TimedOut),
            sign => sign?,
        };
        let whole = MonotonicClock.now().saturating_since(start);
        let rung_at = self.rung_at(wait_set);
        let slept = Slept {
            whole,
            // By the rest of it this side is late. Counting that too would keep two sides asleep that each
            // wait for the other to wake up. A packet for which nobody has rung was there at the beginning.
            needed: TimePoint::from_nanos(rung_at).saturating_since(start).min(whole),
            // What a look has found woke nobody.
            was_woken: rung_at != rung_before,
        };
        self.policy.woken(wait, slept);
        Ok(sign)
    }

    /// Whether this process has rung on one of the channels since its consumer last waited for long; tells it
    /// once.
    fn has_rung(&self, wait_set: &impl WaitSet) -> bool {
        let others = wait_set
            .consumers()
            .fold(false, |rung, other| other.parked.take_rang() | rung);
        self.parked.take_rang() | others
    }

    /// When a producer rang last, on whichever ring.
    fn rung_at(&self, wait_set: &impl WaitSet) -> u64 {
        let of = |consumer: &Consumer| consumer.ring.control().doorbell.rung_at.load(Ordering::Relaxed);
        wait_set.consumers().map(of).fold(of(self), u64::max)
    }

    /// Sleeps until something has come.
    fn sleep(&mut self, wait_set: &mut impl WaitSet, deadline: Deadline) -> Result<Sign, ReceiveError> {
        let result = loop {
            self.announce_sleep();
            wait_set.consumers().for_each(Consumer::announce_sleep);
            // Orders the announcements before the last look. The closer has the mirror image of it, and so
            // has the producer unless it was spared it; then a short sleep makes up for that.
            fence(Ordering::SeqCst);
            match self.look_everywhere(wait_set) {
                Ok(None) => {}
                Ok(Some(sign)) => break Ok(sign),
                Err(error) => break Err(error),
            }
            if self.is_closed() {
                // A packet may have been sent between the look above and the end.
                break self.look_again(wait_set, ReceiveError::Closed);
            }
            let until = self.sleep_limit_of_all(wait_set, deadline);
            match self.fall_asleep(wait_set, until) {
                Ok(futex::Wait::TimedOut) if until != deadline => {
                    self.suppression.has_settled(until);
                    wait_set
                        .consumers_mut()
                        .for_each(|other| other.suppression.has_settled(until));
                }
                Ok(futex::Wait::TimedOut) => break self.look_again(wait_set, ReceiveError::TimedOut),
                // The peer can change the word again and again, which must not outlast the deadline.
                Ok(_) if is_past(deadline) => break self.look_again(wait_set, ReceiveError::TimedOut),
                Ok(_) => {}
                Err(error) => break Err(error.into()),
            }
        };
        self.get_up();
        wait_set.consumers_mut().for_each(Consumer::get_up);
        result
    }

    /// Until when this consumer and all others may sleep.
    fn sleep_limit_of_all(&mut self, wait_set: &mut impl WaitSet, deadline: Deadline) -> Deadline {
        let now = MonotonicClock.now();
        let own = self.suppression.sleeps(now, deadline);
        wait_set.consumers_mut().fold(own, |until, other| {
            until.earlier(other.suppression.sleeps(now, deadline))
        })
    }

    /// What has come by now, or else this error.
    fn look_again(&mut self, wait_set: &mut impl WaitSet, none: ReceiveError) -> Result<Sign, ReceiveError> {
        self.look_everywhere(wait_set).and_then(|sign| sign.ok_or(none))
    }

    /// Says that this consumer sleeps. A full fence must follow before it looks for packets and the end.
    fn announce_sleep(&self) {
        self.parked.enter();
        let sleeper = &self.ring.control().doorbell.sleeper;
        sleeper.store(SLEEPING, Ordering::Relaxed);
    }

    /// Sleeps on the words of all rings while each says that its consumer sleeps.
    fn fall_asleep(&self, wait_set: &impl WaitSet, until: Deadline) -> Result<futex::Wait, SysError> {
        let mut others = wait_set.consumers().peekable();
        if others.peek().is_none() {
            return self.ring.sleep(SLEEPING, until);
        }
        let others = others.map(|other| &*other.ring);
        RingMemory::sleep_on_any(std::iter::once(&*self.ring).chain(others), SLEEPING, until)
    }

    /// Says that this consumer does not sleep any more.
    fn get_up(&mut self) {
        let sleeper = &self.ring.control().doorbell.sleeper;
        sleeper.store(AWAKE, Ordering::Relaxed);
        self.suppression.wakes(self.position);
        self.parked.leave();
    }

    /// What has come, as far as one poll shows it: here first.
    #[inline(always)]
    fn look(&mut self, wait_set: &mut impl WaitSet) -> Result<Option<Sign>, ReceiveError> {
        Ok(match self.poll()? {
            Some(word) => Some(Sign::Here(word)),
            None => wait_set.seems_ready().then_some(Sign::Elsewhere),
        })
    }

    /// What has come, wherever that is.
    fn look_everywhere(&mut self, wait_set: &mut impl WaitSet) -> Result<Option<Sign>, ReceiveError> {
        Ok(match self.poll()? {
            Some(word) => Some(Sign::Here(word)),
            None => wait_set.is_ready().then_some(Sign::Elsewhere),
        })
    }

    /// Takes the packet that has come, if it has come here.
    #[inline(always)]
    fn come(&mut self, sign: Sign, packet: &mut Packet) -> Result<Came, ReceiveError> {
        match sign {
            Sign::Here(word) => self.take(word, packet).map(|()| Came::Here),
            Sign::Elsewhere => Ok(Came::Elsewhere),
        }
    }
}

fn is_past(deadline: Deadline) -> bool {
    !deadline.is_none() && deadline.is_past(MonotonicClock.now())
}
