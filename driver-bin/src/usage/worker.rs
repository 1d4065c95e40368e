//! A worker's side.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nnhal_hal::{ErrorStatus, Failure};
use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};

use super::{
    MOST_ROWS, MOST_THREADS, PROCESSORS, ROWS_IN_USE, ROWS_TAKEN, Resource, SIZE, THREADS_OF_WORKER, load,
    offset_of, word,
};
use crate::settings::UserLimits;

/// What this worker uses, beside the other workers of its client's user.
#[derive(Debug)]
pub(crate) struct Usage {
    /// The table of the user, and the row of this worker.
    table: Option<(Mapping, u32)>,
    /// Stands for the row if there is no table.
    alone: [AtomicU32; Resource::ALL.len()],
}

/// The user's workers have as much as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    /// What they have.
    used: u64,
}

impl Usage {
    /// That of a worker that knows of no others.
    pub(crate) fn alone() -> Usage {
        Usage {
            table: None,
            alone: Default::default(),
        }
    }

    /// That of the worker with this row.
    pub(crate) fn open(table: OwnedFd, row: u32) -> Result<Usage, ShmError> {
        let memory = SharedMemory::from_fd(table, SIZE, SIZE)?;
        let mapping = Mapping::prefaulted(&memory, Access::ReadWrite)?;
        // Where there is no such row, the last column says so.
        mapping
            .as_slice()
            .atomic_u32(offset_of(Resource::BufferKib, row.min(MOST_ROWS)))?;
        let usage = Usage {
            table: Some((mapping, row)),
            ..Usage::alone()
        };
        usage.add(Resource::Threads, THREADS_OF_WORKER);
        Ok(usage)
    }

    /// What this worker uses.
    pub(crate) fn own(&self, resource: Resource) -> &AtomicU32 {
        let own = self
            .table
            .as_ref()
            .and_then(|(mapping, row)| word(mapping, offset_of(resource, *row)));
        own.unwrap_or_else(|| {
            let [running, threads, descriptors, shared, buffers] = &self.alone;
            match resource {
                Resource::RunningThreads => running,
                Resource::Threads => threads,
                Resource::Descriptors => descriptors,
                Resource::SharedKib => shared,
                Resource::BufferKib => buffers,
            }
        })
    }

    /// What all workers of the user use.
    pub(crate) fn sum(&self, resource: Resource) -> u64 {
        let Some((mapping, _)) = &self.table else {
            return u64::from(self.own(resource).load(Ordering::SeqCst));
        };
        let in_use = load(mapping, ROWS_IN_USE).min(MOST_ROWS);
        (0..in_use)
            .map(|row| u64::from(load(mapping, offset_of(resource, row))))
            .sum()
    }

    /// Takes so much, whatever others have.
    pub(crate) fn add(&self, resource: Resource, amount: u32) {
        self.own(resource).fetch_add(amount, Ordering::SeqCst);
    }

    /// Takes so much, if the user's workers then have no more than `most`.
    pub(crate) fn take(&self, resource: Resource, amount: u32, most: u64) -> Result<(), Exhausted> {
        self.add(resource, amount);
        let sum = self.sum(resource);
        if sum > most {
            self.give_back(resource, amount);
            return Err(Exhausted {
                used: sum.saturating_sub(u64::from(amount)),
            });
        }
        Ok(())
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, resource: Resource, amount: u32) {
        self.own(resource).fetch_sub(amount, Ordering::SeqCst);
    }

    /// How many processors the user may have threads compute on.
    pub(crate) fn processors(&self) -> usize {
        match &self.table {
            Some((mapping, _)) => load(mapping, PROCESSORS).max(1) as usize,
            None => usize::MAX,
        }
    }

    /// How many threads the user may have in the driver.
    pub(crate) fn most_threads(&self) -> u32 {
        match &self.table {
            Some((mapping, _)) => load(mapping, MOST_THREADS),
            None => u32::MAX,
        }
    }

    /// How many workers the user has.
    pub(crate) fn workers(&self) -> u32 {
        match &self.table {
            Some((mapping, _)) => load(mapping, ROWS_TAKEN).clamp(1, MOST_ROWS),
            None => 1,
        }
    }
}

/// So much of a resource, until dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    usage: Arc<Usage>,
    resource: Resource,
    amount: u32,
}

impl Permit {
    /// Has what another one stands for, of the same resource, too.
    fn absorb(&mut self, mut other: Permit) {
        self.amount = self.amount.saturating_add(std::mem::take(&mut other.amount));
    }

