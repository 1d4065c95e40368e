//! Bursts: requests that come over a ring and are run by a thread of the burst's own, or by that of another.
//!
//! Contract: one thread at a time owns both ends of the ring and one execution of the prepared model
//! ([`polling`]). While requests keep coming it neither allocates, locks nor makes a system call: a
//! registered request is compiled once, a general one each time, and both are run by the same code. Memories
//! and device buffers are kept as weak references, which are held only while requests follow each other at
//! once, so that what the client frees goes before the next batch of them or in the first pause. Everything
//! else is used again. What arrives is decoded by [`nnhal::burst`], which trusts nothing; a packet that
//! means nothing is answered, and the burst goes on. A ring that the client corrupted ends the burst.

mod cancel;
mod compiled;
mod fences;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod lent;
mod named;
mod places;
mod poller;
mod polling;
mod runner;
mod serve;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nnhal::fmq::{ChannelCloser, ChannelEnd, ChannelSize, MAX_CELLS, WaitSettings};
use nnhal::wire::BurstHandle;
use nnhal_hal::{ErrorStatus, ExecutionPreference, Failure, Priority};
use nnhal_os::shm::SharedMemory;
use nnhal_os::{eventfd, fds, file_status};

use self::cancel::Canceller;
use self::fences::Fences;
use self::places::Places;
pub(crate) use self::serve::Objects;
use self::serve::Server;
use super::nice;
use super::table::{Table, no_such, too_many};
use crate::settings::{ExecutionSettings, Polling};
use crate::usage::Quotas;

/// The bursts of a client.
#[derive(Debug)]
pub(crate) struct Bursts {
    table: Mutex<Table<Burst>>,
    /// Threads of bursts that were released, until they have ended.
    ending: Mutex<Vec<JoinHandle<()>>>,
    places: Arc<Places>,
    quotas: Quotas,
}

#[derive(Debug)]
struct Burst {
    closer: ChannelCloser,
    canceller: Arc<Canceller>,
    fences: Arc<Fences>,
    thread: JoinHandle<()>,
}

