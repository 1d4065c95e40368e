//! The threads of one execution.

use std::cell::Cell;

use nnhal_os::cores::Cores;
use nnhal_os::sched;

use super::blocks::{self, Block, Blocks, End, Grid};
use super::checks::{CheckState, Checks};
use super::hand_over::share;
use super::taken::Taken;
use super::{Helpers, Threads};
use crate::interrupt::{Interrupt, Interrupted};
use crate::plan::cost::{BETWEEN_CHECKS, Cost, MIN_FOR_HELPERS, MIN_FOR_PARTITION, MIN_FOR_TRIAL};

/// In how many blocks an operation is computed, and by how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Most threads.
    pub(crate) threads: usize,
    /// Fewest blocks, so that the execution can be stopped between them.
    pub(crate) blocks: usize,
}

impl Parts {
    /// All at once, by one thread.
    pub(crate) const ONE: Parts = Parts {
        threads: 1,
        blocks: 1,
    };

    /// Those of each of so many images, one computed after the other.
    pub(crate) fn of_each(self, images: usize) -> Parts {
        Parts {
            blocks: self.blocks.div_ceil(images.max(1)),
            ..self
        }
    }
}

/// What computes a block, with scratch memory.
type Work<'w, T, S> = dyn Fn(Block<'_, T>, &mut [S], &Checks<'_>) + Sync + 'w;

/// The thread that runs an execution, with the helpers that it has claimed so far. They are let go when this
/// is dropped.
///
/// Once it was told to stop it computes no further block, so what operations give is undefined: whoever runs
/// an execution asks it before each operation, and looks at [`Team::outcome`] behind the last.
pub struct Team<'a> {
    threads: Threads<'a>,
    interrupt: &'a dyn Interrupt,
    /// What it was told.
    stopped: Cell<Option<Interrupted>>,
    /// By mailbox.
    claimed: Cell<u64>,
    /// How many these are.
    helpers: Cell<usize>,
    /// Whether this thread has been noted as one that computes.
    is_counted: Cell<bool>,
    /// How many microseconds an operation must take to be worth helpers.
    least: u64,
    /// How many microseconds one thread takes for the operations so far that are worth parting.
    partable: Cell<u64>,
}