    fn shrink_to(&mut self, amount: u32) {
        let less = self.amount.saturating_sub(amount);
        self.usage.give_back(self.resource, less);
        self.amount -= less;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.usage.give_back(self.resource, self.amount);
    }
}

/// What the user's workers may use together.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    usage: Arc<Usage>,
    limits: UserLimits,
}

impl Quotas {
    pub(crate) fn new(usage: Arc<Usage>, limits: UserLimits) -> Quotas {
        Quotas { usage, limits }
    }

    /// Those of a worker that knows of no others, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn alone() -> Quotas {
        Quotas::new(Arc::new(Usage::alone()), UserLimits::default())
    }

    /// One more thread, unless the user's workers have as many as they may.
    pub(crate) fn thread(&self) -> Result<Permit, Failure> {
        self.permit(Resource::Threads, 1, self.usage.most_threads().into())
    }

    /// One more helper thread. Work is done without them too, so they leave half of all for other threads.
    pub(crate) fn helper_thread(&self) -> Option<Permit> {
        let most = u64::from(self.usage.most_threads() / 2);
        self.permit(Resource::Threads, 1, most).ok()
    }

    /// One more descriptor that is kept for the client.
    pub(crate) fn descriptor(&self) -> Result<Permit, Failure> {
        self.permit(Resource::Descriptors, 1, self.limits.descriptors.into())
    }

    /// So many bytes more of memory that the client shares.
    pub(crate) fn shared_bytes(&self, bytes: u64) -> Result<Permit, Failure> {
        self.bytes(Resource::SharedKib, bytes, self.limits.shared_bytes)
    }

    /// Has the permit of a device buffer, which is `None` as long as it has no bytes, stand for so many. An
    /// error leaves it as it was; fewer bytes than before are none.
    pub(crate) fn resize_buffer(&self, permit: &mut Option<Permit>, bytes: u64) -> Result<(), Failure> {
        let has = permit.as_ref().map_or(0, |permit| u64::from(permit.amount));
        let kib = bytes.div_ceil(1024);
        if let Some(more) = kib.checked_sub(has).filter(|more| *more > 0) {
            let grown = self.bytes(
                Resource::BufferKib,
                more.saturating_mul(1024),
                self.limits.buffer_bytes,
            )?;
            match permit {
                Some(permit) => permit.absorb(grown),
                None => *permit = Some(grown),
            }
        } else if let (Some(permit), Ok(kib)) = (permit, u32::try_from(kib)) {
            permit.shrink_to(kib);
        }
        Ok(())
    }

    fn bytes(&self, resource: Resource, bytes: u64, most: u64) -> Result<Permit, Failure> {
        let kib = bytes.div_ceil(1024);
        match u32::try_from(kib) {
            Ok(kib) => self.permit(resource, kib, most / 1024),
            Err(_) => Err(failure(resource, kib, most / 1024, 0)),
        }
    }

    fn permit(&self, resource: Resource, amount: u32, most: u64) -> Result<Permit, Failure> {
        match self.usage.take(resource, amount, most) {
            Ok(()) => Ok(Permit {
                usage: Arc::clone(&self.usage),
                resource,
                amount,
            }),
            Err(Exhausted { used }) => Err(failure(resource, amount.into(), most, used)),
        }
    }

    /// How many descriptors may be sent to this worker's client that it has not read: as many as one client
    /// may have at most, and fewer where the user has many clients.
    pub(crate) fn unread_descriptors(&self) -> u32 {
        /// More than a client leaves unread that reads its answers.
        const MOST_OF_CLIENT: u32 = 64;
        (self.limits.unread_descriptors / self.usage.workers()).clamp(1, MOST_OF_CLIENT)
    }
}

