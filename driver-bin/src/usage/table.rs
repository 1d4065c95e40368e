//! The supervisor's side.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};

use super::{MOST_ROWS, MOST_THREADS, PROCESSORS, ROWS_IN_USE, ROWS_TAKEN, Resource, SIZE, offset_of, word};
use crate::processors::processors;

/// How many workers one user can have, whatever the settings say.
pub(crate) fn most_rows() -> u32 {
    MOST_ROWS
}

/// The tables of all users who have workers.
#[derive(Debug)]
pub(crate) struct UsageTables {
    by_user: HashMap<u32, UsageTable>,
    processors: u32,
    threads: u32,
}

impl UsageTables {
    /// None yet. Each user may have so many threads.
    pub(crate) fn new(threads: u32) -> UsageTables {
        UsageTables {
            by_user: HashMap::new(),
            processors: u32::try_from(processors()).unwrap_or(u32::MAX),
            threads,
        }
    }

    /// As [`UsageTables::new`], with so many processors.
    #[cfg(test)]
    pub(crate) fn of_machine(processors: u32, threads: u32) -> UsageTables {
        UsageTables {
            processors,
            ..UsageTables::new(threads)
        }
    }

    /// From now on each user may have so many threads. Who has more keeps them, and gets no further ones.
    pub(crate) fn set_threads(&mut self, threads: u32) {
        self.threads = threads;
        for table in self.by_user.values_mut() {
            table.set_threads(threads);
        }
    }

    /// How many threads a user may have who takes none against the limit: the highest that has held since its
    /// first worker.
    pub(crate) fn may_have_threads(&self, uid: u32) -> u32 {
        self.by_user
            .get(&uid)
            .map_or(self.threads, |table| table.most_threads)
    }

    /// A row for one more worker of this user, and the table that it is in. `None` if the user has as many
    /// workers as rows.
    pub(crate) fn enter(&mut self, uid: u32) -> Result<Option<(u32, BorrowedFd<'_>)>, ShmError> {
        if let Entry::Vacant(vacant) = self.by_user.entry(uid) {
            vacant.insert(UsageTable::create(self.threads)?);
            self.divide_processors();
        }
        let Some(table) = self.by_user.get_mut(&uid) else {
            return Ok(None);
        };
        Ok(table.take_row().map(|row| (row, table.memory.as_fd())))
    }

    /// A worker of this user has ended.
    pub(crate) fn leave(&mut self, uid: u32, row: u32) {
        let Some(table) = self.by_user.get_mut(&uid) else {
            return;
        };
        table.free_row(row);
        if !table.is_taken.contains(&true) {
            self.by_user.remove(&uid);
            self.divide_processors();
        }
    }

    /// Users share the processors alike, however many clients each has.
    fn divide_processors(&mut self) {
        let users = u32::try_from(self.by_user.len()).unwrap_or(u32::MAX).max(1);
        let share = (self.processors / users).max(1);
        for table in self.by_user.values_mut() {
            table.processors = share;
            table.put_right();
        }
    }
}

/// The table of one user.
#[derive(Debug)]
struct UsageTable {
    memory: SharedMemory,
    mapping: Mapping,
    is_taken: Vec<bool>,
    processors: u32,
    threads: u32,
    /// The highest that `threads` has been.
    most_threads: u32,
}

impl UsageTable {
    fn create(threads: u32) -> Result<UsageTable, ShmError> {
        let memory = SharedMemory::create(SIZE)?;
        Ok(UsageTable {
            mapping: Mapping::prefaulted(&memory, Access::ReadWrite)?,
            memory,
            is_taken: Vec::new(),
            processors: 1,
            threads,
            most_threads: threads,
        })
    }

    fn set_threads(&mut self, threads: u32) {
        self.threads = threads;
        self.most_threads = self.most_threads.max(threads);
        self.put_right();
    }

    /// The first row that is free.
    fn take_row(&mut self) -> Option<u32> {
        // What another worker has written in the row is not for the next one to have.
        self.put_right();
        let free = self.is_taken.iter().position(|taken| !taken);
        let free = free.unwrap_or(self.is_taken.len());
        let row = u32::try_from(free).ok().filter(|row| *row < MOST_ROWS)?;
        match self.is_taken.get_mut(free) {
            Some(taken) => *taken = true,
            None => self.is_taken.push(true),
        }
        self.put_right();
        Some(row)
    }

    fn free_row(&mut self, row: u32) {
        if let Some(taken) = self.is_taken.get_mut(row as usize) {
            *taken = false;
        }
        self.put_right();
    }

