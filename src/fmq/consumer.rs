//! The receiving end of a ring.

use std::sync::Arc;
use std::time::Duration;

use super::closer::close_ring;
use super::error::{Misbehaviour, ReceiveError};
use super::layout::{AWAKE, PAYLOAD_WORDS, SLEEPING, cell_count, idle_stamp, sequence_word, stamp};
use super::memory::RingMemory;
use super::packet::Packet;
use super::parked::Parked;
use super::suppression::Suppression;
use super::sync::{Ordering, fence};
use super::timed_sleep::TimedSleep;
use super::wait::{Spin, WaitPolicy, WaitSettings};
use super::wait_set::{EmptyWaitSet, WaitSet};
use super::waker::Waker;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{SysError, futex};

/// Receives packets. Dropping it closes the ring.
#[derive(Debug)]
pub struct Consumer {
    ring: Arc<RingMemory>,
    parked: Arc<Parked>,
    /// Position of the next cell to read; never read back from the ring.
    position: u64,
    policy: WaitPolicy,
    suppression: Suppression,
    poison: Option<Misbehaviour>,
}

impl Consumer {
    pub(super) fn new(ring: Arc<RingMemory>, parked: Arc<Parked>, settings: WaitSettings) -> Self {
        Self {
            ring,
            parked,
            position: 0,
            policy: WaitPolicy::new(settings),
            suppression: Suppression::new(),
            poison: None,
        }
    }

    /// A buffer for the longest packet of this ring.
    pub fn new_packet(&self) -> Packet {
        Packet::with_room_for(self.ring.capacity() as usize)
    }

