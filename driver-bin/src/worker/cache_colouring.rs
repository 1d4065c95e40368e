//! Where packed weights lie that a processor's second-level cache holds.
//!
//! By its physical address a line has one of a few places in that cache. Pages come as they are free, so that
//! in some places more lines meet than fit: they push each other out in every run, and reading all of them
//! takes up to a half longer. Which addresses a process has it cannot see, least of all in a virtual machine;
//! how long reading takes it can. So some memories are made, and the first one that is read as fast as its
//! parts by themselves is kept, or the fastest.

use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use nnhal_cpu::reading_time;
use nnhal_os::buffer::ALIGNMENT;
use nnhal_os::cpu;
use nnhal_os::shm::{SealedBytes, SharedMemory, ShmError};

/// Most memories that are made. In a virtual machine whose host has scattered its pages one of eight was as
/// good as any can be: mostly eight are made then, and all of these once in a hundred times. Each takes about
/// as long as it takes to write it.
const MOST: usize = 32;

/// Most bytes of all of them, which are there at once.
const MOST_BYTES: usize = 64 << 20;

/// How often each is read, of which the fastest counts: others may disturb some.
const PASSES: usize = 12;

/// Parts of which each leaves most places of the cache empty.
const PARTS: usize = 4;

/// What takes at most this fraction longer than its parts by themselves is good enough.
const TOLERANCE: u32 = 32;

/// Held by who looks for a place: two would take twice the memory, and disturb each other's reading.
static LOOKING: Mutex<()> = Mutex::new(());

/// The best memory for `length` bytes of weights that `make` makes, from its first byte on; any one, if there
/// are so few that the second-level cache has room enough wherever they lie, or so many that it has not
/// anywhere, or somebody else in this process looks for a place. Once `is_enough`, the best so far.
///
/// # Errors
/// That of the first one that could not be made.
pub(super) fn coloured(
    length: u64,
    make: impl Fn() -> Result<SharedMemory, ShmError>,
    is_enough: impl Fn() -> bool,
) -> Result<SharedMemory, ShmError> {
    let first = make()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !cpu::second_level_cache().is_some_and(|cache| depends_on_place(length, cache)) {
        return Ok(first);
    }
    let _looking = match LOOKING.try_lock() {
        Ok(looking) => looking,
        Err(TryLockError::Poisoned(looking)) => looking.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(first),
    };
    let measured = |memory: &SharedMemory, measure: fn(&[u8]) -> Duration| {
        let mapped = SealedBytes::map(memory).ok()?;
        mapped.bytes().get(..length).map(measure)
    };
    let Some(undisturbed) = measured(&first, by_parts) else {
        return Ok(first);
    };
    let others = others(make, is_enough).take(MOST.min(MOST_BYTES / length.max(1)).saturating_sub(1));
    let time = |memory: &SharedMemory| measured(memory, |bytes| reading_time(bytes, PASSES));
    let good = undisturbed + undisturbed / TOLERANCE;
    // Mapped they have their pages, and need no descriptors, of which others in this process need some.
    let lay_aside = |memory: SharedMemory| SealedBytes::map(&memory).ok();
    Ok(choose((first, others), (time, good), lay_aside))
}

/// More of them until that is enough, or none can be made.
fn others<T, E>(make: impl Fn() -> Result<T, E>, is_enough: impl Fn() -> bool) -> impl Iterator<Item = T> {
    std::iter::from_fn(move || if is_enough() { None } else { make().ok() })
}

fn depends_on_place(length: usize, cache: usize) -> bool {
    (cache / 2..=cache / 8 * 7).contains(&length)
}

/// How long it takes to read so few of the bytes at a time, again and again, that they are not in each
/// other's way.
fn by_parts(bytes: &[u8]) -> Duration {
    let part = bytes.len().div_ceil(PARTS).next_multiple_of(ALIGNMENT);
    bytes.chunks(part).map(|part| reading_time(part, PASSES)).sum()
}

/// The first one that takes at most as long as a good one, or the one that takes the least time. The others
/// are laid aside and not let go of before that is known: their pages would be the next one's.
fn choose<T, A>(
    (first, mut others): (T, impl Iterator<Item = T>),
    (time, good): (impl Fn(&T) -> Option<Duration>, Duration),
    lay_aside: impl Fn(T) -> A,
) -> T {
    let time = |candidate: &T| time(candidate).unwrap_or(Duration::MAX);
    let mut best = (time(&first), first);
    let mut worse = Vec::new();
    while best.0 > good {
        let Some(other) = others.next() else { break };
        let other = (time(&other), other);
        let given_up = if other.0 < best.0 {
            std::mem::replace(&mut best, other)
        } else {
            other
        };
        worse.push(lay_aside(given_up.1));
    }
    best.1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Which one is chosen, and how many were made.
    fn chosen(times: &[u64], good: u64) -> (usize, usize) {
        let time = |at: &usize| Some(Duration::from_nanos(times[*at])).filter(|time| !time.is_zero());
        let made = std::cell::Cell::new(1);
        let others = (1..times.len()).inspect(|_| made.set(made.get() + 1));
        // How many of those that were laid aside are there yet.
        let aside = Arc::new(());
        let lay_aside = |_| Arc::clone(&aside);
        let most_aside = std::cell::Cell::new(0);
        let time = |at: &usize| {
            most_aside.set(most_aside.get().max(Arc::strong_count(&aside) - 1));
            time(at)
        };
        let chosen = choose((0, others), (time, Duration::from_nanos(good)), lay_aside);
        // All but the best and the one that was looked at last.
        assert_eq!(most_aside.get(), usize::max(made.get(), 2) - 2);
        (chosen, made.get())
    }

    #[test]
    fn the_first_good_one_is_chosen_or_the_best() {
        assert_eq!(chosen(&[7, 5, 4], 7), (0, 1));
        assert_eq!(chosen(&[9, 8, 6, 5], 6), (2, 3));
        assert_eq!(chosen(&[9, 7, 8], 6), (1, 3));
        assert_eq!(chosen(&[9], 6), (0, 1));
        // One that could not be read.
        assert_eq!(chosen(&[0, 9, 0], 6), (1, 3));
    }

    #[test]
    fn no_more_are_made_once_it_is_enough_or_one_cannot_be_made() {
        let made = std::cell::Cell::new(0);
        let make = || {
            made.set(made.get() + 1);
            if made.get() == 5 { Err(()) } else { Ok(made.get()) }
        };
        assert!(others(make, || made.get() == 3).eq([1, 2, 3]));
        assert_eq!(made.get(), 3);
        assert!(others(make, || false).eq([4]));
    }

    #[test]
    fn what_is_placed_holds_what_was_written_whatever_its_size() {
        let cache = cpu::second_level_cache().unwrap_or(1 << 20);
        for length in [64, cache / 2 + 64, 2 * cache] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let made = std::cell::Cell::new(0);
            let make = || {
                made.set(made.get() + 1);
                SharedMemory::create_sealed_aligned(&[&bytes], ALIGNMENT as u64)
            };
            let memory = coloured(length as u64, make, || false).unwrap();
            assert!(SealedBytes::map(&memory).unwrap().bytes()[..length] == bytes[..]);
            assert!(made.get() <= if depends_on_place(length, cache) { MOST } else { 1 });
        }
        let failed = coloured(64, || Err(ShmError::Empty), || false);
        assert!(matches!(failed, Err(ShmError::Empty)));
    }
}
