//! Having workers for the clients that there are: starting them, handing clients over, and their end.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use nnhal::diag::tags;
use nnhal::wire::handshake::Refusal;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, MonotonicClock};

use super::admission::{Refused, turn_away};
use super::options::SupervisorError;
use super::reaper::{Place, UnreadConnection};
use super::starting::Outcome;
use super::state::{Phase, Supervisor};
use super::waiting::WaitingClient;
use super::weight_requests::ListenError;
use super::workers::Unassigned;
use crate::processors::processors;

/// After how long to hand over again what could not be handed over.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(5);

/// How long after a client was handed over the next worker in reserve is ordered. The client prepares and
/// executes meanwhile: on two processors its first result takes 0.89 of the time.
const RESERVE_PAUSE: Duration = Duration::from_millis(10);

/// How many workers start at once: what one takes is mostly computed.
fn most_at_once() -> usize {
    processors().clamp(2, 16)
}

impl Supervisor {
    /// Orders as many workers as clients wait for and as shall be in reserve, some at once.
    pub(super) fn order_workers(&mut self) -> Result<(), SupervisorError> {
        let spare = match self.phase {
            Phase::Draining { .. } => return Ok(()),
            // The first one shows whether there can be any.
            Phase::Starting { .. } => 1,
            Phase::Serving { .. } if self.has_start_failed || self.reserve_again.is_some() => 0,
            Phase::Serving { .. } => self.workers_settings().spare as usize,
        };
        let wanted = self.waiting.len() + spare;
        let missing = wanted.saturating_sub(self.workers.idle_count() + self.starting.coming());
        for _ in 0..missing.min(most_at_once().saturating_sub(self.starting.coming())) {
            let config = self.worker_config();
            if !self.starting.order(config) {
                let reason = "the thread that starts them has ended".to_owned();
                return Err(SupervisorError::Worker(reason));
            }
        }
        Ok(())
    }

    /// Takes note of the processes that have been started, or could not be.
    pub(super) fn take_spawned(&mut self) -> Result<(), SupervisorError> {
        for failed in self.starting.take_spawned() {
            self.take_outcome(failed)?;
        }
        if matches!(self.phase, Phase::Draining { .. }) {
            self.starting.give_up();
        }
        // Their ends may have been told before they were known.
        self.reap()
    }

    /// Reads what a worker that starts reports.
    pub(super) fn hear(&mut self, pid: i32) -> Result<(), SupervisorError> {
        match self.starting.hear(pid) {
            Some(outcome) => self.take_outcome(outcome),
            None => Ok(()),
        }
    }

    fn take_outcome(&mut self, outcome: Outcome) -> Result<(), SupervisorError> {
        self.has_start_failed |= matches!(outcome, Outcome::Failed { .. });
        match outcome {
            Outcome::Ready(worker, in_force) => {
                self.tell_of_jail(in_force);
                self.workers.add(worker);
                if matches!(self.phase, Phase::Draining { .. }) {
                    self.workers.dismiss_idle();
                }
                self.start_serving()
            }
            Outcome::Failed { reason } if matches!(self.phase, Phase::Starting { .. }) => {
                Err(SupervisorError::Worker(reason))
            }
            Outcome::Failed { reason } => {
                tracing::error!(target: tags::DRIVER, %reason, "a worker could not be started");
                self.turn_away_next(&Refused {
                    refusal: Refusal::NoWorker,
                    reason,
                });
                Ok(())
            }
        }
    }

    /// Hands clients that wait to workers that do.
    pub(super) fn hand_over(&mut self) {
        if self.hand_over_again.is_some() {
            return;
        }
        while let Some(waiting) = self.waiting.pop() {
            match self.workers.assign(waiting) {
                Ok((uid, pid)) => {
                    let again = MonotonicClock.now().saturating_add(RESERVE_PAUSE);
                    self.reserve_again.get_or_insert(again);
                    self.has_start_failed = false;
                    self.group(uid, pid);
                }
                Err(Unassigned::NoWorker(waiting)) => {
                    self.waiting.put_back(waiting);
                    return;
                }
                Err(Unassigned::NotNow(waiting)) => {
                    self.waiting.put_back(waiting);
                    let again = MonotonicClock.now().saturating_add(HAND_OVER_PAUSE);
                    self.hand_over_again = Some(again);
                    return;
                }
                Err(Unassigned::NoMemory(waiting, error)) => self.refuse_waiting(
                    waiting,
                    &Refused {
                        refusal: Refusal::Busy,
                        reason: format!("the driver cannot note what a further worker uses: {error}"),
                    },
                ),
            }
        }
    }

