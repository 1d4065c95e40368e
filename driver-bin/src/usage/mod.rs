//! What the workers of one user use together, counted in memory that they share.
//!
//! The supervisor makes a table in shared memory for each user who has clients. A worker is given it with its
//! client, and has a row there: one number for each [`Resource`]. Only workers of that user have the table,
//! so no user's worker can write to, or read, what another user's do. Users without a number of their own, as
//! in a user namespace, count as one.
//!
//! A worker adds what it takes to its own number, then adds its column up. If the sum is more than the user
//! may have, it gives back and goes without. So of two workers that want the last one at the same time at
//! most one gets it. The supervisor clears the row when the worker has ended, however it did.
//!
//! A worker that has been taken over can write what it likes there. It can keep others of its user from
//! having anything, and have more than its user may, as far as the limits of its own process go.

mod table;
mod worker;

pub(crate) use table::{UsageTables, most_rows};
pub(crate) use worker::{Permit, Quotas, Usage};

use std::sync::atomic::{AtomicU32, Ordering};

use nnhal_os::shm::Mapping;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Threads that compute at this moment.
    RunningThreads,
    /// Threads that there are, helper threads included.
    Threads,
    /// Descriptors that are kept for the client.
    Descriptors,
    /// Memory that the client shares, by declared sizes, in KiB.
    SharedKib,
    /// Device buffers, in KiB.
    BufferKib,
}

impl Resource {
    const ALL: [Resource; 5] = [
        Resource::RunningThreads,
        Resource::Threads,
        Resource::Descriptors,
        Resource::SharedKib,
        Resource::BufferKib,
    ];
}

/// Threads of every worker: the main one, those that listen and log, and the first that runs calls.
pub(crate) const THREADS_OF_WORKER: u32 = 4;

/// Most workers of one user.
const MOST_ROWS: u32 = 1024;

/// How many rows have been in use so far, from the first on.
const ROWS_IN_USE: u64 = 0;

/// How many rows are taken now.
const ROWS_TAKEN: u64 = 4;

/// How many processors the user may have threads compute on.
const PROCESSORS: u64 = 8;

/// How many threads the user may have in the driver.
const MOST_THREADS: u64 = 12;

/// Where the columns begin: on a line of their own, since what is before is hardly ever written.
const COLUMNS: u64 = 64;

const SIZE: u64 = COLUMNS + Resource::ALL.len() as u64 * MOST_ROWS as u64 * 4;

fn offset_of(resource: Resource, row: u32) -> u64 {
    COLUMNS + (resource as u64 * u64::from(MOST_ROWS) + u64::from(row)) * 4
}

/// The word at an offset; there is one at every offset that this module computes.
fn word(mapping: &Mapping, offset: u64) -> Option<&AtomicU32> {
    mapping.as_slice().atomic_u32(offset).ok()
}

fn load(mapping: &Mapping, offset: u64) -> u32 {
    word(mapping, offset).map_or(0, |word| word.load(Ordering::SeqCst))
}