    /// A waker for a thread that waits for this ring's packets.
    pub fn new_waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.ring))
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, settings: WaitSettings) {
        self.policy = WaitPolicy::new(settings);
    }

    /// How this end waits.
    pub fn policy(&self) -> &WaitPolicy {
        &self.policy
    }

    /// How long the next sleep lasts at most, if it is a short one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleep_limit(&self) -> Option<Duration> {
        self.suppression.limit()
    }

    /// What it says of its sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeper_word(&self) -> u32 {
        self.ring.control().doorbell.sleeper.load(Ordering::Relaxed)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn parked(&self) -> &Parked {
        &self.parked
    }

    /// Has it suppress notification as this says from now on.
    #[cfg(all(test, loom))]
    pub(super) fn set_suppression(&mut self, suppression: Suppression) {
        self.suppression = suppression;
    }

    /// Has its next wait begin with a timed sleep and go on with a few polls.
    #[cfg(all(test, loom))]
    pub(super) fn expect_timed_sleep(&mut self) {
        self.policy = WaitPolicy::napping();
    }

    /// Has the policy learn that waits are all so long; says whether the next has a timed sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn expect_waits_of(&mut self, wait: Duration) -> bool {
        for _ in 0..64 {
            self.policy.timed_sleeps().record(wait.as_nanos() as u64);
        }
        self.policy.timed_sleep(&self.policy.start()).is_some()
    }

    /// Receives the next packet if it is there; `false` if not.
    ///
    /// # Errors
    /// [`ReceiveError::Closed`] if there is none and none will come, [`ReceiveError::Poisoned`].
    #[inline]
    pub fn try_receive(&mut self, packet: &mut Packet) -> Result<bool, ReceiveError> {
        if let Some(word) = self.poll()? {
            self.take(word, packet)?;
            return Ok(true);
        }
        if !self.is_closed() {
            return Ok(false);
        }
        // What was sent before the end still counts.
        match self.poll()? {
            Some(word) => self.take(word, packet).map(|()| true),
            None => Err(ReceiveError::Closed),
        }
    }

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
        self.policy.review_if_due();
        let mut spin = self.policy.start();
        let polls = wait_set.polls_in_one();
        loop {
            if let Some(sign) = self.look(wait_set)? {
                self.policy.record(spin.waited());
                return self.come(sign, packet);
            }
            if !spin.next_of(polls) {
                break;
            }
        }
        match deadline(wait_set) {
            Some(deadline) => self.receive_slow(wait_set, packet, deadline, spin),
            None if self.is_closed() => self
                .look_again(wait_set, ReceiveError::Closed)
                .and_then(|sign| self.come(sign, packet)),
            None => Err(ReceiveError::TimedOut),
        }
    }

    /// Whether a packet is there, or the end, or an error: whether [`Consumer::receive`] would return at
    /// once.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.has_packet() || self.is_closed()
    }

    /// Whether a packet is there, or an error.
    #[inline]
    pub fn has_packet(&mut self) -> bool {
        !matches!(self.poll(), Ok(None))
    }

    /// Whether the ring has ended; packets sent before may still be there.
    pub fn is_closed(&self) -> bool {
        self.parked.is_closed() || self.ring.control().doorbell.closed.load(Ordering::Acquire) != 0
    }

    /// Goes on polling past the first stretch, then sleeps.
    #[cold]
    fn receive_slow<C: WaitSet>(
        &mut self,
        wait_set: &mut C,
        packet: &mut Packet,
        deadline: Deadline,
        mut spin: Spin,
    ) -> Result<Came, ReceiveError> {
        self.policy.begin_long_wait(&mut spin);
        if self.has_rung(wait_set) {
            self.policy.await_sleeper(&mut spin);
        }
        if let Some(sign) = self.poll_stretches(wait_set, deadline, &mut spin)? {
            self.policy.record(spin.waited());
            return self.come(sign, packet);
        }
        self.policy.stop(&mut spin);
        let rung_before = self.rung_at(wait_set);
        let mut start = MonotonicClock.now();
        // What passed before the sleep that the packet ended.
        let mut before = Duration::ZERO;
        let ready = match self.policy.timed_sleep(&spin) {
            Some(sleep) => match self.timed_sleep(wait_set, sleep, deadline, start) {
                Ok(NapEnd::Received(sign, waited)) => {
                    self.policy.record(spin.waited().and_slept(waited));
                    return self.come(sign, packet);
                }
                Ok(NapEnd::Woken(sign)) => Ok(sign),
                Ok(NapEnd::InVain) => {
                    let now = MonotonicClock.now();
                    before = now.saturating_since(start);
                    start = now;
                    self.sleep(wait_set, deadline)
                }
                Err(error) => Err(error),
            },
            None => {
                self.policy.timed_sleeps().slept_on();
                self.sleep(wait_set, deadline)
            }
        };
        let slept = MonotonicClock.now().saturating_since(start);
        match ready {
            Ok(sign) => {
                let rung_at = self.rung_at(wait_set);
                let needed = self.needed_sleep(wait_set, TimePoint::from_nanos(rung_at), start, slept);
                self.policy.record(spin.waited().and_slept(before + needed));
                // What a look has found woke nobody. That the time is before the sleep does not say so: who
                // rings late dates it back.
                if rung_at != rung_before {
                    self.policy.record_wake(slept - needed);
                }
                self.come(sign, packet)
            }
            Err(error) => {
                self.policy.record(spin.waited().and_slept(before + slept));
                Err(error)
            }
        }
    }

    /// Polls with pauses for the rest of a window; returns what has come, if something does.
    fn poll_stretches(
        &mut self,
        wait_set: &mut impl WaitSet,
        deadline: Deadline,
        spin: &mut Spin,
    ) -> Result<Option<Sign>, ReceiveError> {
        while !self.is_closed() && !is_past(deadline) && self.policy.next_stretch(spin) {
            loop {
                if let Some(sign) = self.look(wait_set)? {
                    return Ok(Some(sign));
                }
                if !spin.next() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Sleeps until the packet is due, then polls for it.
    fn timed_sleep(
        &mut self,
        wait_set: &mut impl WaitSet,
        sleep: TimedSleep,
        deadline: Deadline,
        start: TimePoint,
    ) -> Result<NapEnd, ReceiveError> {
        let up = Deadline::after(start, sleep.length);
        if up.earlier(deadline) != up {
            return Ok(NapEnd::InVain);
        }
        let early = match self.sleep(wait_set, up) {
            Err(ReceiveError::TimedOut) => None,
            Ok(sign) => Some(sign),
            Err(error) => return Err(error),
        };
        let woke = MonotonicClock.now().saturating_since(start);
        // A packet can have come before this side got up, though that was later than it meant to.
        if early.is_none() || woke > sleep.length {
            self.policy
                .timed_sleeps()
                .got_up(woke.saturating_sub(sleep.length));
        }
        if let Some(sign) = early {
            return Ok(NapEnd::Woken(sign));
        }
        let mut spin = self.policy.start_after_sleep(sleep.poll_nanos);
        let found = self.poll_stretches(wait_set, deadline, &mut spin)?;
        let polled = Duration::from_nanos(spin.waited().nanos);
        match found {
            Some(_) => self.policy.timed_sleeps().was_right(),
            None => self.policy.timed_sleeps().was_wrong(),
        }
        Ok(found.map_or(NapEnd::InVain, |sign| NapEnd::Received(sign, woke + polled)))
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

    /// How much of a sleep passed before the packet would have been there, had both sides been awake: the
    /// rest is by how much this side is late. Counting that too would keep two sides asleep that each wait
    /// for the other to wake up. A packet for which nobody has rung was there when the sleep began.
    fn needed_sleep(
        &mut self,
        wait_set: &mut impl WaitSet,
        rung_at: TimePoint,
        start: TimePoint,
        slept: Duration,
    ) -> Duration {
        let needed = rung_at.saturating_since(start).min(slept);
        let late = u64::try_from((slept - needed).as_nanos()).unwrap_or(u64::MAX);
        std::iter::once(self)
            .chain(wait_set.consumers_mut())
            .filter_map(|consumer| consumer.has_packet().then_some(&consumer.parked))
            .for_each(|parked| parked.was_late(late));
        needed
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

    /// The sequence word of the next packet's first cell, once it is there.
    #[inline(always)]
    fn poll(&mut self) -> Result<Option<u64>, ReceiveError> {
        if let Some(misbehaviour) = self.poison {
            return Err(misbehaviour.into());
        }
        // A relaxed load and a fence, since other loads are not defined on memory that is mapped read-only.
        let word = self.ring.cell(self.position).sequence.load(Ordering::Relaxed);
        if stamp(word) == idle_stamp(self.position, u64::from(self.ring.capacity())) {
            return Ok(None);
        }
        self.committed(word)
    }

    #[inline(always)]
    fn committed(&mut self, word: u64) -> Result<Option<u64>, ReceiveError> {
        if stamp(word) == sequence_word(self.position, 0) {
            fence(Ordering::Acquire);
            return Ok(Some(word));
        }
        Err(self.poison(Misbehaviour::Sequence {
            position: self.position,
            found: word,
        }))
    }

    /// Copies the packet whose first cell has the sequence word `word`, and frees its cells.
    #[inline(always)]
    fn take(&mut self, word: u64, packet: &mut Packet) -> Result<(), ReceiveError> {
        let cells = cell_count(word);
        if cells == 1
            && let Some([payload]) = packet.fill(1)
        {
            self.copy(self.position, payload);
        } else {
            self.take_long(cells, packet)?;
        }
        self.position += u64::from(cells);
        self.ring
            .control()
            .progress
            .consumed
            .store(self.position, Ordering::Release);
        self.suppression
            .received(self.position, &self.ring.control().doorbell);
        Ok(())
    }

    #[cold]
    fn take_long(&mut self, cells: u16, packet: &mut Packet) -> Result<(), ReceiveError> {
        let capacity = self.ring.capacity();
        let misbehaviour = if cells == 0 || u32::from(cells) > capacity {
            Err(Misbehaviour::PacketLength {
                position: self.position,
                cells,
                capacity,
            })
        } else {
            self.copy_all(cells, packet.grow(usize::from(cells)))
        };
        misbehaviour.map_err(|misbehaviour| {
            packet.clear();
            self.poison(misbehaviour)
        })
    }

    /// Copies every cell of a packet, checking that each belongs to it.
    fn copy_all(&self, cells: u16, payloads: &mut [[u64; PAYLOAD_WORDS]]) -> Result<(), Misbehaviour> {
        let mut count = cells;
        for (position, payload) in (self.position..).zip(payloads) {
            let found = self.ring.cell(position).sequence.load(Ordering::Relaxed);
            if found != sequence_word(position, count) {
                return Err(Misbehaviour::Sequence { position, found });
            }
            self.copy(position, payload);
            count = 0;
        }
        Ok(())
    }

    #[inline(always)]
    fn copy(&self, position: u64, payload: &mut [u64; PAYLOAD_WORDS]) {
        for (word, slot) in payload.iter_mut().zip(&self.ring.cell(position).payload) {
            *word = slot.load(Ordering::Relaxed);
        }
    }

    fn poison(&mut self, misbehaviour: Misbehaviour) -> ReceiveError {
        self.poison = Some(misbehaviour);
        misbehaviour.into()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        close_ring(&self.ring);
    }
}

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

/// How a timed sleep ended.
enum NapEnd {
    /// This came while this side polled, after so long.
    Received(Sign, Duration),
    /// This came while this side slept, which is an end of a sleep like others.
    Woken(Sign),
    /// No packet came.
    InVain,
}

fn is_past(deadline: Deadline) -> bool {
    !deadline.is_none() && deadline.is_past(MonotonicClock.now())
}
