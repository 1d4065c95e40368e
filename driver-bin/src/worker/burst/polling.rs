//! The polling policy: what a burst's thread does with its burst and with those that others lend it.
//!
//! This file decides, and does nothing: it knows no ring, no lock and no clock. `thread.rs` does what a
//! [`Role`] says, `poller.rs` looks and serves as a [`PollOrder`] says. So a simulator can drive it
//! (`polling/simulator.rs`), with each rule left out in turn: `polling/rules.rs` says what each is good for.
//!
//! Each burst has a thread of its own. Where one thread of the client drives many bursts, all of these
//! threads would want a processor now and then, and most would be asleep when their requests come. So the
//! thread of a burst of short tasks becomes a shared poller: it waits for the requests of bursts that others
//! lend it, too, and carries them out. There are few places for shared pollers; other such threads lend their
//! bursts.
//!
//! | role | what the thread does | what may happen | then it is |
//! |---|---|---|---|
//! | `Alone` | serves its burst, whose tasks are long | tasks are short now | `Seeking` |
//! | `Seeking` | asks for a place as a shared poller | granted | `Polling` |
//! | | | refused | `Separating` |
//! | `Polling` | serves its burst and those lent to it | tasks are long now | `Alone` |
//! | | | it cannot sleep for several bursts, or has no slot for them | `Seeking` |
//! | `Separating` | serves its burst while requests follow each other at once | a pause | `Lending` |
//! | | | tasks are long now | `Alone` |
//! | `Lending` | offers its burst to the shared pollers | taken | `Lent` |
//! | | | refused | `Seeking`, to separate once a place is free |
//! | `Lent` | rests | the burst is back | `Alone` or `Seeking` |
//!
//! The burst ends in every role that serves it, and in `Lent`. Then the thread is `Over`.
//!
//! A shared poller carries out a batch of requests of one burst at a time ([`short_tasks`]). Between two
//! polls of its own ring it looks at some others ([`PollOrder`]).

mod move_to_front;
mod rules;
mod short_tasks;

use self::move_to_front::MoveToFront;
use self::rules::{Rule, Rules};

pub(super) use self::short_tasks::{Batch, ShortTasks};

/// What the thread of a burst does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    Seeking {
        was_refused: bool,
    },
    Polling,
    /// With whether only a place that becomes free is a reason to separate.
    Separating {
        was_refused: bool,
    },
    Lending,
    Lent,
    Over,
}

/// What happens to a thread in its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// What was asked for is granted, or refused.
    Granted,
    Refused,
    /// No request came at once.
    Paused,
    /// Serving is over for another reason, or the burst is back.
    Served {
        has_ended: bool,
        is_short: bool,
    },
}

impl Role {
    /// Of a thread whose burst has not been served yet.
    pub(super) const FIRST: Role = Role::Alone;

    /// The role that follows.
    pub(super) fn next(self, event: Event) -> Role {
        match (self, event) {
            (_, Event::Served { has_ended: true, .. }) => Role::Over,
            (_, Event::Served { is_short: false, .. }) => Role::Alone,
            (_, Event::Served { is_short: true, .. }) => Role::Seeking { was_refused: false },
            (Role::Seeking { .. }, Event::Granted) => Role::Polling,
            (Role::Seeking { was_refused }, _) => Role::Separating { was_refused },
            (Role::Separating { .. }, Event::Paused) => Role::Lending,
            (Role::Lending, Event::Granted) => Role::Lent,
            (Role::Lending, _) => Role::Seeking { was_refused: true },
            (role, _) => role,
        }
    }
}

/// How many of the rings that are in use are looked at in one poll, beside one that is not.
const BUSY_LOOKS: usize = 3;

/// A ring on which nothing has come in so many looks is not in use any more: some microseconds where one is.
const BUSY_FOR: u32 = 256;

/// After so many batches without a pause, of its own ring and of others, the thread goes round: all bursts
/// give back what they keep between requests, so that what the client has freed goes, and those that have
/// ended are taken out.
const BATCHES_IN_ROUND: u32 = 64;

/// The rings that a shared poller looks at beside its own, and in which order.
///
/// A poll should take hardly longer than one of a ring alone, or requests are seen later. So it looks at
/// those on which something has come of late, and at one of the others.
#[derive(Debug)]
pub(super) struct PollOrder<T> {
    rings: MoveToFront<Ring<T>>,
    /// On which something has come.
    ready: Option<usize>,
    /// Batches since the last round or pause.
    batches: u32,
    rules: Rules,
}

#[derive(Debug)]
struct Ring<T> {
    of: T,
    /// Looks since something has come.
    looks_in_vain: u32,
}

