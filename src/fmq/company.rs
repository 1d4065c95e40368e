//! Waiting for several rings at once.
//!
//! A thread that serves several rings waits on one of them in the company of the others: it polls all of them, by the
//! policy of the one, and sleeps on the words of all of them. Each consumer says for itself that it sleeps, so producers
//! need not know that theirs has company.

use super::bell::Bell;
use super::consumer::Consumer;

/// Most other rings that a thread waits for beside its own.
pub const MAX_COMPANY: usize = 64;

/// What a thread waits for beside the packets of one ring.
pub trait Company {
    /// The ends of the other rings: at most [`MAX_COMPANY`].
    fn consumers(&self) -> impl Iterator<Item = &Consumer>;

    /// The same, to be used.
    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer>;

    /// By what threads of this process end the wait.
    fn bell(&self) -> Option<&Bell>;

    /// How many polls of a single ring take about as long as one look by [`Company::seems_ready`] beside the poll of the own ring,
    /// counting that: where polls do not pause, so much shorter is a window in polls.
    #[inline]
    fn polls_in_one(&self) -> u32 {
        1
    }

    /// Whether something has come elsewhere: a packet, the end or an error on another ring, or the bell has rung. Looks at all of
    /// them, as a thread must before it sleeps.
    fn is_ready(&mut self) -> bool {
        self.bell().is_some_and(Bell::has_rung) || self.consumers_mut().any(Consumer::is_ready)
    }

    /// The same, for one poll of many: may look at some of them, if it gets to the others in the next polls.
    #[inline]
    fn seems_ready(&mut self) -> bool {
        self.is_ready()
    }
}

/// No company.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Company for Alone {
    #[inline]
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        std::iter::empty()
    }

    #[inline]
    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        std::iter::empty()
    }

    #[inline]
    fn bell(&self) -> Option<&Bell> {
        None
    }
}
