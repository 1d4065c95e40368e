//! What the main thread knows.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use nnhal_os::time::{Deadline, TimePoint};

use super::admission::{Admission, Bounds, Reserve};
use super::control_groups::ControlGroups;
use super::keeper::Keeper;
use super::options::SupervisorOptions;
use super::pending::PendingConnections;
use super::reaper::Reaper;
use super::runtime_dir::{Claim, Others, Published, RuntimeDir};
use super::signals::Signals;
use super::starting::StartingWorkers;
use super::system_limits::SystemLimits;
use super::waiting::WaitingClients;
use super::weight_requests::Listeners;
use super::workers::Workers;
use crate::jail::{Identity, InForce};
use crate::link::WorkerConfig;
use crate::settings::{Settings, WorkerSettings};

#[derive(Debug)]
pub(super) enum Phase {
    /// The first worker is coming up; nothing is published before it is there.
    Starting {
        claims: Vec<(Claim, Option<OwnedFd>)>,
    },
    Serving {
        published: Vec<Published>,
    },
    /// No new clients. Workers finish what they do, or are waited for that were killed, until then.
    Draining {
        until: Deadline,
        /// Whether workers were killed.
        is_over: bool,
    },
}

pub(super) struct Supervisor {
    pub(super) options: SupervisorOptions,
    pub(super) system: SystemLimits,
    pub(super) directory: Rc<RuntimeDir>,
    pub(super) keeper: Keeper,
    /// The control groups of users, if there can be any.
    pub(super) groups: Option<ControlGroups>,
    pub(super) signals: Signals,
    pub(super) starting: StartingWorkers,
    /// Whether a start has failed, or a worker in reserve has ended by itself, since a client was last handed
    /// over: then none is ordered but for a client that waits, as the next ones may do the same.
    pub(super) has_start_failed: bool,
    pub(super) workers: Workers,
    /// Those who listen to workers' requests for weights.
    pub(super) listeners: Listeners,
    /// The clients of workers that have ended, until what is left of them is closed.
    pub(super) reaper: Reaper,
    /// Those who have been let in and wait for a worker.
    pub(super) waiting: WaitingClients,
    /// When to hand over again, where that was not possible.
    pub(super) hand_over_again: Option<TimePoint>,
    /// When to order workers in reserve again, after a client was handed over.
    pub(super) reserve_again: Option<TimePoint>,
    /// Those who wait to be let in.
    pub(super) pending: PendingConnections,
    pub(super) admission: Admission,
    pub(super) reserve: Reserve,
    /// After an accept that could not be helped: no more until then.
    pub(super) accept_again: Option<TimePoint>,
    /// When the kernel was last asked how many threads workers have.
    pub(super) threads_counted: Option<TimePoint>,
    /// Whose workers are, if not its own user's.
    pub(super) identity: Option<Identity>,
    /// What is in force in the worker that was started last.
    pub(super) jail: InForce,
    pub(super) phase: Phase,
}

impl Supervisor {
    pub(super) fn workers_settings(&self) -> &WorkerSettings {
        &self.options.settings.workers
    }

    /// What a worker that is started now is to be.
    pub(super) fn worker_config(&self) -> WorkerConfig {
        WorkerConfig::new(&self.options.settings, self.identity)
    }

    /// How many clients may come in, by the settings as they are now.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds::new(&self.options.settings, self.system)
    }
}

/// Whether the sockets are open to others.
pub(super) fn others(settings: &Settings) -> Others {
    if settings.clients.other_users {
        Others::LetIn
    } else {
        Others::KeptOut
    }
}
