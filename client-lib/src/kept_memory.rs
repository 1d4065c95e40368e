//! Memories that are kept for other values than those that they were made for.

use crate::error::Result;
use crate::memory::Memory;

/// The system gives memory by so many bytes.
const PAGE: u64 = 4096;

/// Memory of this size is worth no saving.
const SMALL: u64 = 1 << 20;

/// Memory for values of so many bytes: one that is kept, if it suits, or a new one.
pub(crate) fn reuse(kept: Option<Memory>, size: u64) -> Result<Memory> {
    match kept.filter(|kept| suits(kept.size(), size)) {
        Some(kept) => Ok(kept),
        None => Memory::new(multiple(size, PAGE)),
    }
}

/// Whether memory of one size serves values of another: neither too small nor large and mostly empty.
pub(crate) fn suits(memory: u64, size: u64) -> bool {
    size <= memory && memory <= multiple(size, PAGE).saturating_mul(4).max(SMALL)
}

/// Up to a quarter more, so that values which grow with each call do not take new memory each time.
pub(crate) fn with_reserve(size: u64) -> u64 {
    let power = size.checked_next_power_of_two().unwrap_or(PAGE);
    multiple(size, power.div_ceil(8))
}

fn multiple(size: u64, of: u64) -> u64 {
    size.max(1).checked_next_multiple_of(of).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_grow_take_new_memory_seldom() {
        assert_eq!((with_reserve(0), with_reserve(100)), (1, 112));
        assert_eq!(with_reserve((1 << 20) + 1), (1 << 20) + (1 << 18));
        assert_eq!(with_reserve(u64::MAX), u64::MAX);
        let sizes: std::collections::BTreeSet<u64> = (0..1000).map(|row| with_reserve(row * PAGE)).collect();
        assert!(sizes.len() < 50, "{}", sizes.len());
    }

    #[test]
    fn small_memory_serves_all_that_fit_and_large_memory_what_is_not_much_smaller() {
        assert!(suits(SMALL, 1) && suits(PAGE, PAGE) && !suits(PAGE, PAGE + 1));
        assert!(suits(64 * SMALL, 16 * SMALL) && !suits(64 * SMALL, 12 * SMALL));
    }
}
