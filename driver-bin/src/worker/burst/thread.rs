//! The thread of a burst: carries out what its role is.

use std::time::Duration;

use nnhal::diag::tags;
use nnhal::fmq::{Came, ReceiveError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::places::Places;
use super::poller::Poller;
use super::polling::{Event, Role};
use super::runner::Runner;
use super::serve::{Server, State};

/// When a thread leaves the waiting to another if no request comes at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leave<'a> {
    Never,
    AtOnce,
    /// Once room may have become free after so many openings.
    AfterOpening(&'a Places, u32),
}

impl Leave<'_> {
    #[inline]
    fn is_due(self) -> bool {
        match self {
            Leave::Never => false,
            Leave::AtOnce => true,
            Leave::AfterOpening(places, openings) => places.openings() != openings,
        }
    }
}

/// Serves a burst until it ends: by this thread, or by another.
pub(super) fn run(places: &Places, mut server: Box<Server>) {
    server.reserve_memory();
    let mut poller = Poller::alone();
    let mut role = Role::FIRST;
    let (mut openings, mut openings_before) = (0, 0);
    while role != Role::Over {
        let event = match role {
            Role::Seeking { .. } => {
                (openings_before, openings) = (openings, places.openings());
                match places.take(&server) {
                    Some(waker) => {
                        poller = Poller::shared(places, waker);
                        Event::Granted
                    }
                    None => Event::Refused,
                }
            }
            Role::Separating { was_refused: false } => serve(&mut server, &mut poller, Leave::AtOnce),
            // What has become free since before it was refused may be for it.
            Role::Separating { was_refused: true } => {
                let leave = Leave::AfterOpening(places, openings_before);
                serve(&mut server, &mut poller, leave)
            }
            Role::Lending => match places.lend(server) {
                Ok(returns) => {
                    role = role.next(Event::Granted);
                    server = returns.wait();
                    served(&server)
                }
                Err(own) => {
                    server = own;
                    Event::Refused
                }
            },
            Role::Alone | Role::Polling | Role::Lent | Role::Over => {
                let event = serve(&mut server, &mut poller, Leave::Never);
                poller = Poller::alone();
                event
            }
        };
        role = role.next(event);
    }
}

/// What follows from how a burst was left.
fn served(server: &Server) -> Event {
    Event::Served {
        has_ended: server.state == State::Ended,
        is_short: server.is_short(),
    }
}

/// Serves requests of a burst and of those lent to its thread: until it ends, until whether it
/// [`Server::is_short`] changes, until there is a slot again after a shared poller had none for long, or
/// until it waits and the thread is to leave that to another.
fn serve(server: &mut Server, poller: &mut Poller<'_>, leave: Leave<'_>) -> Event {
    server.state = State::Served;
    let was_shared = poller.is_shared();
    while server.state == State::Served {
        match receive(server, poller, leave) {
            Ok(Came::Here) => {
                let seeks_again = was_shared && !poller.is_shared() && server.runner.takes_slot_soon();
                poller.separate_without_slot(&mut server.runner);
                server.runner.shares_thread = !poller.is_empty();
                server.serve_received();
                poller.serve_between(&mut server.runner);
                if seeks_again && server.state == State::Served {
                    server.state = State::Changed;
                }
            }
            Ok(Came::Elsewhere) => {
                poller.serve(&mut server.runner);
                if poller.has_gone_round() && server.has_no_more() {
                    server.state = State::Ended;
                }
            }
            Err(ReceiveError::TimedOut) if leave.is_due() => return Event::Paused,
            // It was time to see who has not used its memory.
            Err(ReceiveError::TimedOut) => {}
            Err(ReceiveError::System(error)) if !poller.is_empty() => {
                tracing::warn!(target: tags::DRIVER, %error, "bursts keep their threads");
                poller.give_sharing_up();
                server.state = State::Changed;
            }
            Err(error) => server.end_for(&error, error == ReceiveError::Closed),
        }
    }
    served(server)
}

/// Waits for the next packet, or for what comes for lent bursts, and has all let go of slots and memories if
/// neither comes at once. Bursts that have waited for long give back the memory of their executions, unless
/// their models are to keep it.
#[inline]
fn receive(server: &mut Server, poller: &mut Poller<'_>, leave: Leave<'_>) -> Result<Came, ReceiveError> {
    let (runner, idle_release) = (&mut server.runner, &server.idle_release);
    server
        .end
        .consumer
        .receive_in(poller, &mut server.packet, |poller| {
            runner.rest();
            poller.rest();
            if leave.is_due() {
                return None;
            }
            Some(match idle_release.get() {
                Some(unused_for) => give_memory_up(runner, poller, unused_for),
                None => Deadline::NONE,
            })
        })
}

/// Has those that did not use their memory for that long give it back; returns when to look again.
fn give_memory_up(runner: &mut Runner, poller: &mut Poller<'_>, unused_for: Duration) -> Deadline {
    let now = MonotonicClock.now();
    let until = poller.release_unused_memory(now, unused_for);
    if runner.release_unused_memory(now, unused_for) {
        Deadline::after(now, unused_for).earlier(until)
    } else {
        until
    }
}
