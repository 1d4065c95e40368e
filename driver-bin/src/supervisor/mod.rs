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
//! `weight_requests` and `reaper` for what takes time, on threads of its own.

mod acceptor;
mod admission;
mod pending;
mod reaper;
mod retry;
mod runtime_dir;
mod signals;
mod spawner;
mod weight_requests;
mod weights;
mod workers;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::Resource;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nnhal::diag::tags;
use nnhal::wire::handshake::Refusal;
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, peer, poll, rlimit};

pub use runtime_dir::RuntimeDirError;
pub use spawner::Invocation;

pub(crate) use spawner::WORKER_ARGUMENT;

use self::admission::{Admission, Refused, Reserve};
use self::pending::PendingConnections;
use self::reaper::Reaper;
use self::retry::{PAUSE, Retry};
use self::runtime_dir::{Claim, Others, Published, RuntimeDir};
use self::signals::Signals;
use self::spawner::{Outcome, Spawner, Starting};
use self::weight_requests::{ListenError, Listeners};
use self::workers::Workers;
use crate::cores::Board;
use crate::device::registry::DeviceRegistry;
use crate::link::{Assignment, Command, WorkerConfig};
use crate::settings::{Settings, SettingsError, WorkerSettings};

/// How a driver is run.
#[derive(Debug)]
pub struct SupervisorOptions {
    /// The devices that there are.
    pub registry: DeviceRegistry,
    /// The settings, checked.
    pub settings: Settings,
    /// Reads the settings again, on SIGHUP.
    pub reload: fn(&SettingsSource, &DeviceRegistry) -> Result<Settings, SettingsError>,
    /// What to read them from.
    pub source: SettingsSource,
    /// Called once clients can connect.
    pub on_ready: fn(),
    /// How workers are started.
    pub invocation: Invocation,
    /// Ends the driver when it closes, for drivers that belong to one application.
    pub owner: Option<OwnedFd>,
}

/// What settings are made of: a file, and what the command line says instead.
#[derive(Clone, Debug, Default)]
pub struct SettingsSource {
    /// The settings file.
    pub config: Option<PathBuf>,
    /// Devices from the command line.
    pub devices: Vec<String>,
    /// The runtime directory from the command line.
    pub runtime_dir: Option<PathBuf>,
}

/// Why a driver cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Its sockets cannot be published.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// The first worker did not come up.
    #[error("no worker could be started: {0}")]
    Worker(String),
    /// The system refused something.
    #[error("failed to {action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl SupervisorError {
    fn system<E: Into<std::io::Error>>(action: &'static str) -> impl FnOnce(E) -> SupervisorError {
        move |source| SupervisorError::System {
            action,
            source: source.into(),
        }
    }
}

/// A client that has been let in and waits for a worker.
#[derive(Debug)]
struct Waiting {
    client: Connection,
    assignment: Assignment,
}

#[derive(Debug)]
enum Phase {
    /// The first worker is coming up; nothing is published before it is there.
    Starting {
        claims: Vec<(Claim, Option<OwnedFd>)>,
    },
    Serving {
        published: Vec<Published>,
    },
    /// No new clients; workers finish what they do until then.
    Draining {
        until: Deadline,
        /// Whether that is past: workers are killed.
        is_over: bool,
    },
}

struct Supervisor {
    options: SupervisorOptions,
    directory: Rc<RuntimeDir>,
    signals: Signals,
    spawner: SpawnerHandle,
    workers: Workers,
    /// Those who listen to workers' questions for weights.
    listeners: Listeners,
    /// The clients of workers that have ended, until what is left of them is closed.
    reaper: Reaper,
    waiting: VecDeque<Waiting>,
    /// Those who wait to be let in.
    pending: PendingConnections,
    admission: Admission,
    reserve: Reserve,
    /// Deaths of processes that the spawner has not told of yet.
    unclaimed: HashMap<i32, WaitStatus>,
    /// After an accept that could not be helped: no more until then.
    accept_again: Option<TimePoint>,
    phase: Phase,
}

/// The main thread's side of the spawner.
struct SpawnerHandle {
    orders: Sender<WorkerConfig>,
    outcomes: Receiver<Outcome>,
    wake: OwnedFd,
    starting: Starting,
    /// Orders that have no outcome yet.
    open: u32,
    /// Whether the last order failed: then none is placed but for a client that waits.
    has_failed: bool,
}

