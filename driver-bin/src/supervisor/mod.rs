//! The process that clients connect to and that no client can harm.
//!
//! Contract: the supervisor accepts connections, finds out who is there, and hands each connection to a
//! worker process of its own. It never reads what a client sends, never maps a client's memory and never runs
//! a device. Workers are started ahead of time, by exec. When one ends, its client is told how; when a client
//! ends and its worker does not, the worker is killed. Workers do not depend on the supervisor once they have
//! a client: it can be killed, and they serve on.
//!
//! Workers may ask it for packed weights that another worker of the same user has: see `weight_requests` and
//! `weights`. It takes them for hostile: it reads messages of a fixed size, a bounded number of them, and
//! passes on sealed memories that it never maps.
//!
//! The main thread waits for descriptors, never for a client or a worker: see `spawner`,
//! `weight_requests` and `reaper` for what takes time, on threads of its own. What it knows is in `state`,
//! and `main_loop` says in which order it looks after that.

mod acceptor;
mod admission;
mod control_groups;
mod jailing;
mod keeper;
mod main_loop;
mod options;
mod pending;
mod phases;
mod reaper;
mod retry;
mod runtime_dir;
mod service_manager;
mod signals;
mod spawner;
mod staffing;
mod starting;
mod state;
mod system_limits;
mod thread_count;
mod waiting;
mod weight_requests;
mod weights;
mod workers;

use std::rc::Rc;

use nix::sys::resource::Resource;
use nnhal::diag::tags;
use nnhal_os::{peer, rlimit};

pub use crate::jail::UserError;
pub use options::{SettingsSource, SupervisorError, SupervisorOptions};
pub use runtime_dir::RuntimeDirError;
pub use spawner::Invocation;

pub(crate) use spawner::WORKER_ARGUMENT;

use self::admission::{Admission, Bounds, Reserve};
use self::control_groups::ControlGroups;
use self::keeper::Keeper;
use self::pending::PendingConnections;
use self::reaper::Reaper;
use self::runtime_dir::RuntimeDir;
use self::service_manager::activated_sockets;
use self::signals::Signals;
use self::starting::StartingWorkers;
use self::state::{Phase, Supervisor, others};
use self::system_limits::SystemLimits;
use self::waiting::WaitingClients;
use self::weight_requests::Listeners;
use self::workers::Workers;
use crate::jail::{self, InForce};

/// Runs a driver until it is told to end.
///
/// # Errors
///
/// [`SupervisorError`] if it cannot start to serve.
pub fn run(options: SupervisorOptions) -> Result<(), SupervisorError> {
    // What this process inherited is not for workers.
    nnhal_os::fds::set_cloexec_from(3)
        .map_err(|error| SupervisorError::system("keep inherited descriptors from workers")(error.errno))?;
    // Each client costs some descriptors.
    let descriptors = rlimit::raise_to_hard(Resource::RLIMIT_NOFILE)
        .map_err(|error| SupervisorError::system("learn how many descriptors there may be")(error.errno))?;
    let system = SystemLimits::of_this_process(descriptors);
    let signals = Signals::install().map_err(SupervisorError::system("watch for signals"))?;
    let settings = &options.settings;
    let mut activated = activated_sockets()?;
    let (mut directory, claims) =
        RuntimeDir::open_and_claim(&settings.runtime_dir, others(settings), &settings.devices)?;
    if options.owner.is_some() {
        directory.end_with_driver();
    }
    let (source, registry, reload) = (options.source.clone(), options.registry.clone(), options.reload);
    let keeper = Keeper::begin(settings.jail.clone(), move || reload(&source, &registry))
        .map_err(SupervisorError::system("start the thread that reads settings"))?
        .map_err(|error| SupervisorError::Jail(error.to_string()))?;
    directory.remove_by(keeper.clone());
    // Dropped after all that is in it, which is what follows.
    let directory = Rc::new(directory);
    let claims: Vec<_> = claims
        .into_iter()
        .zip(settings.devices.iter().map(|device| activated.remove(device)))
        .collect();
    if claims.is_empty() {
        return Err(SupervisorError::Worker("there is no device to serve".to_owned()));
    }
    let identity = jail::of_workers(&settings.jail.user)?;
    let groups = control_groups(&options);
    let threads = system.threads_of_user(&options.settings.user_limits);
    let starting = StartingWorkers::begin(&options)
        .map_err(SupervisorError::system("start the thread that starts workers"))?;
    let listeners = Listeners::new(options.settings.weights.clone(), peer::unnumbered_uid());
    let mut supervisor = Supervisor {
        admission: Admission::new(Bounds::new(&options.settings, system)),
        options,
        system,
        directory: Rc::clone(&directory),
        keeper,
        groups,
        signals,
        starting,
        has_start_failed: false,
        workers: Workers::new(threads),
        listeners,
        reaper: Reaper::default(),
        waiting: WaitingClients::default(),
        hand_over_again: None,
        reserve_again: None,
        pending: PendingConnections::default(),
        reserve: Reserve::new(),
        accept_again: None,
        threads_counted: None,
        identity,
        jail: InForce::default(),
        phase: Phase::Starting { claims },
    };
    supervisor.enter_jail()?;
    // Without orders the spawner ends; whatever it waits for then must not hold up the end.
    supervisor.serve()
}

/// The control groups of users. A private driver has one user, and is in the group of its application.
fn control_groups(options: &SupervisorOptions) -> Option<ControlGroups> {
    if options.owner.is_some() {
        return None;
    }
    match ControlGroups::take() {
        Ok(groups) => {
            tracing::info!(target: tags::DRIVER, group = %groups.own().display(), "each user has a control group");
            Some(groups)
        }
        Err(reason) => {
            tracing::info!(target: tags::DRIVER, %reason, "users have no control groups");
            None
        }
    }
}