    fn store(&self, offset: u64, value: u32) {
        if let Some(word) = word(&self.mapping, offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// Writes what is the supervisor's to write, and clears the rows that are free, whatever a worker has
    /// written there.
    fn put_right(&self) {
        let taken = self.is_taken.iter().filter(|taken| **taken).count();
        // At most as many as there are rows.
        self.store(ROWS_IN_USE, self.is_taken.len() as u32);
        self.store(ROWS_TAKEN, taken as u32);
        self.store(PROCESSORS, self.processors);
        self.store(MOST_THREADS, self.threads);
        for row in 0..MOST_ROWS {
            if !self.is_taken.get(row as usize).is_some_and(|taken| *taken) {
                for resource in Resource::ALL {
                    self.store(offset_of(resource, row), 0);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::super::{THREADS_OF_WORKER, Usage, load};
    use super::*;

    /// A further worker of this user, and its row.
    pub(crate) fn worker(tables: &mut UsageTables, uid: u32) -> (u32, Arc<Usage>) {
        let (row, fd) = tables.enter(uid).unwrap().unwrap();
        let fd = fd.try_clone_to_owned().unwrap();
        (row, Arc::new(Usage::open(fd, row).unwrap()))
    }

    #[test]
    fn users_have_the_processors_alike_as_long_as_they_have_workers() {
        let mut tables = UsageTables::of_machine(8, 100);
        let (first, one) = worker(&mut tables, 7);
        let (_, another) = worker(&mut tables, 7);
        assert_eq!(one.processors(), 8);
        let (row, other) = worker(&mut tables, 8);
        assert_eq!([&one, &another, &other].map(|usage| usage.processors()), [4; 3]);
        for uid in 9..20 {
            worker(&mut tables, uid);
        }
        assert_eq!(other.processors(), 1);
        (9..20).for_each(|uid| tables.leave(uid, 0));
        tables.leave(7, first);
        assert_eq!(other.processors(), 4);
        tables.leave(8, row);
        assert_eq!(another.processors(), 8);
    }

    #[test]
    fn row_is_used_again_when_its_worker_has_ended_and_begins_with_nothing() {
        let mut tables = UsageTables::of_machine(2, 100);
        let (row, dead) = worker(&mut tables, 7);
        let (_, other) = worker(&mut tables, 7);
        for resource in Resource::ALL {
            let before = other.sum(resource);
            dead.take(resource, 5, u64::MAX).unwrap();
            assert_eq!(other.sum(resource), before + 5);
        }
        assert_eq!(other.workers(), 2);
        tables.leave(7, row);
        assert_eq!(other.workers(), 1);
        for resource in Resource::ALL {
            let own = other.own(resource).load(Ordering::SeqCst);
            assert_eq!(other.sum(resource), u64::from(own));
        }
        assert_eq!(worker(&mut tables, 7).0, row);
    }

    #[test]
    fn what_a_worker_writes_where_it_should_not_does_not_outlive_it() {
        let mut tables = UsageTables::of_machine(2, 100);
        let (_, other) = worker(&mut tables, 7);
        for count in [0, MOST_ROWS, u32::MAX] {
            let (row, _) = worker(&mut tables, 7);
            let table = &tables.by_user[&7];
            for offset in [ROWS_IN_USE, ROWS_TAKEN, PROCESSORS, MOST_THREADS] {
                table.store(offset, count);
            }
            table.store(offset_of(Resource::Threads, MOST_ROWS - 1), u32::MAX);
            tables.leave(7, row);
            let threads = u64::from(THREADS_OF_WORKER);
            assert_eq!((other.sum(Resource::Threads), other.workers()), (threads, 1));
            assert_eq!((other.processors(), other.most_threads()), (2, 100));
        }
        assert_eq!(load(&tables.by_user[&7].mapping, ROWS_IN_USE), 2);
    }

    #[test]
    fn fewer_threads_are_told_to_workers_and_held_against_none_that_had_more() {
        let mut tables = UsageTables::of_machine(2, 100);
        let (row, worker_before) = worker(&mut tables, 7);
        for (threads, may_have) in [(10, 100), (200, 200), (10, 200)] {
            tables.set_threads(threads);
            assert_eq!(worker_before.most_threads(), threads);
            assert_eq!(tables.may_have_threads(7), may_have);
        }
        let (_, stranger) = worker(&mut tables, 8);
        assert_eq!((stranger.most_threads(), tables.may_have_threads(8)), (10, 10));
        tables.leave(7, row);
        assert_eq!(tables.may_have_threads(7), 10);
    }

    #[test]
    fn users_have_tables_of_their_own_with_bounded_rows() {
        let mut tables = UsageTables::of_machine(2, 100);
        let (_, other) = worker(&mut tables, 8);
        for row in 0..MOST_ROWS {
            assert_eq!(tables.enter(7).unwrap().map(|(row, _)| row), Some(row));
        }
        assert!(tables.enter(7).unwrap().is_none());
        assert_eq!(other.workers(), 1);
    }
}
