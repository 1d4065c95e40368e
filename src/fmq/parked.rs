//! Whether this process's consumer is inside its sleep, in private memory, so that closing can make sure that
//! it left even if the peer keeps putting the shared doorbell word back.

use super::sync::{AtomicU32, Ordering};

/// State of one consumer that its process's other threads may see and change.
#[derive(Debug)]
pub(super) struct Parked {
    closed: AtomicU32,
    asleep: AtomicU32,
    /// Not 0 if this process has rung since its consumer last waited.
    rang: AtomicU32,
}

impl Parked {
    pub(super) fn new() -> Self {
        Self {
            closed: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            rang: AtomicU32::new(0),
        }
    }

    /// This process rings now.
    pub(super) fn rings(&self) {
        self.rang.store(1, Ordering::Relaxed);
    }

    /// Whether the answer that the consumer waits for must wait for the peer to get up; tells it once.
    pub(super) fn take_rang(&self) -> bool {
        // Mostly not, and a thread may ask for many rings.
        self.rang.load(Ordering::Relaxed) != 0 && self.rang.swap(0, Ordering::Relaxed) != 0
    }

    /// Marks the ring as ended for this process.
    pub(super) fn set_closed(&self) {
        self.closed.store(1, Ordering::Release);
    }

    /// Whether the ring has ended for this process.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// The consumer starts to fall asleep. A full fence must follow before it looks at [`Parked::is_closed`].
    pub(super) fn enter(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// The consumer is up again.
    pub(super) fn leave(&self) {
        self.asleep.store(0, Ordering::Release);
        if self.is_closed() {
            self.wake_closer();
        }
    }

    /// Whether the consumer sleeps or is about to. A full fence must precede, after [`Parked::set_closed`].
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire) != 0
    }

    /// Lets the closer wait a moment for the consumer to be up.
    #[cfg(not(loom))]
    pub(super) fn wait_until_up(&self) {
        use nnhal_os::time::{Clock, Deadline, MonotonicClock};
        let moment = Deadline::after(MonotonicClock.now(), std::time::Duration::from_millis(1));
        // Whatever ends the wait, the closer looks again.
        let _ = nnhal_os::futex::wait(&self.asleep, 1, moment);
    }

    #[cfg(not(loom))]
    fn wake_closer(&self) {
        // It fails for no word that is mapped; the closer has its own deadline besides.
        let _ = nnhal_os::futex::wake(&self.asleep, i32::MAX);
    }

    /// The moment over, as far as the model is concerned: it knows no time.
    #[cfg(loom)]
    pub(super) fn wait_until_up(&self) {
        loom::thread::yield_now();
    }

    #[cfg(loom)]
    fn wake_closer(&self) {}
}
