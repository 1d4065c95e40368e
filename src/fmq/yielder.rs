//! Offering the processor to other threads.

use super::wait::{Event, REFUSED};
use nnhal_os::sched;
use nnhal_os::time::{Clock, MonotonicClock};

/// Offers a thread's processor, and finds out what became of it.
#[derive(Debug, Default)]
pub(super) struct Yielder {
    /// How often the system had taken the processor from this thread when that was looked at last.
    preemptions: Option<u64>,
}

impl Yielder {
    /// Lets others have the processor, if any wants it.
    #[cold]
    pub(super) fn offer(&mut self) -> Event {
        let start = MonotonicClock.now();
        std::thread::yield_now();
        let took = MonotonicClock.now().saturating_since(start);
        Event::Yielded {
            took,
            was_switched: took > REFUSED && self.was_switched(),
        }
    }

    /// Whether the system has run another thread in place of this one since this was asked last; not the
    /// first time.
    fn was_switched(&mut self) -> bool {
        let now = sched::preemptions();
        let before = self.preemptions.replace(now);
        before.is_some_and(|before| before != now)
    }
}
