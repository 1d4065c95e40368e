//! How many threads compute, over all workers of a driver, so that together they are no more than processors.
//!
//! The supervisor makes one page of shared memory, the [`Board`], on which every worker has a word of its
//! own: the number of its threads that compute now. A worker adds its word up with the others' before it
//! takes processors for helper threads, and again after it has written down what it takes; it takes none if
//! that makes more threads than processors. So of two workers that want the last processor at the same time
//! at most one gets it. The threads that run executions are counted but never refused. What is not counted:
//! executions that have not come to a large operation yet, devices that do not ask, threads that look for the
//! next request of a burst, and whatever else runs on the machine.
//!
//! A worker's word is the supervisor's to clear when the worker has ended, however it did. A worker that has
//! been taken over can write what it likes there: it can keep the others from having helpers, and have them
//! take more than there are processors for. Both change how fast they are and nothing else, as threads that
//! it started would.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal_os::cores::Cores;
use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};

/// Most workers that have a word. Those beyond compute with one thread per execution.
const MAX_SLOTS: u32 = 4080;

/// How many words have been in use so far, from the first on.
const IN_USE: u64 = 0;

/// Where the words begin: on a line of their own, since the other one is hardly ever written.
const SLOTS: u64 = 64;

const SIZE: u64 = SLOTS + MAX_SLOTS as u64 * 4;

/// The supervisor's side.
#[derive(Debug)]
pub(crate) struct Board {
    memory: SharedMemory,
    mapping: Mapping,
    is_taken: Mutex<Vec<bool>>,
}

impl Board {
    pub(crate) fn create() -> Result<Arc<Board>, ShmError> {
        let memory = SharedMemory::create(SIZE)?;
        Ok(Arc::new(Board {
            mapping: Mapping::prefaulted(&memory, Access::ReadWrite)?,
            memory,
            is_taken: Mutex::default(),
        }))
    }