    /// Has a worker with a client in the control group of its user, if there are groups. The client does not
    /// wait for that, which takes the kernel milliseconds.
    fn group(&mut self, uid: u32, pid: i32) {
        if let Some(groups) = &mut self.groups {
            let limits = &self.options.settings.user_limits;
            groups.enter(uid, pid, limits, self.system.threads_of_user(limits));
        }
    }

    /// Turns away the client whose turn is next.
    pub(super) fn turn_away_next(&mut self, refused: &Refused) {
        if let Some(waiting) = self.waiting.pop() {
            self.refuse_waiting(waiting, refused);
        }
    }

    fn refuse_waiting(&mut self, waiting: WaitingClient, refused: &Refused) {
        turn_away(&waiting.client, refused);
        self.forget_waiting(waiting);
    }

    /// Lets those go who have hung up before they had a worker.
    pub(super) fn let_waiting_go(&mut self) {
        for waiting in self.waiting.take_gone() {
            self.forget_waiting(waiting);
        }
    }

    /// A worker may have been about to get it, so that it may have sent descriptors.
    fn forget_waiting(&mut self, waiting: WaitingClient) {
        let uid = Some(waiting.identity.uid);
        let unread = UnreadConnection(waiting.client);
        self.reaper.close(uid, Place::default(), unread, ());
        self.let_go();
    }

    /// Takes note of the processes that have ended.
    pub(super) fn reap(&mut self) -> Result<(), SupervisorError> {
        let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::All, any).map(|status| status.pid().map(Pid::as_raw)) {
                Ok(None) | Err(Errno::ECHILD) => return Ok(()),
                Ok(Some(pid)) if self.workers.has(pid) || self.starting.has(pid) => self.reap_one(pid)?,
                // Whoever started it has given it up, and did not see it end.
                Ok(Some(pid)) if !self.starting.is_ordered() => {
                    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
                }
                // One that is being started, whose number is not known yet: it is its starter's to see first.
                Ok(Some(_)) => {
                    let known: Vec<_> = self.workers.pids().chain(self.starting.pids()).collect();
                    return known.into_iter().try_for_each(|pid| self.reap_one(pid));
                }
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    tracing::error!(target: tags::DRIVER, %errno, "failed to reap workers");
                    return Ok(());
                }
            }
        }
    }

    fn reap_one(&mut self, pid: i32) -> Result<(), SupervisorError> {
        let status = match waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
            Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => status,
            // Somebody else has waited for it: how it ended is not known.
            Err(Errno::ECHILD) => WaitStatus::Exited(Pid::from_raw(pid), 0),
            _ => return Ok(()),
        };
        match self.starting.reap(pid, status) {
            Some(outcome) => self.take_outcome(outcome),
            None => {
                self.forget_worker(pid, status);
                Ok(())
            }
        }
    }

    fn forget_worker(&mut self, pid: i32, status: WaitStatus) {
        let Some(reaped) = self.workers.reap(pid, status) else {
            return;
        };
        if let (Some(groups), Some(uid)) = (&mut self.groups, reaped.uid) {
            groups.leave(uid);
        }
        let freed = reaped.holder.map(|holder| self.listeners.reap(holder));
        self.reaper.close(reaped.uid, reaped.place, reaped.remains, freed);
        self.let_go();
        if matches!(status, WaitStatus::Exited(_, 0)) {
            tracing::debug!(target: tags::DRIVER, pid, "worker ended");
        } else {
            self.has_start_failed |= reaped.uid.is_none();
            tracing::warn!(target: tags::DRIVER, uid = reaped.uid, pid, "{}", reaped.worker_exit);
        }
    }

    /// Counts out the clients that have left altogether.
    pub(super) fn let_go(&mut self) {
        for uid in self.reaper.left() {
            self.admission.leave(uid);
        }
    }

    /// Has a thread listen to a worker that asks for weights.
    pub(super) fn listen(&mut self, pid: i32) {
        let listeners = &self.listeners;
        let listen = |uid, place, connection: &Connection| listeners.listen((pid, uid), place, connection);
        match self.workers.first_weight_request(pid, listen) {
            Ok(()) => {}
            // That is so with every client of that user.
            Err(error @ ListenError::Nobody) => {
                tracing::info!(target: tags::DRIVER, pid, %error, "a worker shares no weights");
            }
            Err(error) => {
                tracing::warn!(target: tags::DRIVER, uid = self.workers.user_of(pid), pid, %error, "nobody can listen to a worker, which shares no weights");
            }
        }
    }

    pub(super) fn client_is_gone(&mut self, pid: i32) {
        if let Some(service) = self.workers.service_mut(pid) {
            service.hung_up = Some(MonotonicClock.now());
        }
    }
}
