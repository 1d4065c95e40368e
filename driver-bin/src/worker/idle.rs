//! When memory that nobody has used for a while is given back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long executions may keep memory that they do not use. The settings can change it while bursts run.
#[derive(Debug)]
pub(crate) struct IdleRelease(AtomicU64);

impl IdleRelease {
    pub(crate) fn new(limit: Option<Duration>) -> IdleRelease {
        let release = IdleRelease(AtomicU64::new(0));
        release.set(limit);
        release
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// None: for ever.
    pub(crate) fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_the_one_that_was_set_last() {
        let release = IdleRelease::new(None);
        assert_eq!(release.get(), None);
        release.set(Some(Duration::from_millis(3)));
        assert_eq!(release.get(), Some(Duration::from_millis(3)));
        release.set(Some(Duration::MAX));
        assert_eq!(release.get(), Some(Duration::from_nanos(u64::MAX)));
        release.set(None);
        assert_eq!(release.get(), None);
    }
}
