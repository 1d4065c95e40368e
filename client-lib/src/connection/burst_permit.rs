//! How many bursts a connection has for its models' synchronous and asynchronous executions, and which models
//! have them where there are not enough.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most of a connection: a quarter of what a worker allows by default. The program has the others.
const MOST: usize = 16;

/// After so many refusals, models that have not used theirs since so many before give them up. Models that
/// are all in use keep what they have: to close and open bursts in turns costs more than messages do. A
/// fenced or asynchronous execution takes 120 to 250 us by messages, about 1 us by a ring
/// (`cargo bench --bench latency`, few bytes, a virtual Zen 3).
const REFUSALS: u32 = 256;

/// Who holds permits, as others see it that need one.
pub(crate) trait Holder: Send + Sync + Debug {
    /// Gives up what was not used since this was called last; whether there was anything.
    fn give_up_unused(&self) -> bool;
}

/// How many there are, and whose.
#[derive(Debug, Default)]
pub(super) struct BurstPermits {
    used: Arc<AtomicUsize>,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    all: Vec<Weak<dyn Holder>>,
    refusals: u32,
}

/// A permit for one, given back when dropped.
#[derive(Debug)]
pub(crate) struct BurstPermit {
    used: Arc<AtomicUsize>,
}

impl BurstPermits {
    /// A permit for this holder, if there is one or others give theirs up.
    pub(super) fn take<H: Holder + 'static>(&self, holder: &Arc<H>) -> Option<BurstPermit> {
        let permit = match self.take_free() {
            None if self.refuse() => self.take_free(),
            permit => permit,
        }?;
        self.add(holder);
        Some(permit)
    }

    fn take_free(&self) -> Option<BurstPermit> {
        let more = |used| (used < MOST).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| BurstPermit {
            used: Arc::clone(&self.used),
        })
    }

    /// Counts a refusal. After many of them, [`BurstPermits::reclaim`].
    fn refuse(&self) -> bool {
        let mut holders = self.holders();
        holders.refusals += 1;
        if holders.refusals < REFUSALS {
            return false;
        }
        holders.refusals = 0;
        drop(holders);
        self.reclaim()
    }

    /// Has holders give up what they have not used since this was called last; whether any did.
    pub(super) fn reclaim(&self) -> bool {
        let holders: Vec<Arc<dyn Holder>> = self.holders().all.iter().filter_map(Weak::upgrade).collect();
        // All are asked, since what each has used counts from now on.
        holders
            .iter()
            .fold(false, |any, holder| holder.give_up_unused() | any)
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        // They are whole between any two statements.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add<H: Holder + 'static>(&self, holder: &Arc<H>) {
        let own: Weak<dyn Holder> = Arc::<H>::downgrade(holder);
        let mut holders = self.holders();
        holders.all.retain(|known| known.strong_count() > 0);
        if !holders.all.iter().any(|known| Weak::ptr_eq(known, &own)) {
            holders.all.push(own);
        }
    }
}

impl Drop for BurstPermit {
    fn drop(&mut self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// One that has used what it has, or not.
    #[derive(Debug, Default)]
    struct Model {
        permits: Mutex<Vec<BurstPermit>>,
        is_used: AtomicBool,
    }

    impl Holder for Model {
        fn give_up_unused(&self) -> bool {
            let mut permits = self.permits.lock().unwrap();
            let is_unused = !self.is_used.swap(false, Ordering::Relaxed);
            is_unused && !std::mem::take(&mut *permits).is_empty()
        }
    }

    fn hold(permits: &BurstPermits, model: &Arc<Model>) {
        model.permits.lock().unwrap().push(permits.take(model).unwrap());
        model.is_used.store(true, Ordering::Relaxed);
    }

    /// How many refusals there are until there is a permit; all of so many if there is none.
    fn refusals(permits: &BurstPermits, model: &Arc<Model>, most: u32) -> u32 {
        let mut taken = (0..most).map(|_| permits.take(model).is_some());
        taken.position(|is_taken| is_taken).map_or(most, |at| at as u32)
    }

    #[test]
    fn there_are_so_many_and_each_is_given_back() {
        let (permits, model) = (BurstPermits::default(), Arc::default());
        let mut taken: Vec<_> = (0..MOST)
            .map(|_| permits.take::<Model>(&model).unwrap())
            .collect();
        assert!(permits.take(&model).is_none());
        taken.pop();
        assert!(permits.take(&model).is_some());
    }

    #[test]
    fn models_that_are_not_used_any_more_give_way() {
        let (permits, late) = (BurstPermits::default(), Arc::default());
        let models: Vec<Arc<Model>> = (0..MOST).map(|_| Arc::default()).collect();
        models.iter().for_each(|model| hold(&permits, model));
        // They were used just now; then all but one are not.
        assert_eq!(refusals(&permits, &late, REFUSALS), REFUSALS);
        models[3].is_used.store(true, Ordering::Relaxed);
        assert_eq!(refusals(&permits, &late, REFUSALS), REFUSALS - 1);
        let left = models.iter().map(|model| model.permits.lock().unwrap().len());
        assert_eq!(left.sum::<usize>(), 1);
        assert_eq!(models[3].permits.lock().unwrap().len(), 1);
    }

    #[test]
    fn models_that_are_all_used_keep_what_they_have() {
        let (permits, late) = (BurstPermits::default(), Arc::default());
        let models: Vec<Arc<Model>> = (0..MOST).map(|_| Arc::default()).collect();
        models.iter().for_each(|model| hold(&permits, model));
        for _ in 0..4 {
            assert_eq!(refusals(&permits, &late, REFUSALS), REFUSALS);
            models
                .iter()
                .for_each(|model| model.is_used.store(true, Ordering::Relaxed));
        }
    }

    #[test]
    fn models_that_are_gone_are_forgotten() {
        let permits = BurstPermits::default();
        for _ in 0..3 * MOST {
            hold(&permits, &Arc::default());
        }
        assert_eq!(permits.holders.lock().unwrap().all.len(), 1);
    }
}
