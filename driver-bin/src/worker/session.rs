//! The conversation with the client.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nnhal::diag::tags;
use nnhal::wire::codec::CodecError;
use nnhal::wire::handshake;
use nnhal::wire::{
    Allocated, BurstHandle, Call, Envelope, Inbox, MessageError, Object, PreparedModelHandle, Reply, Welcome,
};
use nnhal_device::Device;
use nnhal_hal::{BufferDesc, BufferRole, ErrorStatus, Failure};
use nnhal_os::socket::Connection;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{eventfd, poll};

use super::burst;
use super::calls::OpenCall;
use super::client::Client;
use super::error::WorkerError;
use super::fenced::Fenced;
use super::orders::Orders;
use super::watchdog::Look;
use super::weights::Weights;
use super::{copy, execute, execute_fenced, last_words, prepare};
use crate::cores::WorkerCores;
use crate::link::{Assignment, WorkerConfig};
use crate::trace;

/// Calls that are read before anything else is looked at.
const CALLS_AT_ONCE: usize = 64;

/// How long the last words to a client may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(200);

/// Now or not at all.
const NOW: Deadline = Deadline::from_raw(0);

struct Session<'a> {
    client: Arc<Client>,
    inbox: Inbox,
    orders: &'a Orders,
    /// Fenced executions that wait.
    waiting: Vec<Arc<Fenced>>,
    /// When the client last asked for anything; none once its scratch memory has been given back.
    busy_since: Option<TimePoint>,
}

/// Why a session is over.
enum End {
    /// The client is gone.
    Closed,
    /// The client must be told.
    Goodbye(String),
}

/// Serves a client until it or this worker ends, which the client notices by the worker's `pidfd`.
pub(super) fn serve(
    connection: Connection,
    device: Arc<dyn Device>,
    assignment: &Assignment,
    (config, cores, weights): (&WorkerConfig, Arc<WorkerCores>, Weights),
    pidfd: Option<OwnedFd>,
    orders: &Orders,
) -> Result<(), WorkerError> {
    let mut inbox = Inbox::new();
    let Some(version) = greet(&connection, &mut inbox, &device, assignment, config, pidfd)? else {
        return Ok(());
    };
    inbox.set_version(version);
    let own = (cores, Arc::new(weights));
    let client = Arc::new(Client::new(
        (connection, version),
        device,
        config,
        &orders.wake,
        own,
    )?);
    let mut session = Session {
        client,
        inbox,
        orders,
        waiting: Vec::new(),
        busy_since: Some(MonotonicClock.now()),
    };
    let end = session.run();
    // Whoever else has them is told, since this process ends with the session.
    session.client.bursts.end_fences();
    match end? {
        End::Closed => {}
        End::Goodbye(reason) => {
            tracing::info!(target: tags::DRIVER, %reason, "the session ends");
            session.say_goodbye(&reason);
        }
    }
    Ok(())
}

/// The handshake. Returns the version that both sides go on with, if there is a session.
fn greet(
    connection: &Connection,
    inbox: &mut Inbox,
    device: &Arc<dyn Device>,
    assignment: &Assignment,
    config: &WorkerConfig,
    pidfd: Option<OwnedFd>,
) -> Result<Option<u32>, WorkerError> {
    let limit = Duration::from_millis(config.workers.hello_timeout_ms);
    let deadline = Deadline::after(MonotonicClock.now(), limit);
    let versions = match inbox.receive_bytes(connection, deadline) {
        Ok((hello, _)) => handshake::read_hello(hello),
        Err(error) => {
            tracing::debug!(target: tags::DRIVER, %error, "no hello");
            return Ok(None);
        }
    };
    let versions = match versions {
        Ok(versions) => versions,
        Err(error) => {
            tracing::info!(target: tags::DRIVER, client = ?assignment.client, "{error}");
            return Ok(None);
        }
    };
    let Some(version) = handshake::VERSIONS.agree(versions) else {
        let answer = handshake::refuse_version(handshake::VERSIONS, versions);
        // Whether the client still wants to know is its affair.
        let _ = connection.send(&answer, &[], NOW);
        return Ok(None);
    };
    let mut welcome = Welcome {
        device: device.info().clone(),
        worker_pid: assignment.worker_pid,
        supervisor_pid: assignment.supervisor_pid,
        has_pidfd: pidfd.is_some(),
    };
    let is_sent = welcome_with(connection, (version, &welcome), pidfd.as_ref(), NOW)? || {
        // No descriptor can be sent as long as too many of the driver's user are unread. The client notices
        // the worker's end by its connection as well.
        welcome.has_pidfd = false;
        welcome_with(connection, (version, &welcome), None, deadline)?
    };
    Ok(is_sent.then_some(version))
}