/// The failure for what the user's clients have no room for. Another try is of no use if it alone is more
/// than they may have.
fn failure(resource: Resource, amount: u64, most: u64, used: u64) -> Failure {
    let status = if amount > most {
        ErrorStatus::ResourceExhaustedPersistent
    } else {
        ErrorStatus::ResourceExhaustedTransient
    };
    let (what, setting) = match resource {
        Resource::RunningThreads => ("threads that compute", "execution.threads"),
        Resource::Threads => ("threads in the driver", "user_limits.threads"),
        Resource::Descriptors => ("descriptors in the driver", "user_limits.descriptors"),
        Resource::SharedKib => ("KiB of shared memory", "user_limits.shared_bytes"),
        Resource::BufferKib => ("KiB of device buffers", "user_limits.buffer_bytes"),
    };
    Failure::new(
        status,
        format!(
            "{amount} more exceed the {most} {what} that all clients of one user may have; they have {used} \
             (the driver's setting {setting})"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::table::UsageTables;
    use super::super::table::tests::worker;
    use super::*;

    #[test]
    fn workers_of_one_user_share_what_it_may_have_and_are_told_which_limit_it_is() {
        let mut tables = UsageTables::new(2 * THREADS_OF_WORKER + 3);
        let limits = UserLimits {
            descriptors: 2,
            shared_bytes: 8 << 10,
            buffer_bytes: 8 << 10,
            ..UserLimits::default()
        };
        let [one, other] = [7, 7].map(|uid| Quotas::new(worker(&mut tables, uid).1, limits.clone()));
        let stranger = Quotas::new(worker(&mut tables, 8).1, limits);
        let threads: Vec<_> = (0..3).map(|_| one.thread().unwrap()).collect();
        let refused = other.thread().unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedTransient);
        assert_eq!(
            refused.detail,
            "1 more exceed the 11 threads in the driver that all clients of one user may have; they have 11 \
             (the driver's setting user_limits.threads)"
        );
        let _elsewhere = stranger.thread().unwrap();
        drop(threads);
        let _thread = other.thread().unwrap();
        tables.set_threads(2 * THREADS_OF_WORKER);
        let refused = other.thread().unwrap_err();
        assert!(refused.detail.contains("exceed the 8 threads"), "{refused}");
        tables.set_threads(2 * THREADS_OF_WORKER + 2);
        let _another = other.thread().unwrap();

        let _bytes = one.shared_bytes(4097).unwrap();
        other.shared_bytes(3 << 10).unwrap();
        let refused = other.shared_bytes(4 << 10).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedTransient);
        for bytes in [9 << 10, u64::MAX] {
            let refused = other.shared_bytes(bytes).unwrap_err();
            assert_eq!(refused.status, ErrorStatus::ResourceExhaustedPersistent);
        }
        let (mut buffers, mut others) = (None, None);
        one.resize_buffer(&mut buffers, 8 << 10).unwrap();
        let refused = other.resize_buffer(&mut others, 1).unwrap_err();
        one.resize_buffer(&mut buffers, 7 << 10).unwrap();
        other.resize_buffer(&mut others, 1).unwrap();
        assert!(refused.detail.contains("user_limits.buffer_bytes"), "{refused}");
        let _descriptors = (one.descriptor().unwrap(), other.descriptor().unwrap());
        assert!(
            one.descriptor()
                .unwrap_err()
                .detail
                .contains("user_limits.descriptors")
        );
    }

    #[test]
    fn unread_descriptors_are_divided_among_the_clients_of_a_user() {
        let mut tables = UsageTables::new(100);
        let limits = UserLimits {
            unread_descriptors: 128,
            ..UserLimits::default()
        };
        let first = Quotas::new(worker(&mut tables, 7).1, limits);
        assert_eq!(first.unread_descriptors(), 64);
        for (workers, each) in [(2, 64), (4, 32), (100, 1), (200, 1)] {
            while first.usage.workers() < workers {
                worker(&mut tables, 7);
                worker(&mut tables, 8);
            }
            assert_eq!(first.unread_descriptors(), each, "{workers}");
        }
    }

    #[test]
    fn rows_beyond_the_table_are_refused_and_false_counts_are_survived() {
        let mut tables = UsageTables::new(100);
        let (row, fd) = tables.enter(7).unwrap().unwrap();
        let fd = fd.try_clone_to_owned().unwrap();
        assert!(Usage::open(fd.try_clone().unwrap(), u32::MAX).is_err());
        assert!(Usage::open(fd.try_clone().unwrap(), MOST_ROWS).is_err());
        let usage = Usage::open(fd, row).unwrap();
        let (mapping, _) = usage.table.as_ref().unwrap();
        for offset in [
            ROWS_IN_USE,
            ROWS_TAKEN,
            PROCESSORS,
            offset_of(Resource::Threads, 7),
        ] {
            word(mapping, offset).unwrap().store(u32::MAX, Ordering::SeqCst);
        }
        assert!(usage.take(Resource::Threads, 1, 100).is_err());
        assert_eq!(usage.workers(), MOST_ROWS);
    }
}