impl<'a> Team<'a> {
    /// The calling thread, with what helpers it may have, for an execution in which the operations that are
    /// worth parting are known to take one thread about as many microseconds as `expected`; 0 if that is not
    /// known.
    #[must_use]
    pub fn new(threads: Threads<'a>, expected: u64, interrupt: &'a dyn Interrupt) -> Team<'a> {
        Team {
            threads,
            interrupt,
            stopped: Cell::new(None),
            claimed: Cell::new(0),
            helpers: Cell::new(0),
            is_counted: Cell::new(false),
            least: if expected >= MIN_FOR_TRIAL {
                MIN_FOR_PARTITION
            } else {
                MIN_FOR_HELPERS
            },
            partable: Cell::new(0),
        }
    }

    /// About how many microseconds one thread takes for the operations so far that are worth parting.
    #[must_use]
    pub fn partable(&self) -> u64 {
        self.partable.get()
    }

    /// How many helpers there have been.
    #[must_use]
    #[inline]
    pub(crate) fn helpers(&self) -> usize {
        self.helpers.get()
    }

    /// Whether all that was to be computed has been, so far.
    ///
    /// # Errors
    /// The execution was told to stop.
    #[inline]
    pub fn outcome(&self) -> Result<(), Interrupted> {
        self.stopped.get().map_or(Ok(()), Err)
    }

    /// How an operation of this cost is to be parted: for one thread if it is not worth helpers.
    #[inline]
    pub(crate) fn parts_for(&self, cost: Cost) -> Parts {
        let takes = cost.micros();
        Parts {
            threads: self.threads_for(takes),
            blocks: if takes < BETWEEN_CHECKS {
                1
            } else {
                usize::try_from(takes.div_ceil(BETWEEN_CHECKS)).unwrap_or(usize::MAX)
            },
        }
    }

    /// For how many threads to part an operation that takes one so many microseconds.
    #[inline]
    fn threads_for(&self, takes: u64) -> usize {
        let Some((_, cores)) = self.threads.pool else {
            return 1;
        };
        if takes >= MIN_FOR_PARTITION {
            self.partable.set(self.partable.get().saturating_add(takes));
        }
        if takes < self.least {
            return 1;
        }
        // From the first large operation on: the small ones of small models shall not pay for it.
        if !self.is_counted.replace(true) {
            cores.enter();
        }
        self.most()
    }

    /// For how many threads [`Team::parts_for`] would part an operation of which it is not known yet whether
    /// it is computed so.
    pub(crate) fn threads_that_partition(&self, cost: Cost) -> usize {
        if cost.micros() < self.least {
            return 1;
        }
        self.most()
    }

    /// Most threads that an operation can be parted for.
    #[inline]
    pub(crate) fn most(&self) -> usize {
        self.threads.pool.map_or(1, |(helpers, cores)| {
            self.threads.most.min(cores.most()).min(helpers.most() + 1)
        })
    }

    /// Has `work` done for every block of `output`, by at most `threads` threads, each with its share of
    /// `scratch`, of which there is at least `threads` times what one needs. Asks between blocks whether the
    /// execution is to go on.
    ///
    /// # Panics
    /// If `output` is smaller than the grid, or `work` panics.
    pub(crate) fn for_each_block<T: Send, S: Send>(
        &self,
        threads: usize,
        grid: &Grid,
        memory: (&mut [T], &mut [S]),
        work: impl Fn(Block<'_, T>, &mut [S]) + Sync,
    ) {
        self.for_each_long_block(threads, grid, memory, |block, scratch, _| work(block, scratch));
    }

    /// The same for blocks that take long: `work` asks within them, too, whether to go on.
    ///
    /// # Panics
    /// As [`Team::for_each_block`].
    pub(crate) fn for_each_long_block<T: Send, S: Send>(
        &self,
        threads: usize,
        grid: &Grid,
        (output, scratch): (&mut [T], &mut [S]),
        work: impl Fn(Block<'_, T>, &mut [S], &Checks<'_>) + Sync,
    ) {
        // One copy of the code serves both ways.
        let work: &Work<'_, T, S> = &work;
        let threads = grid.most_threads(threads);
        let state = CheckState::default();
        let checks = Checks::of_leader(self, &state);
        let mut is_first = true;
        let mut is_wanted = || std::mem::take(&mut is_first) || checks.goes_on();
        if threads == 1 {
            // Counting blocks and giving them out takes longer than a small operation.
            return blocks::for_each(output, grid, |block| {
                if is_wanted() {
                    work(block, scratch, &checks);
                }
            });
        }
        let each = scratch.len() / threads;
        let (blocks, shares) = (
            Blocks::new(output, *grid),
            Blocks::shares(scratch, (threads, each)),
        );
        // So this thread has the same part of one operation's output and of the next one's input, mostly,
        // which is then in its cache, and the same scratch memory.
        let lead = || {
            let mut share = shares.take(End::First);
            let scratch = share.as_mut().map(Block::all).unwrap_or_default();
            while let Some(block) = blocks.take(End::First) {
                if is_wanted() {
                    work(block, scratch, &checks);
                }
            }
        };
        let are_nice = self.threads.pool.is_some_and(|(helpers, _)| helpers.are_nice());
        let help = |_| {
            let checks = Checks::of_helper(&state);
            let mut share = shares.take(End::Last);
            let scratch = share.as_mut().map(Block::all).unwrap_or_default();
            while let Some(block) = blocks.take(End::Last) {
                work(block, scratch, &checks);
                // While its leader is suspended a helper leaves the processor to others, too.
                if state.is_asked() {
                    break;
                }
                if are_nice && blocks.are_left() {
                    sched::yield_in_time();
                }
            }
        };
        self.share(threads, lead, &help);
    }

    /// Does `lead` here and `help(1)` and so on on as many helpers as can be had, fewer than `threads`.
    fn share(&self, threads: usize, lead: impl FnOnce(), help: &(dyn Fn(usize) + Sync)) {
        let pool = self.threads.pool.filter(|_| threads > 1);
        let taken = pool.and_then(|(helpers, cores)| Taken::new(helpers, cores, threads - 1));
        let Some(mut taken) = taken else {
            return lead();
        };
        let bits = self.claim(taken.helpers, taken.count, taken.cores);
        // Another execution may have claimed the helpers for these processors.
        taken.keep(bits.count_ones() as usize);
        share(taken.helpers.mailboxes(), bits, lead, help);
    }

    /// At most `wanted` claimed helpers.
    fn claim(&self, helpers: &Helpers, wanted: usize, cores: &dyn Cores) -> u64 {
        let mut claimed = self.claimed.get();
        let lacking = wanted.saturating_sub(self.helpers.get());
        if lacking > 0 {
            claimed |= helpers.claim(lacking, cores);
            self.claimed.set(claimed);
            self.helpers.set(claimed.count_ones() as usize);
        }
        while claimed.count_ones() as usize > wanted {
            claimed &= claimed - 1;
        }
        claimed
    }
}