/// Whether the client has been welcomed.
fn welcome_with(
    connection: &Connection,
    (version, welcome): (u32, &Welcome),
    pidfd: Option<&OwnedFd>,
    deadline: Deadline,
) -> Result<bool, WorkerError> {
    let answer =
        handshake::accept(handshake::VERSIONS, version, welcome).map_err(|_| WorkerError::Unexpected)?;
    let fds: Vec<_> = pidfd.iter().map(|fd| fd.as_fd()).collect();
    Ok(connection.send(&answer, &fds, deadline).is_ok())
}

impl Session<'_> {
    fn run(&mut self) -> Result<End, WorkerError> {
        loop {
            if self.client.outbox.is_broken() {
                return Ok(End::Closed);
            }
            if self.orders.is_draining() && self.is_at_rest() {
                return Ok(End::Goodbye("the driver is ending".to_owned()));
            }
            let deadline = match self.look_after_work() {
                Ok(deadline) => deadline,
                Err(end) => return Ok(end),
            };
            let (has_calls, is_woken) = self.wait(deadline)?;
            if is_woken {
                self.heed_orders();
            }
            if self.client.outbox.has_waiting() {
                self.client.outbox.flush();
            }
            self.look_after_fences();
            if has_calls && let Some(end) = self.read_calls() {
                return Ok(end);
            }
        }
    }

    /// Waits for calls, for orders, for room to answer, for fences, or for the deadline. Returns which of the
    /// first two there are.
    fn wait(&self, deadline: Deadline) -> Result<(bool, bool), WorkerError> {
        let mut deadline = deadline;
        let mut fences = Vec::new();
        for (pending, until) in self.waiting.iter().filter_map(|fenced| fenced.waits_for()) {
            deadline = deadline.earlier(until);
            fences.extend(pending);
        }
        let mut events = PollFlags::POLLIN;
        match self.client.outbox.look_again_after() {
            Some(pause) => deadline = deadline.earlier(Deadline::after(MonotonicClock.now(), pause)),
            None if self.client.outbox.has_waiting() => events |= PollFlags::POLLOUT,
            None => {}
        }
        // The kernel looks at no more than there can be descriptors, and one fence may be waited for many
        // times.
        fences.sort_unstable_by_key(|fence| fence.as_fd().as_raw_fd());
        fences.dedup_by_key(|fence| fence.as_fd().as_raw_fd());
        let connection = PollFd::new(self.client.outbox.connection().as_fd(), events);
        let orders = PollFd::new(self.orders.wake.as_fd(), PollFlags::POLLIN);
        let mut fds = vec![connection, orders];
        fds.extend(
            fences
                .iter()
                .map(|fence| PollFd::new(fence.as_fd(), PollFlags::POLLIN)),
        );
        poll::wait(&mut fds, deadline)?;
        let wanted = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| events.intersects(wanted));
        let mut ready = fds.iter().map(is_ready);
        Ok((ready.next() == Some(true), ready.next() == Some(true)))
    }

    /// Begins fenced executions whose fences have signalled, and ends those that have waited too long.
    fn look_after_fences(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = MonotonicClock.now();
        self.waiting.iter().for_each(|fenced| fenced.look(now));
        self.waiting.retain(|fenced| fenced.waits_for().is_some());
    }

    fn heed_orders(&self) {
        // Its own event: it cannot fail.
        let _ = eventfd::drain(&self.orders.wake);
        self.client
            .watchdog
            .set_limit(self.orders.execution().hang_limit());
        self.client
            .idle_release
            .set(self.orders.execution().idle_release());
        self.client
            .scheduler
            .cores()
            .set_most(self.orders.execution().threads);
        if self.orders.is_draining() {
            self.client.calls.drain();
            self.client.bursts.drain();
        }
    }

    fn is_at_rest(&self) -> bool {
        self.client.calls.is_empty() && self.client.bursts.are_over()
    }

    /// Looks for work that hangs, and for memory that nobody needs. Returns when to look again.
    fn look_after_work(&mut self) -> Result<Deadline, End> {
        let now = MonotonicClock.now();
        let mut deadline = match self.client.watchdog.look(now) {
            Look::Idle => Deadline::NONE,
            Look::Again(after) => Deadline::after(now, after),
            Look::Hung(stuck) => return Err(self.end_hung_work(stuck)),
        };
        if let (Some(since), Some(limit)) = (self.busy_since, self.client.idle_release.get()) {
            let release = Deadline::after(since, limit);
            if !release.is_past(now) {
                deadline = deadline.earlier(release);
            } else if self.client.calls.is_empty() {
                self.client.release_memory();
                self.busy_since = None;
            } else {
                self.busy_since = Some(now);
                deadline = deadline.earlier(Deadline::after(now, limit));
            }
        }
        Ok(deadline)
    }

    /// A thread that hangs cannot be ended but with its process.
    fn end_hung_work(&mut self, stuck: Duration) -> End {
        let reason = format!(
            "the watchdog ended it: an operation made no progress for {} ms",
            stuck.as_millis()
        );
        last_words::note(&reason);
        tracing::error!(target: tags::DRIVER, "{reason}");
        self.say_goodbye(&reason);
        crate::log::flush();
        std::process::abort();
    }

    fn say_goodbye(&mut self, reason: &str) {
        self.client.outbox.goodbye(reason);
        let deadline = Deadline::after(MonotonicClock.now(), GOODBYE_TIMEOUT);
        while self.client.outbox.has_waiting() && !self.client.outbox.is_broken() {
            let connection = self.client.outbox.connection();
            let ready = match self.client.outbox.look_again_after() {
                Some(pause) => {
                    let pause = Deadline::after(MonotonicClock.now(), pause).earlier(deadline);
                    poll::one(connection, PollFlags::empty(), pause)
                }
                None => poll::one(connection, PollFlags::POLLOUT, deadline),
            };
            if ready.is_err() || deadline.is_past(MonotonicClock.now()) {
                return;
            }
            self.client.outbox.flush();
        }
    }

    /// Reads calls and begins them. Returns the end of the session if that is what it is.
    fn read_calls(&mut self) -> Option<End> {
        for _ in 0..CALLS_AT_ONCE {
            let received = self
                .inbox
                .receive::<Envelope>(self.client.outbox.connection(), NOW);
            let (envelope, fds) = match received {
                Ok(received) => received,
                Err(error) if error.is_timeout() => return None,
                Err(MessageError::Codec(error @ CodecError::UnknownCall { id, .. })) => {
                    // Of a client that is newer than what it agreed to: the others can still be answered.
                    self.answer(id, Err(Failure::general(error.to_string())));
                    continue;
                }
                Err(error) => return Some(end_of(&error)),
            };
            if fds.len() != envelope.call.fd_count() {
                return Some(End::Goodbye(format!(
                    "the client broke the protocol: {} came with {} descriptors instead of {}",
                    envelope.call.name(),
                    fds.len(),
                    envelope.call.fd_count()
                )));
            }
            self.busy_since = Some(MonotonicClock.now());
            self.begin(envelope, fds);
        }
        None
    }

    /// Answers a short call; hands a long one to a thread.
    fn begin(&mut self, Envelope { id, call }: Envelope, fds: Vec<OwnedFd>) {
        tracing::trace!(target: tags::DRIVER, id, call = call.name());
        if self.orders.is_draining() && !is_allowed_at_the_end(&call) {
            let ending = Failure::new(ErrorStatus::DeviceUnavailable, "the driver is ending");
            return self.client.outbox.reply(id, Err(ending));
        }
        match call {
            Call::GetStatus => self.answer(id, Ok(Reply::Status(self.client.device.status()))),
            Call::RegisterMemory(description) => {
                let memory = self.client.memories.register(&description, fds);
                self.answer(id, memory.map(Reply::Memory));
            }
            Call::Release { object } => self.answer(id, self.release(object).map(|()| Reply::Done)),
            Call::Cancel { id: other } => {
                let result = if self.client.calls.cancel(other) {
                    Ok(Reply::Done)
                } else {
                    Err(Failure::invalid_argument(format!(
                        "no call with id {other} is in progress"
                    )))
                };
                self.answer(id, result);
            }
            Call::CancelBurst { burst, sequence } => {
                let cancelled = self.client.bursts.cancel(burst, sequence);
                self.answer(id, cancelled.map(|()| Reply::Done));
            }
            Call::GetBurstFence { burst, sequence } => match self.client.bursts.fence(burst, sequence) {
                Ok(fd) => {
                    let has_fence = fd.is_some();
                    self.client
                        .outbox
                        .reply_with(id, Reply::BurstFence { has_fence }, fd);
                }
                Err(failure) => self.answer(id, Err(failure)),
            },
            Call::ConfigureBurst {
                prepared_model,
                polling_window_ns,
            } => {
                let burst = self.configure_burst(prepared_model, polling_window_ns, fds);
                self.answer(id, burst.map(Reply::Burst));
            }
            Call::RegisterFence => self.answer(id, self.client.add_fence(fds).map(Reply::Fence)),
            Call::StartTrace { size } => {
                let count = || self.client.memories.count_for_good(size);
                let started = trace::start(fds.into_iter().next(), size, count);
                self.answer(id, started.map(|()| Reply::Done));
            }
            Call::Allocate {
                desc,
                prepared_models,
                input_roles,
                output_roles,
            } => {
                let allocated = self.allocate(&desc, &prepared_models, (&input_roles, &output_roles));
                self.answer(id, allocated.map(Reply::Allocated));
            }
            Call::GetExecutionInfo { execution } => {
                let info = self.client.fenced(execution).and_then(|fenced| fenced.info());
                self.answer(id, info.map(Reply::ExecutionInfo));
            }
            Call::GetSupportedOperations { model, pools } => {
                self.open(id, |client, open| {
                    prepare::supported_operations(client, open, model, &pools)
                });
            }
            Call::PrepareModel(arguments) => {
                self.open(id, |client, open| {
                    prepare::prepare_model(client, open, arguments, fds)
                });
            }
            Call::PrepareModelFromCache(arguments) => {
                self.open(id, |client, open| {
                    prepare::prepare_model_from_cache(client, open, arguments, fds);
                });
            }
            Call::Execute(arguments) => {
                self.open(id, |client, open| execute::execute(client, open, arguments));
            }
            Call::ExecuteFenced(arguments) => {
                let timeout = self.orders.execution().fence_timeout();
                let waiting = self.open(id, |client, open| {
                    execute_fenced::execute_fenced(client, open, arguments, fds, timeout)
                });
                self.waiting.extend(waiting.flatten());
            }
            Call::CopyTo { buffer, memory } => {
                self.open(id, |client, open| copy::copy_to(client, open, buffer, memory));
            }
            Call::CopyFrom {
                buffer,
                memory,
                dimensions,
            } => {
                self.open(id, |client, open| {
                    copy::copy_from(client, open, buffer, memory, dimensions);
                });
            }
        }
    }

    /// Begins a long call, unless as many are in progress as one client may have.
    fn open<T>(&self, id: u64, begin: impl FnOnce(&Arc<Client>, OpenCall) -> T) -> Option<T> {
        match self.client.calls.open(id) {
            Ok(open) => Some(begin(&self.client, open)),
            Err(failure) => {
                self.answer(id, Err(failure));
                None
            }
        }
    }

    fn configure_burst(
        &self,
        model: PreparedModelHandle,
        polling_window_ns: Option<u64>,
        mut fds: Vec<OwnedFd>,
    ) -> Result<BurstHandle, Failure> {
        let prepared = self.client.model(model)?;
        let wait = burst::wait_settings(prepared.preference(), &self.orders.execution(), polling_window_ns);
        // Their number has been checked.
        let fd = fds
            .pop()
            .ok_or_else(|| Failure::invalid_argument("a burst needs its memory"))?;
        let objects = burst::Objects {
            prepared,
            memories: Arc::clone(&self.client.memories),
            buffers: Arc::clone(&self.client.buffers),
            idle_release: Arc::clone(&self.client.idle_release),
        };
        self.client.bursts.configure(objects, fd, wait, &self.orders.wake)
    }

    fn allocate(
        &self,
        desc: &BufferDesc,
        models: &[PreparedModelHandle],
        (input_roles, output_roles): (&[BufferRole], &[BufferRole]),
    ) -> Result<Allocated, Failure> {
        let models: Vec<_> = models
            .iter()
            .map(|&model| Ok(Arc::clone(self.client.model(model)?.model())))
            .collect::<Result<_, Failure>>()?;
        self.client
            .buffers
            .allocate(&desc.dimensions, &models, input_roles, output_roles)
    }

    fn answer(&self, id: u64, result: Result<Reply, Failure>) {
        self.client.outbox.reply(id, result);
    }

    fn release(&self, object: Object) -> Result<(), Failure> {
        match object {
            Object::PreparedModel(handle) => self.client.remove_model(handle),
            Object::Memory(handle) => self.client.memories.remove(handle),
            Object::Burst(handle) => self.client.bursts.release(handle),
            Object::Buffer(handle) => self.client.buffers.remove(handle),
            Object::Execution(handle) => self.client.remove_fenced(handle),
            Object::Fence(handle) => self.client.remove_fence(handle),
        }
    }
}

/// What has work end earlier, or tells of its end.
fn is_allowed_at_the_end(call: &Call) -> bool {
    matches!(
        call,
        Call::Release { .. } | Call::Cancel { .. } | Call::CancelBurst { .. } | Call::GetBurstFence { .. }
    )
}

fn end_of(error: &MessageError) -> End {
    if error.is_closed() {
        End::Closed
    } else {
        End::Goodbye(error.to_string())
    }
}
