//! Several threads for one operation.
//!
//! The thread that runs a program computes; for operations of more than [`WORTH_HELPERS`], and in executions
//! of more than [`WORTH_TRYING`] for operations of more than [`WORTH_PARTITIONING`], it is joined by helper
//! threads, which are made when they are first needed; not where executions have been found to be faster
//! without (`tuner.rs`). Contract:
//!
//! - **Results have the same bits whatever the number of threads**: an output is parted into blocks, each of
//!   which one thread computes as it would be computed alone, and layers that only several threads compute
//!   together give what each gives by itself (the tests of `strip_chain.rs` compare them).
//! - **No more threads than processors compute.** Before each such operation the team asks [`Cores`] for
//!   processors on which nobody computes, and gives them back after it. Without any, the operation is
//!   computed by its own thread.
//! - **In steady state** nothing is allocated and no lock taken. System calls are a helper's sleep and wake:
//!   a helper looks for work for [`SPIN`] after the last, and sleeps then. It does so when its execution has
//!   ended too, without being counted, since being woken takes as long as a good part of a small model; but
//!   hardly ever once it was in vain some times, which is where executions are far apart or others want the
//!   processor. One that sleeps is woken before the inputs of an execution are copied that will probably need
//!   it, and looks for work as long.
//! - A helper that panics takes its panic to the thread that it helped.

mod blocks;
mod hand_over;
mod helpers;
mod parallelism_tuner;
mod spin_policy;
mod team;

pub use helpers::Helpers;
pub use team::Team;

pub(crate) use blocks::{Block, Grid};
pub(crate) use parallelism_tuner::ParallelismTuner;

use std::time::Duration;

use nnhal_os::cores::Cores;

/// How long an operation, or all operations of an execution that can be parted, must take to be worth
/// helpers: waking one that sleeps takes some ten microseconds, in a virtual machine some tens. In
/// microseconds.
pub const WORTH_HELPERS: u64 = 50;

/// How long all operations of an execution that can be parted must take to try whether helpers are worth it:
/// where one execution follows the other, helpers are awake, and models of some tens of microseconds have
/// been faster with them. In microseconds.
pub const WORTH_TRYING: u64 = 20;

/// How long an operation must take to be worth a helper that looks for work already, since more follows in
/// the same execution. Handing over and taking back costs about half a microsecond; but if one thread
/// computes all of it, the other has to fetch what it needs of it for the next operation from the first one's
/// cache. In microseconds.
pub const WORTH_PARTITIONING: u64 = 1;

/// How long a helper looks for the next operation before it sleeps. Waking it takes its leader 12 to 16 us on
/// a virtual machine, and it comes 30 to 45 us after; networks gained from looking for longer than that, but
/// from no more than this.
pub const SPIN: Duration = Duration::from_micros(150);

/// Most helpers of a process.
pub const MAX_HELPERS: usize = 63;

/// What one thread gets through in a microsecond: multiply-adds of small matrix products on a processor with
/// AVX2, and bytes to and from a second-level cache, or, if there are more than it holds, memory.
const MULTIPLY_ADDS_PER_US: u64 = 30_000;
const CACHED_BYTES_PER_US: u64 = 40_000;
const BYTES_PER_US: u64 = 8_000;

/// What a second-level cache holds of an operation's bytes.
const CACHED_BYTES: u64 = 512 * 1024;

/// How much work an operation is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Products that are summed, or as many as take as long where they are faster than those of floats with
    /// AVX2.
    pub(crate) multiply_adds: u64,
    /// Bytes read and written.
    pub(crate) bytes: u64,
}

impl Cost {
    /// About how many microseconds one thread takes.
    fn micros(self) -> u64 {
        self.nanos() / 1000
    }

    /// The same in nanoseconds.
    pub(crate) fn nanos(self) -> u64 {
        let at = |amount: u64, per_us| amount.saturating_mul(1000) / per_us;
        let cached = self.bytes.min(CACHED_BYTES);
        let moving = at(cached, CACHED_BYTES_PER_US) + at(self.bytes - cached, BYTES_PER_US);
        moving.max(at(self.multiply_adds, MULTIPLY_ADDS_PER_US))
    }
}

/// What an execution may compute with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads<'a> {
    pool: Option<(&'a Helpers, &'a dyn Cores)>,
    most: usize,
}

impl<'a> Threads<'a> {
    /// The thread that runs the execution and no other.
    pub const ALONE: Threads<'static> = Threads { pool: None, most: 1 };

    /// At most `most` threads: the one that runs the execution, and helpers as far as `cores` has processors
    /// for them.
    #[must_use]
    pub fn new(helpers: &'a Helpers, cores: &'a dyn Cores, most: usize) -> Threads<'a> {
        Threads {
            pool: (most > 1).then_some((helpers, cores)),
            most,
        }
    }

    /// Most threads, the one that runs the execution among them.
    fn most(&self) -> usize {
        self.most
    }

    /// The thread that runs the execution, which is counted all the same.
    fn without_helpers(self) -> Threads<'a> {
        Threads { most: 1, ..self }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_os::cores::{Cores, OwnCores};

    use super::Cost;

    #[test]
    fn processors_are_taken_once() {
        let cores = OwnCores::new(3);
        cores.enter();
        assert_eq!((cores.take(1), cores.take(5), cores.take(1)), (1, 1, 0));
        cores.enter();
        cores.give_back(2);
        assert_eq!(cores.take(5), 1, "two threads run, who entered");
        cores.give_back(1);
        cores.leave();
        cores.leave();
        assert_eq!(cores.take(9), 3);
    }

    #[test]
    fn effort_is_the_longer_of_computing_and_moving() {
        let cost = |multiply_adds, bytes| Cost { multiply_adds, bytes }.micros();
        assert_eq!(cost(600_000, 0), 20);
        assert_eq!(cost(600_000, 1_600_000), 147);
        assert_eq!(cost(600_000, 400_000), 20);
        assert_eq!(cost(0, 400_000), 10);
        assert_eq!(cost(0, 0), 0);
    }
}
