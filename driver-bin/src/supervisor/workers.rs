//! The workers that there are, and whom they serve.

use std::collections::HashMap;
use std::os::fd::AsFd;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nnhal::diag::tags;
use nnhal::wire::handshake::VERSIONS;
use nnhal::wire::{self, CauseOfDeath, Message, WorkerExit};
use nnhal_os::pidfd;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Deadline, TimePoint};

use super::reaper::{Place, UnreadConnection};
use super::spawner::WorkerProcess;
use super::waiting::WaitingClient;
use super::weights::Holder;
use crate::link::{Assignment, Command};
use crate::usage::UsageTables;

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

/// A worker.
#[derive(Debug)]
pub(super) struct Worker {
    process: WorkerProcess,
    service: Option<Service>,
    /// Whether it has asked for weights, so that a thread listens to it, or none could be had.
    has_asked: bool,
    /// Who it is for those who share weights, if it has asked.
    holder: Option<Holder>,
}

impl Worker {
    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = pidfd::send_signal(&self.process.pidfd, Signal::SIGKILL);
        if let Some(service) = &mut self.service {
            service.is_killed = true;
        }
    }
}

/// What a worker does for whom.
#[derive(Debug)]
pub(super) struct Service {
    /// The client's connection, which the worker has too: to tell the client how its worker ended, and to
    /// notice when the client is gone.
    pub(super) client: Connection,
    pub(super) uid: u32,
    /// The worker's in the table of what its user's workers use.
    row: u32,
    /// When the client was seen to be gone.
    pub(super) hung_up: Option<TimePoint>,
    /// Whether the worker has been killed, and its end is only to be waited for.
    is_killed: bool,
    place: Place,
}

impl Service {
    /// Whether its end is only to be waited for.
    pub(super) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Since when the worker has outlived its client without having been killed for it.
    pub(super) fn lingers_since(&self) -> Option<TimePoint> {
        self.hung_up.filter(|_| !self.is_killed)
    }
}

/// A worker that has ended.
#[derive(Debug)]
pub(super) struct Reaped {
    pub(super) worker_exit: WorkerExit,
    /// Whose client it served.
    pub(super) uid: Option<u32>,
    /// That client's.
    pub(super) place: Place,
    /// Who it was for those who share weights.
    pub(super) holder: Option<Holder>,
    /// Its connections, and the client's.
    pub(super) remains: (EndedWorker, Option<UnreadConnection>),
}

/// A worker that has ended. Dropping it closes what it has left unread, which may take long, as
/// [`UnreadConnection`] does.
#[derive(Debug)]
pub(super) struct EndedWorker(WorkerProcess);

impl Drop for EndedWorker {
    fn drop(&mut self) {
        self.0.handoff.discard_unread();
    }
}

/// All workers, by process id.
#[derive(Debug)]
pub(super) struct Workers {
    by_pid: HashMap<i32, Worker>,
    /// Those without a client, the one that waits longest first.
    idle: Vec<i32>,
    /// What those of each user use.
    usage: UsageTables,
}

/// Why a client is not served now.
#[derive(Debug)]
pub(super) enum Unassigned {
    /// No worker is idle.
    NoWorker(WaitingClient),
    /// Nothing can be handed over until descriptors are read that the driver's user has under way.
    NotNow(WaitingClient),
    /// There is no memory to note what its worker uses.
    NoMemory(WaitingClient, String),
}

impl Workers {
    /// None yet. Each user may have so many threads.
    pub(super) fn new(threads_of_user: u32) -> Workers {
        Workers {
            by_pid: HashMap::new(),
            idle: Vec::new(),
            usage: UsageTables::new(threads_of_user),
        }
    }

    /// From now on each user may have so many threads.
    pub(super) fn set_threads_of_user(&mut self, threads: u32) {
        self.usage.set_threads(threads);
    }

