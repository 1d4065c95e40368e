//! How long polling takes on this machine, measured once per process, so that windows in time become counts
//! of polls and no poll reads the clock.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use nnhal_os::time::{Clock, MonotonicClock};
use nnhal_os::{cpu, sched};
use once_cell::race::OnceBox;

/// Fractional bits of the durations here: a poll may take less than a nanosecond.
const FRACTION_BITS: u32 = 8;

/// Where pauses are no longer than this, the first polls are better with some of their own: it leaves the
/// line to the producer while it fills the cell (on Zen 3 a round trip with 25 ns is a third shorter than
/// without). For that the brief ones are enough, by which the consumer is less late (on Zen 4 another 10 ns).
/// Where they are longer (Skylake's 56 ns), bare polls are best.
const SHORT_PAUSE: u64 = 35 << FRACTION_BITS;

/// What is between two polls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pause {
    None,
    Brief,
    Full,
}

impl Pause {
    #[inline(always)]
    pub(super) fn pause(self) {
        match self {
            Pause::None => {}
            Pause::Brief => cpu::relax_briefly(),
            Pause::Full => cpu::relax(),
        }
    }
}

/// What this machine can do about waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollRates {
    /// Duration of a poll as it is done at first, in 1/256 ns.
    eager: u64,
    /// What is between the first polls.
    pub(super) first_pause: Pause,
    /// Duration of a poll and a pause, in 1/256 ns.
    paused: u64,
    /// Processors of the machine.
    pub(super) cpus: u32,
}

impl PollRates {
    /// The rates of this machine; the first call in a process takes about 50 us.
    pub(super) fn get() -> Self {
        // Two threads may measure at once. A lock could be held for ever in a child of `fork()`.
        static RATES: OnceBox<PollRates> = OnceBox::new();
        *RATES.get_or_init(|| {
            let paused = measure(200, cpu::relax);
            let (first_pause, polls) = if paused <= SHORT_PAUSE {
                (Pause::Brief, 2000)
            } else {
                (Pause::None, 4000)
            };
            let eager = measure(polls, || first_pause.pause());
            Box::new(Self::from_durations(eager, first_pause, paused))
        })
    }

    fn from_durations(eager: u64, first_pause: Pause, paused: u64) -> Self {
        Self {
            eager,
            first_pause,
            paused,
            // Not those this thread may use: where it is pinned to one, the peer is likely pinned to another.
            cpus: u32::try_from(sched::online_cpus()).unwrap_or(u32::MAX),
        }
    }

    /// Rates as given, for tests of what is computed from them.
    #[cfg(all(test, not(loom)))]
    pub(super) fn of(eager_ns: u64, paused_ns: u64, cpus: u32) -> Self {
        Self {
            eager: eager_ns << FRACTION_BITS,
            first_pause: Pause::None,
            paused: paused_ns << FRACTION_BITS,
            cpus,
        }
    }

    /// One poll in each stretch of a wait, and room for it whoever else polls.
    #[cfg(all(test, loom))]
    pub(super) fn slow() -> Self {
        Self {
            eager: 1 << FRACTION_BITS,
            first_pause: Pause::None,
            paused: 20_000 << FRACTION_BITS,
            cpus: u32::MAX,
        }
    }

    /// How many polls without a pause take `nanos`.
    pub(super) fn eager_polls(&self, nanos: u64) -> u32 {
        polls(nanos, self.eager)
    }

    /// How many polls with a pause take `nanos`.
    pub(super) fn paused_polls(&self, nanos: u64) -> u32 {
        polls(nanos, self.paused)
    }

    /// How long that many polls of each kind took, in nanoseconds.
    pub(super) fn nanos(&self, eager_polls: u64, paused_polls: u64) -> u64 {
        let eager = eager_polls.saturating_mul(self.eager);
        let paused = paused_polls.saturating_mul(self.paused);
        eager.saturating_add(paused) >> FRACTION_BITS
    }
}

fn polls(nanos: u64, each: u64) -> u32 {
    u32::try_from(nanos.saturating_mul(1 << FRACTION_BITS) / each).unwrap_or(u32::MAX)
}

/// The shortest of several measurements, since anything that disturbs one makes it longer.
fn measure(polls: u64, pause: impl Fn()) -> u64 {
    let word = AtomicU64::new(0);
    let once = || {
        let start = MonotonicClock.now();
        for expected in 1..=polls {
            if black_box(&word).load(Ordering::Relaxed) == expected {
                break;
            }
            pause();
        }
        let nanos = MonotonicClock.now().saturating_since(start).as_nanos() as u64;
        (nanos << FRACTION_BITS) / polls
    };
    (0..5).map(|_| once()).min().unwrap_or(0).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn windows_become_polls_and_polls_become_time() {
        let rates = PollRates::of(2, 50, 2);
        assert_eq!(rates.eager_polls(1000), 500);
        assert_eq!(rates.paused_polls(50_000), 1000);
        assert_eq!(rates.nanos(500, 1000), 51_000);
        assert_eq!(rates.paused_polls(u64::MAX), u32::MAX);
    }

    #[test]
    fn this_machine_polls_in_between_a_tenth_of_a_nanosecond_and_ten_microseconds() {
        let rates = PollRates::get();
        assert!(
            (25..2_560_000).contains(&rates.eager) && (25..2_560_000).contains(&rates.paused),
            "{rates:?}"
        );
        assert!(rates.cpus >= 1);
    }
}
