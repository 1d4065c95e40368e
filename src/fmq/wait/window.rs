//! The window: how long polling would have been cheapest over the waits of late.
//!
//! Waits are counted in classes, two for each doubling of length. A sleep is counted as expensive as polling
//! for the longest window. So the window reaches through regular short waits, is nothing where waits are
//! long, and between the two is as long as the short ones among them.

/// Lengths are counted in units of which the longest window has so many.
const UNITS_BITS: u32 = 12;
/// The first class ends at so many units, as a power of two.
const FIRST_CLASS_BITS: u32 = 4;
/// The first class, two for each doubling up to twice the longest window, and one for all longer waits.
const CLASSES: usize = 2 + 2 * (UNITS_BITS - FIRST_CLASS_BITS + 1) as usize;

/// The weight of a new wait in the history, and the total at which all weights are halved: 64 waits ago
/// counts half.
const WEIGHT: u32 = 16;
const FULL: u32 = 64 * 2 * WEIGHT;
/// Waits that fit the window change it slowly, so it is computed anew after this many.
const REVIEW_AFTER: u32 = 16;

/// A short history of waits.
#[derive(Clone, Debug)]
pub(super) struct Window {
    max_window: u64,
    /// Units in a nanosecond, in 1/2^32.
    scale: u64,
    weights: [u32; CLASSES],
    total: u32,
    since_review: u32,
}

impl Window {
    /// For windows of so many nanoseconds, and up to twice as long ones.
    pub(super) fn new(max_window: u64) -> Window {
        Window {
            max_window,
            scale: (1 << (32 + UNITS_BITS)) / max_window.max(1),
            weights: [0; CLASSES],
            total: 0,
            since_review: 0,
        }
    }

    /// Learns from a wait that is over.
    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        // No product overflows: four times the longest window has four times its units.
        let nanos = nanos.min(self.max_window.saturating_mul(4));
        // The class is below CLASSES by its definition.
        self.weights[class_of((nanos * self.scale) >> 32)] += WEIGHT;
        self.total += WEIGHT;
        self.since_review += 1;
    }

    #[inline]
    pub(super) fn is_review_due(&self) -> bool {
        self.since_review >= REVIEW_AFTER
    }

    /// The window that would have been cheapest over the history, in nanoseconds. `longest` is the longest
    /// that may be, and once or twice that which was said at first.
    pub(super) fn review(&mut self, longest: u64) -> u64 {
        self.since_review = 0;
        if self.total >= FULL {
            self.weights.iter_mut().for_each(|weight| *weight /= 2);
            self.total = self.weights.iter().sum();
        }
        let total = u64::from(self.total);
        let (mut best_window, mut best_cost) = (0, total.saturating_mul(longest));
        let (mut caught, mut polled) = (0_u64, 0_u64);
        for (class, &weight) in self.weights.iter().enumerate() {
            let window = self.nanos(class_end(class));
            if window > longest {
                break;
            }
            caught += u64::from(weight);
            polled = polled.saturating_add(u64::from(weight).saturating_mul(window / 8 * 7));
            let missed = (total - caught).saturating_mul(window.saturating_add(longest));
            let cost = polled.saturating_add(missed);
            if cost < best_cost {
                (best_window, best_cost) = (window, cost);
            }
        }
        best_window
    }

    fn nanos(&self, units: u64) -> u64 {
        self.max_window.saturating_mul(units) >> UNITS_BITS
    }
}

#[inline]
fn class_of(units: u64) -> usize {
    let Some(doublings) = units.max(1).ilog2().checked_sub(FIRST_CLASS_BITS) else {
        return 0;
    };
    let is_upper_half = units >> (doublings + FIRST_CLASS_BITS - 1) & 1;
    let class = 1 + 2 * doublings as usize + is_upper_half as usize;
    class.min(CLASSES - 1)
}

/// The waits of a class are shorter than this many units; those of the last can be longer.
fn class_end(class: usize) -> u64 {
    let Some(above) = class.checked_sub(1) else {
        return 1 << FIRST_CLASS_BITS;
    };
    let start = 1 << (FIRST_CLASS_BITS as usize + above / 2);
    if above % 2 == 0 { start / 2 * 3 } else { start * 2 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_double_without_a_gap_and_the_last_takes_the_rest() {
        assert_eq!((class_of(0), class_of(15), class_of(16)), (0, 0, 1));
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
        for class in 0..CLASSES - 1 {
            assert_eq!(class_of(class_end(class) - 1), class);
            assert_eq!(class_of(class_end(class)), class + 1);
        }
    }

    #[test]
    fn longest_window_and_twice_that_end_a_class() {
        for max in [7_000, 50_000, 100_000, 1_000_000_000] {
            let window = Window::new(max);
            let ends: Vec<u64> = (0..CLASSES).map(|class| window.nanos(class_end(class))).collect();
            assert!(ends.contains(&max) && ends.contains(&(2 * max)), "{ends:?}");
        }
    }

    #[test]
    fn waits_of_any_length_are_recorded_for_any_window() {
        for max in [0, 1, 50_000, 1 << 50, u64::MAX] {
            let mut window = Window::new(max);
            for nanos in [0, 1, 50_000, u64::MAX] {
                window.record(nanos);
            }
            assert!(window.review(max) <= max);
        }
    }
}