/// Runs a driver until it is told to end.
///
/// # Errors
///
/// [`SupervisorError`] if it cannot start to serve.
pub fn run(options: SupervisorOptions) -> Result<(), SupervisorError> {
    // What this process inherited is not for workers.
    nnhal_os::fds::set_cloexec_from(3)
        .map_err(|error| SupervisorError::system("keep inherited descriptors from workers")(error.errno))?;
    // Each client costs some descriptors; running out is handled, but need not come early.
    let _ = rlimit::raise_to_hard(Resource::RLIMIT_NOFILE);
    let signals = Signals::install().map_err(SupervisorError::system("watch for signals"))?;
    let settings = &options.settings;
    let mut activated = activated_sockets()?;
    let (mut directory, claims) =
        RuntimeDir::open_and_claim(&settings.runtime_dir, others(settings), &settings.devices)?;
    if options.owner.is_some() {
        directory.end_with_driver();
    }
    // Dropped after all that is in it, which is what follows.
    let directory = Rc::new(directory);
    let claims: Vec<_> = claims
        .into_iter()
        .zip(settings.devices.iter().map(|device| activated.remove(device)))
        .collect();
    if claims.is_empty() {
        return Err(SupervisorError::Worker("there is no device to serve".to_owned()));
    }
    let spawner = start_spawner(options.invocation.clone())?;
    let listeners = Listeners::new(options.settings.weights.clone(), peer::unnumbered_uid());
    let mut supervisor = Supervisor {
        options,
        directory: Rc::clone(&directory),
        signals,
        spawner,
        workers: Workers::default(),
        listeners,
        reaper: Reaper::default(),
        waiting: VecDeque::new(),
        pending: PendingConnections::default(),
        admission: Admission::default(),
        reserve: Reserve::new(),
        unclaimed: HashMap::new(),
        accept_again: None,
        phase: Phase::Starting { claims },
    };
    // Without orders the spawner ends; whatever it waits for then must not hold up the end.
    supervisor.serve()
}

fn others(settings: &Settings) -> Others {
    if settings.clients.other_users {
        Others::LetIn
    } else {
        Others::KeptOut
    }
}

/// Sockets that a service manager made for this driver, by device: `FileDescriptorName=` is the device's
/// name.
fn activated_sockets() -> Result<HashMap<String, OwnedFd>, SupervisorError> {
    let failed = SupervisorError::system("take over sockets from the service manager");
    let sockets = sd_notify::listen_fds_with_names().map_err(failed)?;
    let mut by_device = HashMap::new();
    for (raw, name) in sockets {
        // The number stays open beside the duplicate, owned by nobody, as the service manager gave it.
        let duplicate = nnhal_os::fds::duplicate(raw)
            .map_err(|error| SupervisorError::system("take over an activated socket")(error.errno))?;
        let device = name.strip_suffix(".sock").unwrap_or(&name).to_owned();
        by_device.insert(device, duplicate);
    }
    Ok(by_device)
}

fn start_spawner(invocation: Invocation) -> Result<SpawnerHandle, SupervisorError> {
    let wake = eventfd::create().map_err(|error| SupervisorError::system("make an event")(error.errno))?;
    let other = wake
        .try_clone()
        .map_err(SupervisorError::system("make an event"))?;
    let (orders, ordered) = mpsc::channel();
    let (told, outcomes) = mpsc::channel();
    let starting = Starting::default();
    let board = Board::create().map_err(|error| SupervisorError::Worker(error.to_string()))?;
    let spawner = Spawner {
        invocation,
        starting: starting.clone(),
        orders: ordered,
        outcomes: told,
        wake: other,
        board,
    };
    std::thread::Builder::new()
        .name("spawner".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || spawner.run())
        .map_err(SupervisorError::system("start a thread"))?;
    Ok(SpawnerHandle {
        orders,
        outcomes,
        wake,
        starting,
        open: 0,
        has_failed: false,
    })
}

/// What the main thread waits for, besides the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Spawner,
    Owner,
    Listener(usize),
    Client(i32),
    /// A worker's first question.
    Worker(i32),
}