impl Interrupt for Team<'_> {
    #[inline]
    fn check(&self) -> Result<(), Interrupted> {
        self.outcome()?;
        let told = self.interrupt.check();
        self.stopped.set(told.err());
        told
    }
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team")
            .field("threads", &self.threads)
            .field("stopped", &self.stopped)
            .field("helpers", &self.helpers)
            .finish_non_exhaustive()
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        if let Some((helpers, cores)) = self.threads.pool {
            if self.claimed.get() != 0 {
                helpers.release(self.claimed.get());
            }
            if self.is_counted.get() {
                cores.leave();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nnhal_os::cores::{Cores as _, OwnCores};

    use super::super::Threads;
    use super::{Cost, Grid, Helpers, Parts, Team};
    use crate::interrupt::{Interrupt, Interrupted, NeverInterrupted};
    use crate::plan::cost::{
        BETWEEN_CHECKS, MIN_FOR_HELPERS, MIN_FOR_PARTITION, MIN_FOR_TRIAL, MULTIPLY_ADDS_PER_US,
    };

    const LARGE: Cost = Cost {
        multiply_adds: 1 << 30,
        bytes: 0,
    };

    fn grid(rows: usize, columns: usize, block: (usize, usize)) -> Grid {
        Grid {
            rows,
            columns,
            rows_per_block: block.0,
            columns_per_block: block.1,
        }
    }

    /// Writes to each element its own number, by blocks, and checks that each is written once.
    fn fill(team: &Team<'_>, grid: &Grid) {
        let mut output = vec![0_usize; grid.rows * grid.columns];
        let threads = team.parts_for(LARGE).threads;
        let mut scratch = vec![0_usize; threads];
        team.for_each_block(
            threads,
            grid,
            (&mut output, &mut scratch),
            |mut block, scratch| {
                let (first, columns) = (block.first_row(), block.columns());
                for row in 0..block.rows() {
                    for (value, column) in block.row(row).iter_mut().zip(columns.clone()) {
                        *value += (first + row) * grid.columns + column + 1;
                        scratch[0] += 1;
                    }
                }
            },
        );
        assert!(output.iter().enumerate().all(|(at, value)| *value == at + 1));
        assert_eq!(scratch.iter().sum::<usize>(), output.len());
    }

    #[test]
    fn every_block_is_computed_once_by_any_number_of_threads() {
        for most in [1, 2, 3, 4, 9] {
            let helpers = Helpers::new(most - 1);
            let cores = OwnCores::new(most);
            let team = Team::new(Threads::new(&helpers, &cores, most), 0, &NeverInterrupted);
            assert_eq!(team.parts_for(LARGE).threads, most);
            for _ in 0..200 {
                fill(&team, &grid(7, 5, (2, 2)));
                fill(&team, &grid(1, 33, (1, 4)));
                fill(&team, &grid(64, 3, (1, 3)));
                fill(&team, &grid(0, 3, (1, 3)));
            }
            drop(team);
            assert_eq!(cores.take(99), most, "all processors were given back");
        }
    }

    #[test]
    fn helpers_come_and_go_under_many_leaders() {
        let (helpers, cores) = (Helpers::new(3), OwnCores::new(8));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let team = Team::new(Threads::new(&helpers, &cores, 4), 0, &NeverInterrupted);
                        fill(&team, &grid(9, 4, (1, 4)));
                        drop(team);
                        helpers.end_idle();
                    }
                });
            }
        });
        assert_eq!(cores.take(99), 8);
    }

    #[test]
    fn helpers_that_have_slept_are_woken() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let team = Team::new(Threads::new(&helpers, &cores, 2), 0, &NeverInterrupted);
        for round in 0..50 {
            // Whether it is up already makes no difference.
            helpers.rouse(round % 2);
            // The helper is needed for both halves to meet.
            let there = AtomicUsize::new(0);
            let meet = || {
                there.fetch_add(1, Ordering::SeqCst);
                while there.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            };
            team.share(2, meet, &|_| meet());
            std::thread::park_timeout(2 * crate::plan::cost::SPIN);
        }
    }

    #[test]
    fn panic_of_a_helper_reaches_its_leader_and_ends_nobody() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let team = Team::new(Threads::new(&helpers, &cores, 2), 0, &NeverInterrupted);
        for panics in [1, 0] {
            let there = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let meet = |thread| {
                    there.fetch_add(1, Ordering::SeqCst);
                    while there.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    assert_ne!(thread, panics, "on purpose");
                };
                team.share(2, || meet(0), &meet);
            }));
            assert!(outcome.is_err());
            fill(&team, &grid(7, 5, (2, 2)));
        }
        drop(team);
        assert_eq!(cores.take(9), 2);
    }

    #[test]
    fn busy_processors_mean_no_helper() {
        let (helpers, cores) = (Helpers::new(3), OwnCores::new(2));
        cores.enter();
        let team = Team::new(Threads::new(&helpers, &cores, 4), 0, &NeverInterrupted);
        assert_eq!(team.parts_for(LARGE).threads, 2);
        let seen = AtomicUsize::new(0);
        let see = || {
            seen.fetch_add(1, Ordering::SeqCst);
        };
        team.share(4, see, &|_| see());
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        assert!(helpers.threads().is_empty(), "none was made");
    }

    #[test]
    fn processors_without_helpers_are_for_others() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(4));
        let team = Team::new(Threads::new(&helpers, &cores, 4), 0, &NeverInterrupted);
        let free = AtomicUsize::new(0);
        let take = || {
            let count = cores.take(9);
            cores.give_back(count);
            free.store(count, Ordering::SeqCst);
        };
        team.share(4, take, &|_| ());
        // One helper, whether it came or not, of the three that were wanted.
        assert_eq!(free.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn operations_that_are_worth_parting_only_among_others_are_parted_where_those_are_known() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let cost = |micros| Cost {
            multiply_adds: micros * MULTIPLY_ADDS_PER_US,
            bytes: 0,
        };
        let threads = |expected, micros| {
            let team = Team::new(Threads::new(&helpers, &cores, 2), expected, &NeverInterrupted);
            let foreseen = team.threads_that_partition(cost(micros));
            assert_eq!(team.partable(), 0);
            let threads = team.parts_for(cost(micros)).threads;
            assert_eq!(foreseen, threads);
            assert_eq!(
                team.partable(),
                if micros < MIN_FOR_PARTITION { 0 } else { micros }
            );
            threads
        };
        assert_eq!(threads(0, MIN_FOR_HELPERS - 1), 1);
        assert_eq!(threads(0, MIN_FOR_HELPERS), 2);
        assert_eq!(threads(MIN_FOR_TRIAL - 1, MIN_FOR_PARTITION), 1);
        assert_eq!(threads(MIN_FOR_TRIAL, MIN_FOR_PARTITION), 2);
        assert_eq!(threads(MIN_FOR_TRIAL, MIN_FOR_PARTITION - 1), 1);
    }

    #[test]
    fn scratch_memory_of_the_leader_is_the_first_share() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let team = Team::new(Threads::new(&helpers, &cores, 2), 0, &NeverInterrupted);
        for _ in 0..200 {
            let (mut output, mut scratch) = ([0_u8; 8], [0_usize; 2]);
            let leader = std::thread::current().id();
            let blocks = grid(8, 1, (1, 1));
            team.for_each_block(2, &blocks, (&mut output, &mut scratch), |_, scratch| {
                scratch[0] = if std::thread::current().id() == leader {
                    1
                } else {
                    2
                };
            });
            assert!(scratch[0] != 2 && scratch[1] != 1, "{scratch:?}");
        }
    }

    #[test]
    fn small_operations_are_no_reason_to_count() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let team = Team::new(Threads::new(&helpers, &cores, 2), 0, &NeverInterrupted);
        assert_eq!(team.parts_for(Cost::default()), Parts::ONE);
        assert_eq!(cores.take(9), 2);
    }

    #[test]
    fn large_operations_are_parted_for_one_thread_too() {
        let team = Team::new(Threads::ALONE, 0, &NeverInterrupted);
        let blocks = |micros| {
            let cost = Cost {
                multiply_adds: micros * MULTIPLY_ADDS_PER_US,
                bytes: 0,
            };
            team.parts_for(cost).blocks
        };
        let limits = [
            BETWEEN_CHECKS - 1,
            BETWEEN_CHECKS,
            BETWEEN_CHECKS + 1,
            5 * BETWEEN_CHECKS,
        ];
        assert_eq!(limits.map(blocks), [1, 1, 2, 5]);
        assert_eq!(team.parts_for(LARGE).of_each(1000).blocks, 1);
    }

    /// Stops an execution at a check, and at no other.
    struct StopsAt(Cell<u32>);

    impl Interrupt for StopsAt {
        fn check(&self) -> Result<(), Interrupted> {
            self.0.set(self.0.get().wrapping_sub(1));
            if self.0.get() == 0 {
                Err(Interrupted::Cancelled)
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn execution_that_is_to_stop_computes_no_further_block() {
        for most in [1, 2, 4] {
            let (helpers, cores) = (Helpers::new(most - 1), OwnCores::new(most));
            let interrupt = StopsAt(Cell::new(3));
            let team = Team::new(Threads::new(&helpers, &cores, most), 0, &interrupt);
            let (mut output, mut scratch) = (vec![0_u8; 100], vec![0_usize; most]);
            let leader = std::thread::current().id();
            let by_leader = AtomicUsize::new(0);
            let compute = |team: &Team<'_>, output: &mut [u8], scratch: &mut [usize]| {
                team.for_each_block(most, &grid(100, 1, (1, 1)), (output, scratch), |_, _| {
                    if std::thread::current().id() == leader {
                        by_leader.fetch_add(1, Ordering::Relaxed);
                    } else {
                        std::thread::yield_now();
                    }
                });
            };
            compute(&team, &mut output, &mut scratch);
            let computed = by_leader.load(Ordering::Relaxed);
            // Helpers may have left it fewer.
            if most == 1 || team.outcome().is_err() {
                assert_eq!((computed, team.outcome()), (3, Err(Interrupted::Cancelled)));
                assert_eq!(team.check(), Err(Interrupted::Cancelled), "it stays stopped");
            }
        }
    }
}
