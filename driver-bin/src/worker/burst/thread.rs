//! The thread of a burst: serves it, alone or as the host of others, or lends it to a host.

use std::time::Duration;

use nnhal::diag::tags;
use nnhal::fmq::{Came, ReceiveError};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::guests::Guests;
use super::runner::Runner;
use super::serve::{Server, State};
use super::sharing::Sharing;

/// When a thread leaves the waiting to another if no request comes at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leave<'a> {
    Never,
    AtOnce,
    /// Once a place may have become free after so many openings.
    AfterOpening(&'a Sharing, u32),
}

impl Leave<'_> {
    #[inline]
    fn is_due(self) -> bool {
        match self {
            Leave::Never => false,
            Leave::AtOnce => true,
            Leave::AfterOpening(sharing, openings) => sharing.openings() != openings,
        }
    }
}

/// Serves a burst until it ends: by this thread, or by another.
pub(super) fn run(sharing: &Sharing, mut server: Box<Server>) {
    server.reserve_memory();
    let mut leave = Leave::AtOnce;
    while !server.has_ended() {
        let openings = sharing.openings();
        serve_here(sharing, &mut server, leave);
        leave = Leave::AtOnce;
        if server.may_be_lent() {
            server = match sharing.lend(server) {
                Ok(home) => home.wait(),
                Err(server) => {
                    leave = Leave::AfterOpening(sharing, openings);
                    server
                }
            };
        }
    }
}

/// Serves a burst by this thread, as a host if it may be one, until that is to be done otherwise.
fn serve_here(sharing: &Sharing, server: &mut Server, leave: Leave<'_>) {
    if !server.is_brief() {
        serve(server, &mut Guests::none(), Leave::Never);
    } else if let Some(waker) = sharing.new_host(server) {
        serve(server, &mut Guests::of_host(sharing, waker), Leave::Never);
    } else {
        serve(server, &mut Guests::none(), leave);
    }
}

/// Serves requests of a burst and of the guests of its thread until it ends, until whether it
/// [`Server::is_brief`] changes, or until it waits and the thread is to leave that to another.
fn serve(server: &mut Server, guests: &mut Guests<'_>, leave: Leave<'_>) {
    server.state = State::Served;
    while server.state == State::Served {
        match receive(server, guests, leave) {
            Ok(Came::Here) => {
                server.runner.shares_thread = !guests.is_empty();
                server.serve_received();
                guests.serve_between(&mut server.runner);
            }
            Ok(Came::Elsewhere) => {
                guests.serve(&mut server.runner);
                if guests.has_gone_round() && server.has_no_more() {
                    server.state = State::Ended;
                }
            }
            Err(ReceiveError::TimedOut) if leave.is_due() => server.state = State::Waits,
            // It was time to see who has not used its memory.
            Err(ReceiveError::TimedOut) => {}
            Err(ReceiveError::System(error)) if !guests.is_empty() => {
                tracing::warn!(target: tags::DRIVER, %error, "bursts keep their threads");
                guests.give_sharing_up();
                server.state = State::Changed;
            }
            Err(error) => server.end_for(&error, error == ReceiveError::Closed),
        }
    }
}

/// Waits for the next packet, or for what comes for guests, and has all let go of slots and memories if
/// neither comes at once. Bursts that have waited for long give back the memory of their executions, unless
/// their models are to keep it.
#[inline]
fn receive(server: &mut Server, guests: &mut Guests<'_>, leave: Leave<'_>) -> Result<Came, ReceiveError> {
    let (runner, idle_release) = (&mut server.runner, &server.idle_release);
    server
        .end
        .consumer
        .receive_in(guests, &mut server.packet, |guests| {
            runner.rest();
            guests.rest();
            if leave.is_due() {
                return None;
            }
            Some(match idle_release.get() {
                Some(patience) => give_memory_up(runner, guests, patience),
                None => Deadline::NONE,
            })
        })
}

/// Has those that did not use their memory for that long give it back; returns when to look again.
fn give_memory_up(runner: &mut Runner, guests: &mut Guests<'_>, patience: Duration) -> Deadline {
    let now = MonotonicClock.now();
    let until = guests.release_unused_memory(now, patience);
    if runner.release_unused_memory(now, patience) {
        Deadline::after(now, patience).earlier(until)
    } else {
        until
    }
}