impl Supervisor {
    fn serve(&mut self) -> Result<(), SupervisorError> {
        let mut retry = Retry::default();
        loop {
            self.order_workers()?;
            if let Phase::Draining { is_over, .. } = self.phase
                && self.workers.count() == 0
                && (self.spawner.open == 0 || is_over)
            {
                return Ok(());
            }
            let ready = match self.wait() {
                Ok(ready) => {
                    retry.over();
                    ready
                }
                Err(error) if !retry.again(MonotonicClock.now()) => return Err(error),
                // Without the memory to wait for them, what cannot wait is looked at now and then.
                Err(error) => {
                    tracing::warn!(target: tags::DRIVER, %error, "the driver is short of something; trying again");
                    std::thread::park_timeout(PAUSE);
                    vec![Source::Signals, Source::Spawner]
                }
            };
            // Deaths first: an outcome that follows may be that of a worker that is dead already.
            if ready.contains(&Source::Signals) {
                self.heed_signals();
            }
            if ready.contains(&Source::Spawner) {
                self.take_outcomes()?;
            }
            if ready.contains(&Source::Owner) {
                tracing::info!(target: tags::DRIVER, "the owner is gone");
                self.options.owner = None;
                self.drain();
            }
            for &source in &ready {
                match source {
                    Source::Client(pid) => self.client_is_gone(pid),
                    Source::Worker(pid) => self.listen(pid),
                    Source::Signals | Source::Spawner | Source::Owner | Source::Listener(_) => {}
                }
            }
            // Those who come after those who go, whose places they may need.
            self.admit_applicants();
            for source in ready {
                if let Source::Listener(index) = source {
                    self.accept(index);
                }
            }
            self.hand_over();
            self.enforce_deadlines();
        }
    }

    /// Waits until something is ready or a deadline passes.
    fn wait(&self) -> Result<Vec<Source>, SupervisorError> {
        let mut sources = vec![Source::Signals, Source::Spawner];
        let mut fds = vec![self.signals.as_fd(), self.spawner.wake.as_fd()];
        if let Some(owner) = &self.options.owner {
            sources.push(Source::Owner);
            fds.push(owner.as_fd());
        }
        if let (Phase::Serving { published }, None) = (&self.phase, self.accept_again) {
            for (index, published) in published.iter().enumerate() {
                sources.push(Source::Listener(index));
                fds.push(published.listener.as_fd());
            }
        }
        for (pid, service) in self
            .workers
            .serving()
            .filter(|(_, service)| service.hung_up.is_none())
        {
            sources.push(Source::Client(pid));
            fds.push(service.client.as_fd());
        }
        for (pid, connection) in self.workers.silent() {
            sources.push(Source::Worker(pid));
            fds.push(connection.as_fd());
        }
        let mut polled: Vec<_> = sources
            .iter()
            .zip(fds)
            .map(|(source, fd)| match source {
                // What a client sends is its worker's; only its end is looked for here.
                Source::Client(_) => PollFd::new(fd, PollFlags::empty()),
                _ => PollFd::new(fd, PollFlags::POLLIN),
            })
            .collect();
        poll::wait(&mut polled, self.next_deadline())
            .map_err(|error| SupervisorError::system("wait for events")(error.errno))?;
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(sources
            .into_iter()
            .zip(&polled)
            .filter(|(_, fd)| is_ready(fd))
            .map(|(source, _)| source)
            .collect())
    }

    fn workers_settings(&self) -> &WorkerSettings {
        &self.options.settings.workers
    }

    /// The earliest moment at which something must be done although nothing happens.
    fn next_deadline(&self) -> Deadline {
        let workers = self.workers_settings();
        let after = |point: TimePoint, ms| Deadline::after(point, Duration::from_millis(ms));
        let start = self
            .spawner
            .starting
            .since()
            .map(|since| after(since, workers.start_timeout_ms));
        let linger = self
            .workers
            .serving()
            .filter_map(|(_, service)| service.lingers_since())
            .map(|since| after(since, workers.linger_timeout_ms))
            .min();
        let drain = match self.phase {
            Phase::Draining { until, is_over } => (!is_over).then_some(until),
            _ => None,
        };
        let accept = self.accept_again.map(Deadline::at);
        [start, linger, drain, accept, self.pending.look_again()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Deadline::NONE)
    }