impl Bursts {
    /// At most `limit`, of which at most so many have threads that serve others, too; 0 for half of the
    /// processors.
    pub(crate) fn new(limit: u32, most_pollers: u32, quotas: Quotas) -> Bursts {
        Bursts {
            table: Mutex::new(Table::new(limit)),
            ending: Mutex::default(),
            places: Arc::new(Places::new(most_pollers)),
            quotas,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<Burst>> {
        // The table is whole between any two statements of this module.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ending(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// HAL `configureExecutionBurst`: opens the rings in `fd` and starts the burst's thread. `wake` is rung
    /// when the thread ends.
    pub(crate) fn configure(
        &self,
        objects: Objects,
        fd: OwnedFd,
        wait: WaitSettings,
        wake: &OwnedFd,
    ) -> Result<BurstHandle, Failure> {
        let permit = self.quotas.thread()?;
        let end = open_channel(fd, wait)?;
        let closer = end.closer.clone();
        let server = Box::new(Server::new(objects, end, wait, &self.quotas)?);
        let canceller = Arc::clone(server.canceller());
        let fences = Arc::clone(server.fences());
        let places = Arc::clone(&self.places);
        let priority = server.kind().priority;
        let wake = fds::duplicate_of(wake).map_err(no_resources)?;
        let thread = std::thread::Builder::new()
            .name("burst".to_owned())
            .spawn(move || {
                if priority == Priority::Low {
                    nice::become_nice();
                }
                thread::run(&places, server);
                drop(permit);
                eventfd::wake(&wake);
            })
            .map_err(no_resources)?;
        let ring = closer.clone();
        let inserted = self.table().insert(Burst {
            closer,
            canceller,
            fences,
            thread,
        });
        match inserted {
            Ok(handle) => Ok(handle.into()),
            Err(full) => {
                // The thread ends by itself; nobody waits for it.
                ring.close();
                Err(too_many("bursts", full, "limits.bursts"))
            }
        }
    }

    /// Ends a burst; the execution that runs, if one does, ends first.
    pub(crate) fn release(&self, handle: BurstHandle) -> Result<(), Failure> {
        let burst = self.table().remove(handle.0);
        let burst = burst.ok_or_else(|| no_such("burst", handle.0))?;
        burst.closer.close();
        self.end(burst);
        Ok(())
    }

    /// Asks an execution to end early, if it has not ended.
    pub(crate) fn cancel(&self, handle: BurstHandle, sequence: u32) -> Result<(), Failure> {
        let table = self.table();
        let burst = table.get(handle.0).ok_or_else(|| no_such("burst", handle.0))?;
        burst.canceller.cancel(sequence);
        Ok(())
    }

    /// A fence for the end of a fenced request; `None` if that has ended.
    pub(crate) fn fence(&self, handle: BurstHandle, sequence: u32) -> Result<Option<OwnedFd>, Failure> {
        let fences = match self.table().get(handle.0) {
            Some(burst) => Arc::clone(&burst.fences),
            None => return Err(no_such("burst", handle.0)),
        };
        fences.of(sequence)
    }

    /// Fails all fences: the client is gone, and this process is about to end.
    pub(crate) fn end_fences(&self) {
        self.table().iter().for_each(|burst| burst.fences.end());
    }

    fn end(&self, burst: Burst) {
        let mut ending = self.ending();
        ending.retain(|thread| !thread.is_finished());
        ending.push(burst.thread);
    }

    /// Has all bursts end once they have answered the requests that have come. Until then these can be
    /// cancelled.
    pub(crate) fn drain(&self) {
        self.table()
            .iter()
            .for_each(|burst| burst.closer.close_consumed());
    }

    /// Whether no burst runs, nor runs on after its end.
    pub(crate) fn are_over(&self) -> bool {
        let mut ending = self.ending();
        ending.retain(|thread| !thread.is_finished());
        ending.is_empty() && self.table().iter().all(|burst| burst.thread.is_finished())
    }
}

/// How a burst waits: it polls no longer than the driver's settings allow, and no longer than the client asks
/// for.
///
/// A model that was prepared for low power does not poll at all: its burst sleeps between requests, at the
/// price of a wake-up for each.
pub(crate) fn wait_settings(
    preference: ExecutionPreference,
    settings: &ExecutionSettings,
    asked_ns: Option<u64>,
) -> WaitSettings {
    if preference == ExecutionPreference::LowPower {
        return WaitSettings::Sleep;
    }
    let setting = Duration::from_micros(settings.polling_window_us);
    let window = asked_ns.map_or(setting, |asked| setting.min(Duration::from_nanos(asked)));
    match settings.polling {
        _ if window.is_zero() => WaitSettings::Sleep,
        Polling::Adaptive => WaitSettings::Adaptive { max_window: window },
        Polling::Fixed => WaitSettings::Fixed { window },
    }
}

fn open_channel(fd: OwnedFd, wait: WaitSettings) -> Result<ChannelEnd, Failure> {
    let invalid = |error: &dyn std::fmt::Display| {
        Failure::invalid_argument(format!("the burst's memory cannot be used: {error}"))
    };
    let size = file_status::size_of(&fd).map_err(|error| invalid(&error))?;
    let largest = ChannelSize {
        outgoing: MAX_CELLS,
        incoming: MAX_CELLS,
    };
    let limit = ChannelEnd::memory_size(largest).map_err(|error| invalid(&error))?;
    let memory = SharedMemory::from_fd(fd, size, limit).map_err(|error| invalid(&error))?;
    if memory.is_dma_buf() {
        return Err(invalid(
            &"it is a dma-buf; rings are in memory that no device shares",
        ));
    }
    ChannelEnd::open(&memory, wait).map_err(|error| invalid(&error))
}

fn no_resources(error: impl std::fmt::Display) -> Failure {
    Failure::new(
        ErrorStatus::ResourceExhaustedTransient,
        format!("the driver cannot start a burst: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: ExecutionPreference = ExecutionPreference::FastSingleAnswer;

    fn settings(polling: Polling, polling_window_us: u64) -> ExecutionSettings {
        ExecutionSettings {
            polling_window_us,
            polling,
            ..ExecutionSettings::default()
        }
    }

    #[test]
    fn low_power_does_not_poll() {
        let low = ExecutionPreference::LowPower;
        for polling in [Polling::Adaptive, Polling::Fixed] {
            let settings = settings(polling, 50);
            assert_eq!(wait_settings(low, &settings, Some(20_000)), WaitSettings::Sleep);
            let sustained = wait_settings(ExecutionPreference::SustainedSpeed, &settings, None);
            assert_eq!(sustained, wait_settings(FAST, &settings, None));
        }
    }

    fn expect_bounds(polling: Polling, of: fn(Duration) -> WaitSettings) {
        let window = |setting, asked| wait_settings(FAST, &settings(polling, setting), asked);
        let micros = |micros| of(Duration::from_micros(micros));
        assert_eq!(window(50, None), micros(50));
        assert_eq!(window(50, Some(20_000)), micros(20));
        assert_eq!(window(50, Some(u64::MAX)), micros(50));
        assert_eq!(window(50, Some(0)), WaitSettings::Sleep);
        assert_eq!(window(0, Some(1_000)), WaitSettings::Sleep);
    }

    #[test]
    fn polling_is_bounded_by_the_driver_and_by_the_client() {
        expect_bounds(Polling::Adaptive, |max_window| WaitSettings::Adaptive {
            max_window,
        });
        expect_bounds(Polling::Fixed, |window| WaitSettings::Fixed { window });
    }
}