    fn is_taken(&self) -> MutexGuard<'_, Vec<bool>> {
        // The list is whole between any two statements of this module.
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, offset: u64, value: u32) {
        if let Ok(word) = self.mapping.as_slice().atomic_u32(offset) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Puts right what a worker may have written where it should not: how many words count, and those that
    /// are free.
    fn tidy(&self, is_taken: &[bool]) {
        // At most as many as there are slots.
        self.store(IN_USE, is_taken.len() as u32);
        for number in 0..MAX_SLOTS {
            if !is_taken.get(number as usize).is_some_and(|taken| *taken) {
                self.store(offset_of(number), 0);
            }
        }
    }

    /// A word for one more worker, the first that is free.
    pub(crate) fn slot(self: &Arc<Board>) -> Option<Slot> {
        let mut is_taken = self.is_taken();
        let free = is_taken.iter().position(|taken| !taken).unwrap_or(is_taken.len());
        let number = u32::try_from(free).ok().filter(|number| *number < MAX_SLOTS)?;
        match is_taken.get_mut(free) {
            Some(taken) => *taken = true,
            None => is_taken.push(true),
        }
        self.tidy(&is_taken);
        Some(Slot {
            board: Arc::clone(self),
            number,
        })
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// A worker's word, as the supervisor holds it: until the worker has ended.
#[derive(Debug)]
pub(crate) struct Slot {
    board: Arc<Board>,
    number: u32,
}

impl Slot {
    /// Which it is, for the worker.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut is_taken = self.board.is_taken();
        if let Some(taken) = is_taken.get_mut(self.number as usize) {
            *taken = false;
        }
        self.board.tidy(&is_taken);
    }
}

fn offset_of(slot: u32) -> u64 {
    SLOTS + u64::from(slot) * 4
}

/// The processors of a worker.
#[derive(Debug)]
pub(crate) struct WorkerCores {
    processors: usize,
    /// What one execution may use of them.
    most: AtomicUsize,
    /// The board, and where this worker's word is on it.
    board: Option<(Mapping, u64)>,
    /// Stands for the word if there is none.
    alone: AtomicU32,
}

impl WorkerCores {
    /// The processors of a worker that knows of no others.
    pub(crate) fn alone() -> WorkerCores {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        WorkerCores {
            processors,
            most: AtomicUsize::new(processors),
            board: None,
            alone: AtomicU32::new(0),
        }
    }

    /// Those that this process may use, shared with the other workers on the board.
    pub(crate) fn on_board(board: OwnedFd, slot: u32) -> Result<WorkerCores, ShmError> {
        let memory = SharedMemory::from_fd(board, SIZE, SIZE)?;
        let mapping = Mapping::prefaulted(&memory, Access::ReadWrite)?;
        // Where there is no such word, this says so.
        let offset = offset_of(slot.min(MAX_SLOTS));
        mapping.as_slice().atomic_u32(offset)?;
        Ok(WorkerCores {
            board: Some((mapping, offset)),
            ..WorkerCores::alone()
        })
    }

    /// Sets how many threads one execution may use; 0 for as many as there are processors.
    pub(crate) fn set_most(&self, most: u32) {
        let most = match most {
            0 => self.processors,
            most => most as usize,
        };
        self.most.store(most.min(self.processors), Ordering::Relaxed);
    }

    fn word(&self) -> &AtomicU32 {
        let word = self
            .board
            .as_ref()
            .and_then(|(mapping, offset)| mapping.as_slice().atomic_u32(*offset).ok());
        word.unwrap_or(&self.alone)
    }

    /// How many threads compute, of all workers.
    fn busy(&self) -> usize {
        let Some((mapping, _)) = &self.board else {
            return self.alone.load(Ordering::SeqCst) as usize;
        };
        let page = mapping.as_slice();
        let word = |offset| {
            page.atomic_u32(offset)
                .map_or(0, |word| word.load(Ordering::SeqCst))
        };
        let in_use = word(IN_USE).min(MAX_SLOTS);
        (0..in_use).map(|slot| word(offset_of(slot)) as usize).sum()
    }
}

impl Cores for WorkerCores {
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn enter(&self) {
        self.word().fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.word().fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&self, wanted: usize) -> usize {
        let free = self.processors.saturating_sub(self.busy());
        let count = wanted.min(free);
        if count == 0 {
            return 0;
        }
        // No more than there are processors.
        self.word().fetch_add(count as u32, Ordering::SeqCst);
        if self.busy() > self.processors {
            self.give_back(count);
            return 0;
        }
        count
    }

    fn give_back(&self, count: usize) {
        self.word().fetch_sub(count as u32, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(board: &Arc<Board>, processors: usize) -> (Slot, WorkerCores) {
        let slot = board.slot().unwrap();
        let fd = board.as_fd().try_clone_to_owned().unwrap();
        let cores = WorkerCores {
            processors,
            most: AtomicUsize::new(processors),
            ..WorkerCores::on_board(fd, slot.number()).unwrap()
        };
        (slot, cores)
    }

    #[test]
    fn helpers_of_all_workers_share_the_processors() {
        let board = Board::create().unwrap();
        let (_first, one) = worker(&board, 4);
        let (_second, other) = worker(&board, 4);
        one.enter();
        assert_eq!(one.take(2), 2);
        other.enter();
        assert_eq!(other.take(3), 0, "all four are busy");
        one.give_back(2);
        assert_eq!(other.take(3), 2);
        assert_eq!(one.take(1), 0);
        // Whoever runs an execution is not refused.
        one.enter();
        assert_eq!(one.busy(), 5);
        other.give_back(2);
        assert_eq!(one.take(9), 1);
    }

    #[test]
    fn what_a_dead_worker_had_is_free_again() {
        let board = Board::create().unwrap();
        let (slot, dead) = worker(&board, 2);
        let (_slot, other) = worker(&board, 2);
        dead.enter();
        assert_eq!(dead.take(1), 1);
        other.enter();
        assert_eq!(other.take(1), 0);
        let number = slot.number();
        drop(slot);
        assert_eq!(other.take(1), 1);
        let next = board.slot().unwrap();
        assert_eq!(next.number(), number, "its word is used again");
    }

    #[test]
    fn what_a_worker_writes_where_it_should_not_does_not_outlive_it() {
        let board = Board::create().unwrap();
        let (_slot, other) = worker(&board, 2);
        for count in [0, MAX_SLOTS, u32::MAX] {
            let (slot, _) = worker(&board, 2);
            board.store(IN_USE, count);
            board.store(offset_of(MAX_SLOTS - 1), u32::MAX);
            drop(slot);
            assert_eq!(other.busy(), 0);
            assert_eq!(other.take(1), 1);
            assert_eq!(other.busy(), 1, "its own word counts");
            other.give_back(1);
        }
    }

    #[test]
    fn workers_at_once_never_have_more_than_there_is() {
        let board = Board::create().unwrap();
        let workers: Vec<_> = (0..4).map(|_| worker(&board, 6)).collect();
        std::thread::scope(|scope| {
            for (_, cores) in &workers {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let taken = cores.take(4);
                        // Those that are only being tried for are counted for a moment.
                        assert!(cores.word().load(Ordering::SeqCst) as usize == taken);
                        cores.give_back(taken);
                    }
                });
            }
        });
        assert_eq!(workers[0].1.busy(), 0);
        assert_eq!(workers[0].1.take(9), 6);
    }

    #[test]
    fn words_beyond_the_board_are_refused_and_false_counts_are_survived() {
        let board = Board::create().unwrap();
        let fd = board.as_fd().try_clone_to_owned().unwrap();
        assert!(WorkerCores::on_board(fd, u32::MAX).is_err());
        let (_slot, cores) = worker(&board, 2);
        board.store(IN_USE, u32::MAX);
        board.store(offset_of(7), u32::MAX);
        assert_eq!(cores.take(1), 0);
        cores.give_back(0);
    }

    #[test]
    fn most_threads_are_a_setting() {
        let cores = WorkerCores {
            processors: 4,
            ..WorkerCores::alone()
        };
        for (setting, most) in [(0, 4), (1, 1), (3, 3), (64, 4)] {
            cores.set_most(setting);
            assert_eq!(cores.most(), most);
        }
    }
}