    fn enforce_deadlines(&mut self) {
        let now = MonotonicClock.now();
        let timeout = |ms| Duration::from_millis(ms);
        let workers = self.workers_settings().clone();
        let has_passed = |since: TimePoint, ms| Deadline::after(since, timeout(ms)).is_past(now);
        if self
            .spawner
            .starting
            .since()
            .is_some_and(|since| has_passed(since, workers.start_timeout_ms))
        {
            tracing::warn!(
                target: tags::DRIVER, limit_ms = workers.start_timeout_ms,
                "a worker took too long to start"
            );
            self.spawner.starting.kill();
        }
        let lingering = |service: &workers::Service| {
            service
                .lingers_since()
                .is_some_and(|since| has_passed(since, workers.linger_timeout_ms))
        };
        let overdue: Vec<_> = self
            .workers
            .serving()
            .filter(|(_, service)| lingering(service))
            .map(|(pid, service)| (pid, service.uid))
            .collect();
        for (pid, uid) in overdue {
            tracing::warn!(target: tags::DRIVER, uid, pid, "the worker outlived its client");
            self.workers.kill(pid);
        }
        if let Phase::Draining { until, is_over } = &mut self.phase
            && until.is_past(now)
            && !std::mem::replace(is_over, true)
        {
            self.kill_all();
        }
        if self.accept_again.is_some_and(|point| point <= now) {
            self.accept_again = None;
        }
    }

    /// Orders as many workers as clients wait for and as shall be in reserve.
    fn order_workers(&mut self) -> Result<(), SupervisorError> {
        let spare = match self.phase {
            Phase::Draining { .. } => return Ok(()),
            // The first one shows whether there can be any.
            Phase::Starting { .. } => 1,
            Phase::Serving { .. } if self.spawner.has_failed => 0,
            Phase::Serving { .. } => self.workers_settings().spare as usize,
        };
        let wanted = self.waiting.len() + spare;
        let coming = self.workers.idle_count() + self.spawner.open as usize;
        for _ in coming..wanted {
            self.spawner
                .orders
                .send(WorkerConfig::new(&self.options.settings))
                .map_err(|_| SupervisorError::Worker("the thread that starts them has ended".to_owned()))?;
            self.spawner.open += 1;
        }
        Ok(())
    }

    fn take_outcomes(&mut self) -> Result<(), SupervisorError> {
        let _ = eventfd::drain(&self.spawner.wake);
        while let Ok(outcome) = self.spawner.outcomes.try_recv() {
            self.spawner.open -= 1;
            self.spawner.has_failed = matches!(outcome, Outcome::Failed { .. });
            match outcome {
                Outcome::Ready(worker) => {
                    let pid = worker.pid;
                    self.workers.add(worker);
                    if let Some(status) = self.unclaimed.remove(&pid) {
                        self.forget_worker(pid, status);
                    }
                    self.start_serving()?;
                }
                Outcome::Failed { pid, reason } => {
                    if let Some(pid) = pid {
                        self.unclaimed.remove(&pid);
                    }
                    if matches!(self.phase, Phase::Starting { .. }) {
                        return Err(SupervisorError::Worker(reason));
                    }
                    tracing::error!(target: tags::DRIVER, %reason, "a worker could not be started");
                    self.turn_away_first(&Refused {
                        refusal: Refusal::NoWorker,
                        reason,
                    });
                }
            }
        }
        if self.spawner.open == 0 {
            self.unclaimed.clear();
        }
        match self.phase {
            // Those that were being started when all others were killed.
            Phase::Draining { is_over: true, .. } => self.kill_all(),
            Phase::Draining { .. } => self.workers.dismiss_idle(),
            Phase::Starting { .. } | Phase::Serving { .. } => {}
        }
        Ok(())
    }