    /// How many threads a user may have who takes none against the settings of the time.
    pub(super) fn may_have_threads(&self, uid: u32) -> u32 {
        self.usage.may_have_threads(uid)
    }

    pub(super) fn add(&mut self, process: WorkerProcess) {
        let pid = process.pid;
        self.by_pid.insert(
            pid,
            Worker {
                process,
                service: None,
                has_asked: false,
                holder: None,
            },
        );
        self.idle.push(pid);
    }

    pub(super) fn count(&self) -> usize {
        self.by_pid.len()
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.by_pid.keys().copied()
    }

    pub(super) fn has(&self, pid: i32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    pub(super) fn idle_count(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn serving(&self) -> impl Iterator<Item = (i32, &Service)> {
        self.by_pid
            .iter()
            .filter_map(|(&pid, worker)| worker.service.as_ref().map(|service| (pid, service)))
    }

    /// The workers that may ask for weights and have not yet, and the sockets that they ask by. Those without
    /// a client have nothing to ask.
    pub(super) fn silent(&self) -> impl Iterator<Item = (i32, &Connection)> {
        self.by_pid
            .iter()
            .filter(|(_, worker)| worker.service.is_some() && !worker.has_asked)
            .map(|(&pid, worker)| (pid, &worker.process.handoff))
    }

    /// A worker asks for weights for the first time: whose client it serves, and by which socket it asks.
    /// `listen` makes it somebody who shares weights, if it can.
    pub(super) fn first_weight_request<E>(
        &mut self,
        pid: i32,
        listen: impl FnOnce(u32, Place, &Connection) -> Result<Holder, E>,
    ) -> Result<(), E> {
        let Some(worker) = self.by_pid.get_mut(&pid) else {
            return Ok(());
        };
        worker.has_asked = true;
        let Some(service) = &worker.service else {
            return Ok(());
        };
        match listen(service.uid, service.place.clone(), &worker.process.handoff) {
            Ok(holder) => worker.holder = Some(holder),
            Err(error) => {
                worker.process.handoff.shutdown();
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn service_mut(&mut self, pid: i32) -> Option<&mut Service> {
        self.by_pid.get_mut(&pid)?.service.as_mut()
    }

    /// Hands a client to the worker that has waited longest; gives its user and that worker. Gives the client
    /// back if there is no worker that can take it.
    pub(super) fn assign(&mut self, waiting: WaitingClient) -> Result<(u32, i32), Unassigned> {
        if self.idle.is_empty() {
            return Err(Unassigned::NoWorker(waiting));
        }
        let uid = waiting.identity.uid;
        let (row, table) = match self.usage.enter(uid) {
            Ok(Some(entered)) => entered,
            Ok(None) => {
                return Err(Unassigned::NoMemory(
                    waiting,
                    "the user has too many clients".to_owned(),
                ));
            }
            Err(error) => return Err(Unassigned::NoMemory(waiting, error.to_string())),
        };
        let mut assignment = Assignment {
            device: waiting.device.clone(),
            worker_pid: 0,
            supervisor_pid: std::process::id(),
            client: waiting.identity,
            row,
        };
        // From now on what it sends is the worker's.
        waiting.client.take_fds();
        let mut is_late = false;
        while !is_late && !self.idle.is_empty() {
            let pid = self.idle.remove(0);
            let Some(worker) = self.by_pid.get_mut(&pid) else {
                continue;
            };
            assignment.worker_pid = pid.cast_unsigned();
            let fds = [waiting.client.as_fd(), table];
            match wire::send(&worker.process.handoff, VERSIONS.newest, &assignment, &fds, NOW) {
                Ok(()) => {
                    worker.service = Some(Service {
                        client: waiting.client,
                        uid,
                        row,
                        hung_up: None,
                        is_killed: false,
                        place: Place::default(),
                    });
                    return Ok((uid, pid));
                }
                Err(error) if error.is_timeout() => {
                    self.idle.insert(0, pid);
                    is_late = true;
                }
                // Mostly it is dead or dying. One that is not would wait for ever.
                Err(error) => {
                    tracing::warn!(target: tags::DRIVER, uid, pid, %error, "worker cannot take a client");
                    worker.kill();
                }
            }
        }
        self.usage.leave(uid, row);
        Err(if is_late {
            Unassigned::NotNow(waiting)
        } else {
            Unassigned::NoWorker(waiting)
        })
    }

    /// Forgets a worker that has ended, and tells its client how.
    pub(super) fn reap(&mut self, pid: i32, status: WaitStatus) -> Option<Reaped> {
        let worker = self.by_pid.remove(&pid)?;
        // Now, not with what may take long to close.
        if let Some(service) = &worker.service {
            self.usage.leave(service.uid, service.row);
        }
        self.idle.retain(|&idle| idle != pid);
        // For whoever listens to its requests, or has got hold of its end.
        worker.process.handoff.shutdown();
        let worker_exit = WorkerExit {
            worker_pid: u32::try_from(pid).unwrap_or_default(),
            cause: cause_of_death(status),
            last_words: worker.process.crash_record.last_words(),
        };
        let uid = worker.service.as_ref().map(|service| service.uid);
        let mut place = Place::default();
        let mut client = None;
        if let Some(service) = worker.service {
            let message = Message::WorkerExit(worker_exit.clone());
            // The client may be gone, or not read: it sees the end of the connection in any case. Which
            // version it and its worker agreed on is not known here: worker exits are the same in all.
            let _ = wire::send(&service.client, VERSIONS.oldest, &message, &[], NOW);
            service.client.shutdown();
            place = service.place;
            client = Some(UnreadConnection(service.client));
        }
        Some(Reaped {
            worker_exit,
            uid,
            place,
            holder: worker.holder,
            remains: (EndedWorker(worker.process), client),
        })
    }

    /// The user whom a worker serves.
    pub(super) fn user_of(&self, pid: i32) -> Option<u32> {
        let service = self.by_pid.get(&pid)?.service.as_ref()?;
        Some(service.uid)
    }

    /// Sends a command to every worker. One that does not read them goes without.
    pub(super) fn command(&self, command: &Command) {
        for (pid, worker) in &self.by_pid {
            if let Err(error) = wire::send(&worker.process.commands, VERSIONS.newest, command, &[], NOW) {
                tracing::debug!(target: tags::DRIVER, pid, %error, "worker takes no commands");
            }
        }
    }

    /// Kills one worker.
    pub(super) fn kill(&mut self, pid: i32) {
        if let Some(worker) = self.by_pid.get_mut(&pid) {
            worker.kill();
        }
    }

    /// Kills one worker, whose client is told why unless it has said something itself.
    pub(super) fn end(&mut self, pid: i32, reason: &str) {
        if let Some(worker) = self.by_pid.get_mut(&pid) {
            worker.process.crash_record.note(reason);
            worker.kill();
        }
    }

    /// Kills every worker.
    pub(super) fn kill_all(&mut self) {
        self.by_pid.values_mut().for_each(Worker::kill);
    }

    /// Ends the workers that serve nobody: a closed handoff is their order to end.
    pub(super) fn dismiss_idle(&mut self) {
        for pid in std::mem::take(&mut self.idle) {
            if let Some(worker) = self.by_pid.get(&pid) {
                worker.process.handoff.shutdown();
            }
        }
    }
}

fn cause_of_death(status: WaitStatus) -> CauseOfDeath {
    match status {
        WaitStatus::Signaled(_, signal, core_dumped) => CauseOfDeath::Killed {
            signal: signal as i32,
            core_dumped,
        },
        WaitStatus::Exited(_, code) => CauseOfDeath::Exited { code },
        // waitpid reports no other end of a process.
        _ => CauseOfDeath::Exited { code: 0 },
    }
}
