//! Several threads for one operation.
//!
//! The thread that runs a program computes; for operations of more than `MIN_FOR_HELPERS`, and in executions
//! of more than `MIN_FOR_TRIAL` for operations of more than `MIN_FOR_PARTITION` (`plan/cost.rs`), it is
//! joined by helper threads, which are made when they are first needed; not where executions have been found
//! to be faster without (`parallelism_tuner.rs`). Contract:
//!
//! - **An execution can be stopped within a large operation**: its leader asks between two blocks.
//! - **Results have the same bits whatever the number of threads**: an output is parted into blocks, each of
//!   which one thread computes as it would be computed alone, and layers that only several threads compute
//!   together give what each gives by itself (the tests of `depth_first.rs` compare them).
//! - **No more threads than processors compute.** Before each such operation the team asks [`Cores`] for
//!   processors on which nobody computes, and gives them back after it. Without any, the operation is
//!   computed by its own thread.
//! - **In steady state** nothing is allocated and no lock taken. System calls are a helper's sleep and wake:
//!   a helper looks for work for `SPIN` after the last, and sleeps then. It does so when its execution has
//!   ended too, without being counted, since being woken takes as long as a good part of a small model; but
//!   hardly ever once it was in vain some times, which is where executions are far apart or others want the
//!   processor. One that sleeps is woken before the inputs of an execution are copied that will probably need
//!   it, and looks for work as long.
//! - A helper that panics takes its panic to the thread that it helped.

mod blocks;
mod checks;
mod hand_over;
mod helpers;
mod parallelism_tuner;
mod spin_policy;
mod taken;
mod team;

pub(crate) use checks::Checks;
pub use helpers::{Helpers, MAX_HELPERS};
pub(crate) use team::Parts;
pub use team::Team;

pub(crate) use blocks::{Block, Grid};
pub(crate) use parallelism_tuner::ParallelismTuner;

use nnhal_os::cores::Cores;

pub(crate) use crate::plan::cost::Cost;

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
}
