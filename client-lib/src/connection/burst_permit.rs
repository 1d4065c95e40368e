//! How many bursts a connection has for its models' synchronous and asynchronous executions, and which models
//! have them where there are not enough.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most of a connection: a quarter of what a worker allows by default. The program has the others.
const MOST: usize = 16;

/// After so many refusals, models that have not used theirs since so many before give them up, and the driver
/// is asked again if it had no room. Models that are all in use keep what they have: to close and open bursts
/// in turns costs more than messages do. A fenced or asynchronous execution takes 120 to 250 us by messages,
/// about 1 us by a ring (`cargo bench --bench latency`, few bytes, a virtual Zen 3).
const REFUSALS: u32 = 256;

/// Who holds permits, as others see it that need one.
pub(crate) trait Holder: Send + Sync + Debug {
    /// Gives up what was not used since this was called last.
    fn give_up_unused(&self);
}

/// How many there are, and whose.
#[derive(Debug)]
pub(super) struct BurstPermits {
    used: Arc<AtomicUsize>,
    /// As many as there are, or as the driver has room for.
    most: AtomicUsize,
    holders: Mutex<Holders>,
}

impl Default for BurstPermits {
    fn default() -> BurstPermits {
        BurstPermits {
            used: Arc::default(),
            most: AtomicUsize::new(MOST),
            holders: Mutex::default(),
        }
    }
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
            None if self.count_refusal() => {
                self.reclaim();
                self.take_free()
            }
            permit => permit,
        }?;
        self.add(holder);
        Some(permit)
    }

    /// The driver has no room for the burst of this permit.
    pub(super) fn give_back_unused(&self, permit: BurstPermit) {
        drop(permit);
        self.most
            .store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take_free(&self) -> Option<BurstPermit> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |used| (used < most).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| BurstPermit {
            used: Arc::clone(&self.used),
        })
    }

    /// Counts a refusal; whether it is the last of so many.
    fn count_refusal(&self) -> bool {
        let mut holders = self.holders();
        holders.refusals = (holders.refusals + 1) % REFUSALS;
        holders.refusals == 0
    }

    /// Has holders give up what they have not used since this was called last.
    fn reclaim(&self) {
        let holders: Vec<Arc<dyn Holder>> = self.holders().all.iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.give_up_unused());
        self.most.store(MOST, Ordering::Relaxed);
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
        fn give_up_unused(&self) {
            if !self.is_used.swap(false, Ordering::Relaxed) {
                self.permits.lock().unwrap().clear();
            }
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
    fn driver_without_room_is_asked_again_after_so_many_refusals() {
        let (permits, model) = (BurstPermits::default(), Arc::default());
        hold(&permits, &model);
        for _ in 0..3 {
            let refused = permits.take(&model).unwrap();
            permits.give_back_unused(refused);
            assert_eq!(refusals(&permits, &model, REFUSALS), REFUSALS - 1);
            model.is_used.store(true, Ordering::Relaxed);
        }
        assert_eq!(model.permits.lock().unwrap().len(), 1);
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
