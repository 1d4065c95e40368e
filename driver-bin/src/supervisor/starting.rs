//! Workers that are on their way: ordered, started, not ready yet.
//!
//! A thread of its own starts processes ([`super::spawner`]); here the main thread waits until they are
//! ready, for several at once. A worker that takes too long is killed, and so is one that has begun with
//! settings that hold no more.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nnhal::wire::Inbox;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, pidfd};

use super::options::SupervisorOptions;
use super::spawner::{Order, Spawned, Spawner, WorkerProcess};
use crate::jail::{DeviceNeeds, InForce};
use crate::link::{Report, WorkerConfig};

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// What came of an order.
#[derive(Debug)]
pub(super) enum Outcome {
    Ready(WorkerProcess, InForce),
    Failed { reason: String },
}

/// A worker that is not ready yet.
#[derive(Debug)]
struct Start {
    process: WorkerProcess,
    since: TimePoint,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Starting,
    /// It was killed because it took too long.
    Overdue,
    /// It has closed its socket.
    Ending,
    /// Nobody waits for it: its failure has been told, or it was killed because nobody needs it.
    Forgotten,
}

impl Start {
    fn kill(&mut self, fate: Fate) {
        // It may have ended by itself.
        let _ = pidfd::send_signal(&self.process.pidfd, Signal::SIGKILL);
        self.fate = fate;
    }
}

/// The workers that are on their way.
#[derive(Debug)]
pub(super) struct StartingWorkers {
    orders: Sender<Order>,
    spawned: Receiver<Spawned>,
    wake: OwnedFd,
    inbox: Inbox,
    /// Orders of which no process is known yet.
    ordered: usize,
    by_pid: HashMap<i32, Start>,
    /// Counts the times that settings have changed.
    generation: u64,
}

impl StartingWorkers {
    /// Starts the thread that starts them.
    pub(super) fn begin(options: &SupervisorOptions) -> std::io::Result<StartingWorkers> {
        let wake = eventfd::create().map_err(|error| error.errno)?;
        let (orders, ordered) = mpsc::channel();
        let (told, spawned) = mpsc::channel();
        let spawner = Spawner {
            invocation: options.invocation.clone(),
            orders: ordered,
            spawned: told,
            wake: wake.try_clone()?,
            jail: options.settings.jail.clone(),
            needs: DeviceNeeds::of(&options.settings.devices, &options.registry),
        };
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || spawner.run())?;
        Ok(StartingWorkers {
            orders,
            spawned,
            wake,
            inbox: Inbox::new(),
            ordered: 0,
            by_pid: HashMap::new(),
            generation: 0,
        })
    }

    /// Readable when processes have been started, or could not be.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Has one more worker started. `false` if nobody starts any more.
    pub(super) fn order(&mut self, config: WorkerConfig) -> bool {
        let generation = self.generation;
        let is_ordered = self.orders.send(Order { config, generation }).is_ok();
        self.ordered += usize::from(is_ordered);
        is_ordered
    }

    /// How many are on their way and have not ended.
    pub(super) fn count(&self) -> usize {
        self.ordered + self.by_pid.len()
    }

    /// Whether some are being started whose numbers are not known yet.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered > 0
    }

    /// How many of these are meant to be ready.
    pub(super) fn coming(&self) -> usize {
        let starting = |start: &&Start| start.fate == Fate::Starting;
        self.ordered + self.by_pid.values().filter(starting).count()
    }

    /// Where they report that they are ready.
    pub(super) fn reporting(&self) -> impl Iterator<Item = (i32, &Connection)> {
        self.by_pid
            .iter()
            .filter(|(_, start)| start.fate == Fate::Starting)
            .map(|(&pid, start)| (pid, &start.process.handoff))
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.by_pid.keys().copied()
    }

    pub(super) fn has(&self, pid: i32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Takes note of the processes that have been started since the last call. Returns those that could not
    /// be. One of them may have ended already.
    pub(super) fn take_spawned(&mut self) -> Vec<Outcome> {
        // Its own event: it cannot fail.
        let _ = eventfd::drain(&self.wake);
        let mut failed = Vec::new();
        while let Ok(Spawned { process, generation }) = self.spawned.try_recv() {
            self.ordered = self.ordered.saturating_sub(1);
            match process {
                Ok(process) => {
                    let mut start = Start {
                        process,
                        since: MonotonicClock.now(),
                        fate: Fate::Starting,
                    };
                    if generation != self.generation {
                        start.kill(Fate::Forgotten);
                    }
                    self.by_pid.insert(start.process.pid, start);
                }
                Err(reason) => failed.push(Outcome::Failed { reason }),
            }
        }
        failed
    }

    /// Reads what a worker reports, if it is there.
    pub(super) fn hear(&mut self, pid: i32) -> Option<Outcome> {
        let start = self.by_pid.get_mut(&pid)?;
        if start.fate != Fate::Starting {
            return None;
        }
        match self.inbox.receive(&start.process.handoff, NOW) {
            Ok((Report::Ready { jail }, _)) => self
                .by_pid
                .remove(&pid)
                .map(|start| Outcome::Ready(start.process, jail)),
            Ok((Report::Failed { reason }, _)) => {
                start.kill(Fate::Forgotten);
                Some(Outcome::Failed { reason })
            }
            Err(error) if error.is_timeout() => None,
            // How it ended is known when it is reaped.
            Err(_) => {
                start.kill(Fate::Ending);
                None
            }
        }
    }

    /// A worker has ended.
    pub(super) fn reap(&mut self, pid: i32, status: WaitStatus) -> Option<Outcome> {
        let start = self.by_pid.remove(&pid)?;
        if start.fate == Fate::Forgotten {
            return None;
        }
        let last_words = start.process.crash_record.last_words();
        let reason = match (last_words.is_empty(), start.fate, status) {
            (false, ..) => last_words,
            (_, Fate::Overdue, _) => "a worker took too long to start (workers.start_timeout_ms)".to_owned(),
            (_, _, WaitStatus::Signaled(_, signal, _)) => {
                format!("a worker was ended by {signal} before it was ready")
            }
            _ => "a worker ended before it was ready".to_owned(),
        };
        Some(Outcome::Failed { reason })
    }

    /// When the first one has taken too long.
    pub(super) fn overdue_at(&self, limit: Duration) -> Option<Deadline> {
        let starting = self.by_pid.values().filter(|start| start.fate == Fate::Starting);
        starting.map(|start| Deadline::after(start.since, limit)).min()
    }

    /// Kills those that have taken too long. Returns how many.
    pub(super) fn kill_overdue(&mut self, now: TimePoint, limit: Duration) -> usize {
        let is_overdue = |start: &&mut Start| {
            start.fate == Fate::Starting && Deadline::after(start.since, limit).is_past(now)
        };
        let overdue = self.by_pid.values_mut().filter(is_overdue);
        overdue.map(|start| start.kill(Fate::Overdue)).count()
    }

    /// Nobody needs those that are on their way now: kills them, without a word about it.
    pub(super) fn give_up(&mut self) {
        self.generation += 1;
        let starting = self.by_pid.values_mut();
        starting.for_each(|start| start.kill(Fate::Forgotten));
    }
}