    /// Publishes the devices once there is a worker for the first client.
    fn start_serving(&mut self) -> Result<(), SupervisorError> {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return Ok(());
        }
        let placeholder = Phase::Serving {
            published: Vec::new(),
        };
        let Phase::Starting { claims } = std::mem::replace(&mut self.phase, placeholder) else {
            return Ok(());
        };
        let mut all = Vec::new();
        for (claim, activated) in claims {
            let others = others(&self.options.settings);
            let published = self.directory.publish(claim, activated, others)?;
            tracing::info!(target: tags::DRIVER, device = published.device(), directory = %self.directory.path().display(), "serving");
            all.push(published);
        }
        self.phase = Phase::Serving { published: all };
        notify(&[sd_notify::NotifyState::Ready]);
        (self.options.on_ready)();
        Ok(())
    }

    fn heed_signals(&mut self) {
        let raised = self.signals.take();
        if raised.child {
            self.reap();
        }
        if raised.reload {
            self.reload();
        }
        if raised.terminate {
            match &mut self.phase {
                Phase::Draining { is_over, .. } => {
                    *is_over = true;
                    self.kill_all();
                }
                Phase::Starting { .. } | Phase::Serving { .. } => self.drain(),
            }
        }
    }

    /// Ends a drain that has taken too long, or that nobody wants to wait for.
    fn kill_all(&mut self) {
        self.workers.kill_all();
        self.spawner.starting.kill();
    }

    fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))) => {
                    self.forget_worker(pid.as_raw(), status);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    tracing::error!(target: tags::DRIVER, %errno, "failed to reap workers");
                    return;
                }
            }
        }
    }

    fn forget_worker(&mut self, pid: i32, status: WaitStatus) {
        let Some(reaped) = self.workers.reap(pid, status) else {
            if self.spawner.open > 0 {
                self.unclaimed.insert(pid, status);
            }
            return;
        };
        let freed = reaped.holder.map(|holder| self.listeners.reap(holder));
        self.reaper.close(reaped.uid, reaped.place, reaped.remains, freed);
        self.let_go();
        if matches!(status, WaitStatus::Exited(_, 0)) {
            tracing::debug!(target: tags::DRIVER, pid, "worker ended");
        } else {
            tracing::warn!(target: tags::DRIVER, uid = reaped.uid, pid, "{}", reaped.worker_exit);
        }
    }

    /// Counts out the clients that have left altogether.
    fn let_go(&mut self) {
        for uid in self.reaper.left() {
            self.admission.leave(uid);
        }
    }

    fn reload(&mut self) {
        let settings = match (self.options.reload)(&self.options.source, &self.options.registry) {
            Ok(settings) => settings,
            Err(error) => {
                tracing::error!(target: tags::DRIVER, %error, "the settings stay as they are");
                return;
            }
        };
        let old = &self.options.settings;
        if settings.devices != old.devices || settings.runtime_dir != old.runtime_dir {
            tracing::warn!(target: tags::DRIVER, "devices and the runtime directory change with the next start only");
        }
        self.options.settings = Settings {
            devices: old.devices.clone(),
            runtime_dir: old.runtime_dir.clone(),
            ..settings
        };
        self.let_connect();
        self.listeners.reconfigure(self.options.settings.weights.clone());
        // Workers without a client are replaced, so that the next client's has the new settings in full.
        self.workers.dismiss_idle();
        let execution = self.options.settings.execution.clone();
        self.workers.command(&Command::Reconfigure(execution));
        self.spawner.has_failed = false;
        tracing::info!(target: tags::DRIVER, "settings read again");
    }

    /// Has the sockets' modes say who may connect now.
    fn let_connect(&self) {
        let others = others(&self.options.settings);
        if let Err(error) = self.directory.let_look(others) {
            tracing::error!(target: tags::DRIVER, %error, "other users cannot find the sockets");
        }
        let Phase::Serving { published } = &self.phase else {
            return;
        };
        for published in published {
            if let Err(error) = published.let_connect(others) {
                tracing::error!(
                    target: tags::DRIVER, device = published.device(), %error,
                    "the mode of the socket does not say who may connect"
                );
            }
        }
    }

    /// Takes no more clients, and has the workers come to an end.
    fn drain(&mut self) {
        if matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        tracing::info!(target: tags::DRIVER, "ending");
        notify(&[sd_notify::NotifyState::Stopping]);
        let limit = Duration::from_millis(self.workers_settings().drain_timeout_ms);
        // Dropping what was published takes the sockets away.
        self.phase = Phase::Draining {
            until: Deadline::after(MonotonicClock.now(), limit),
            is_over: false,
        };
        let refused = Refused {
            refusal: Refusal::ShuttingDown,
            reason: "the driver is ending".to_owned(),
        };
        while !self.waiting.is_empty() {
            self.turn_away_first(&refused);
        }
        self.turn_away_applicants(&refused);
        self.workers.dismiss_idle();
        self.workers.command(&Command::Drain);
    }

    /// Hands clients that wait to workers that do.
    fn hand_over(&mut self) {
        while let Some(Waiting { client, assignment }) = self.waiting.pop_front() {
            if let Err(client) = self.workers.assign(client, &assignment) {
                self.waiting.push_front(Waiting { client, assignment });
                return;
            }
        }
    }

    /// Has a thread listen to a worker that asks for weights.
    fn listen(&mut self, pid: i32) {
        let listeners = &self.listeners;
        let listen = |uid, place, connection: &Connection| listeners.listen((pid, uid), place, connection);
        match self.workers.first_question(pid, listen) {
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

    fn client_is_gone(&mut self, pid: i32) {
        if let Some(service) = self.workers.service_mut(pid) {
            service.hung_up = Some(MonotonicClock.now());
        }
    }
}

/// Tells the service manager, if there is one.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(target: tags::DRIVER, %error, "cannot tell the service manager");
    }
}
