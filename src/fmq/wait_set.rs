//! Waiting for several rings at once.
//!
//! A thread that serves several rings waits on one of them with a set of the others: it polls all of them, by
//! the policy of the one, and sleeps on the words of all of them. Each consumer says for itself that it
//! sleeps, so producers need not know that theirs is in a set.

use super::consumer::Consumer;
use super::waker::Waker;

/// Most other rings that a thread waits for beside its own.
pub const MAX_WAIT_SET: usize = 64;

/// What a thread waits for beside the packets of one ring.
pub trait WaitSet {
    /// The ends of the other rings: at most [`MAX_WAIT_SET`].
    fn consumers(&self) -> impl Iterator<Item = &Consumer>;

    /// The same, to be used.
    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer>;

    /// By what threads of this process end the wait.
    fn waker(&self) -> Option<&Waker>;

    /// How many polls of a single ring take about as long as one look by [`WaitSet::seems_ready`] beside the
    /// poll of the own ring, counting that: where polls do not pause, so much shorter is a window in polls.
    #[inline]
    fn polls_in_one(&self) -> u32 {
        1
    }

    /// Whether something has come elsewhere: a packet, the end or an error on another ring, or the waker has
    /// been used. Looks at all of them, as a thread must before it sleeps.
    fn is_ready(&mut self) -> bool {
        self.waker().is_some_and(Waker::is_woken) || self.consumers_mut().any(Consumer::is_ready)
    }

    /// The same, for one poll of many: may look at some of them, if it gets to the others in the next polls.
    #[inline]
    fn seems_ready(&mut self) -> bool {
        self.is_ready()
    }
}

/// No other ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyWaitSet;

impl WaitSet for EmptyWaitSet {
    #[inline]
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        std::iter::empty()
    }

    #[inline]
    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        std::iter::empty()
    }

    #[inline]
    fn waker(&self) -> Option<&Waker> {
        None
    }
}
