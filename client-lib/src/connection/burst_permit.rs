//! How many bursts a connection has for its models' synchronous and asynchronous executions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most of a connection: a quarter of what a worker allows by default. The program has the others.
const MOST: usize = 16;

/// How many there are.
#[derive(Debug, Default)]
pub(super) struct BurstPermits {
    used: Arc<AtomicUsize>,
}

/// A permit for one, given back when dropped.
#[derive(Debug)]
pub(crate) struct BurstPermit {
    used: Arc<AtomicUsize>,
}

impl BurstPermits {
    pub(super) fn take(&self) -> Option<BurstPermit> {
        let more = |used| (used < MOST).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| BurstPermit {
            used: Arc::clone(&self.used),
        })
    }
}

impl Drop for BurstPermit {
    fn drop(&mut self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_each_is_given_back() {
        let permits = BurstPermits::default();
        let mut taken: Vec<_> = (0..MOST).map(|_| permits.take().unwrap()).collect();
        assert!(permits.take().is_none());
        taken.pop();
        assert!(permits.take().is_some());
    }
}