impl<T> PollOrder<T> {
    /// Of no ring.
    pub(super) fn new() -> PollOrder<T> {
        PollOrder::with_rules(Rules::default())
    }

    fn with_rules(rules: Rules) -> PollOrder<T> {
        PollOrder {
            rings: MoveToFront::new(),
            ready: None,
            batches: 0,
            rules,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// Takes in another ring, which may be in use.
    pub(super) fn push(&mut self, of: T) {
        self.rings.push_busy(Ring { of, looks_in_vain: 0 });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.rings.iter().map(|ring| &ring.of)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rings.iter_mut().map(|ring| &mut ring.of)
    }

    /// How many rings a poll looks at.
    #[inline]
    pub(super) fn looks_in_poll(&self) -> usize {
        self.busy_looks() + usize::from(self.rings.has_others())
    }

    #[inline]
    fn busy_looks(&self) -> usize {
        let most = if self.rules.has(Rule::FewLooks) {
            BUSY_LOOKS
        } else {
            usize::MAX
        };
        self.rings.busy().min(most)
    }

    /// How many batches of others may follow a batch of the own ring before that is looked at again.
    #[inline]
    pub(super) fn batches_between(&self) -> usize {
        if self.rules.has(Rule::ServeBetween) {
            self.rings.busy().max(1)
        } else {
            0
        }
    }

    /// One poll: looks at one of the rings that are not in use and at some of those that are. Whether
    /// something has come. One that is not in use any more is told to `rest`. Ends are for
    /// [`PollOrder::poll_all`] and [`PollOrder::take_gone`] to find.
    #[inline]
    pub(super) fn poll(
        &mut self,
        mut has_packet: impl FnMut(&mut T) -> bool,
        rest: impl FnMut(&mut T),
    ) -> bool {
        if let Some((at, ring)) = self.rings.next_other()
            && has_packet(&mut ring.of)
        {
            ring.looks_in_vain = 0;
            self.ready = Some(self.rings.make_busy(at));
            return true;
        }
        for _ in 0..self.busy_looks() {
            let Some((at, ring)) = self.rings.next_busy() else {
                break;
            };
            if has_packet(&mut ring.of) {
                ring.looks_in_vain = 0;
                self.ready = Some(at);
                return true;
            }
            ring.looks_in_vain += 1;
            if ring.looks_in_vain >= BUSY_FOR && self.rules.has(Rule::MoveToFront) {
                self.let_be(at, rest);
                break;
            }
        }
        false
    }

    #[cold]
    fn let_be(&mut self, at: usize, mut rest: impl FnMut(&mut T)) {
        let at = self.rings.make_idle(at);
        if let Some(ring) = self.rings.get_mut(at) {
            rest(&mut ring.of);
        }
    }

    /// Looks at all rings, as a thread must before it sleeps, for the first on which something has come;
    /// whether there is one.
    pub(super) fn poll_all(&mut self, mut is_ready: impl FnMut(&mut T) -> bool) -> bool {
        let first = self.rings.iter_mut().position(|ring| {
            ring.looks_in_vain = 0;
            is_ready(&mut ring.of)
        });
        self.ready = first.map(|at| self.rings.make_busy(at));
        self.ready.is_some()
    }

    /// The ring on which a poll has seen that something has come, and where it is; tells it once.
    pub(super) fn take_ready(&mut self) -> Option<(usize, &mut T)> {
        let at = self.ready.take()?;
        self.rings.get_mut(at).map(|ring| (at, &mut ring.of))
    }

    /// Takes a ring out.
    pub(super) fn remove(&mut self, at: usize) -> T {
        self.rings.remove(at).of
    }

    /// A batch was carried out; whether it is time to go round.
    #[inline]
    pub(super) fn end_batch(&mut self) -> bool {
        self.batches = if self.is_empty() { 0 } else { self.batches + 1 };
        self.batches >= BATCHES_IN_ROUND
    }

    /// Takes out those that are gone, and returns them.
    pub(super) fn take_gone(&mut self, mut is_gone: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let gone = self.rings.take_out(|ring| is_gone(&mut ring.of));
        gone.into_iter().map(|ring| ring.of).collect()
    }

    /// Whether the last round or pause was just now.
    #[inline]
    pub(super) fn has_gone_round(&self) -> bool {
        self.batches == 0
    }

    /// There is a pause. Those of the rings in use, which alone may keep something between requests.
    pub(super) fn pause(&mut self) -> impl Iterator<Item = &mut T> {
        self.batches = 0;
        self.rings.busy_mut().map(|ring| &mut ring.of)
    }
}

#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;
