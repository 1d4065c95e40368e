//! The main thread's loop: what it waits for, and in which order it looks after it.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nnhal::diag::tags;
use nnhal_os::poll;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

use super::options::SupervisorError;
use super::retry::{PAUSE, Retry};
use super::state::{Phase, Supervisor};

/// What the main thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Spawner,
    Owner,
    Listener(usize),
    /// The client of a worker.
    Client(i32),
    /// A client that has no worker yet.
    Waiting,
    /// A worker that starts.
    Starting(i32),
    /// A worker's first request.
    Worker(i32),
}

impl Source {
    /// What clients send is their workers'; only their end is looked for here.
    fn events(self) -> PollFlags {
        match self {
            Source::Client(_) | Source::Waiting => PollFlags::empty(),
            _ => PollFlags::POLLIN,
        }
    }
}

impl Supervisor {
    pub(super) fn serve(&mut self) -> Result<(), SupervisorError> {
        let mut retry = Retry::default();
        loop {
            self.order_workers()?;
            if self.has_ended() {
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
            if ready.contains(&Source::Signals) {
                self.heed_signals()?;
            }
            if ready.contains(&Source::Spawner) {
                self.take_spawned()?;
            }
            if ready.contains(&Source::Owner) {
                tracing::info!(target: tags::DRIVER, "the owner is gone");
                self.options.owner = None;
                self.drain();
            }
            if ready.contains(&Source::Waiting) {
                self.let_waiting_go();
            }
            for &source in &ready {
                match source {
                    Source::Client(pid) => self.client_is_gone(pid),
                    Source::Worker(pid) => self.listen(pid),
                    Source::Starting(pid) => self.hear(pid)?,
                    Source::Signals
                    | Source::Spawner
                    | Source::Owner
                    | Source::Waiting
                    | Source::Listener(_) => {}
                }
            }
            // Those who come after those who go, whose places they may need.
            self.admit_pending()?;
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
        let mut sources = vec![
            (Source::Signals, self.signals.as_fd()),
            (Source::Spawner, self.starting.wake()),
        ];
        if let Some(owner) = &self.options.owner {
            sources.push((Source::Owner, owner.as_fd()));
        }
        if let (Phase::Serving { published }, None) = (&self.phase, self.accept_again) {
            let listeners = published.iter().enumerate();
            sources.extend(
                listeners.map(|(index, published)| (Source::Listener(index), published.listener.as_fd())),
            );
        }
        let served = self
            .workers
            .serving()
            .filter(|(_, service)| service.hung_up.is_none());
        sources.extend(served.map(|(pid, service)| (Source::Client(pid), service.client.as_fd())));
        let waiting = self.waiting.connections();
        sources.extend(waiting.map(|client| (Source::Waiting, client.as_fd())));
        let starting = self.starting.reporting();
        sources.extend(starting.map(|(pid, report)| (Source::Starting(pid), report.as_fd())));
        let silent = self.workers.silent();
        sources.extend(silent.map(|(pid, requests)| (Source::Worker(pid), requests.as_fd())));
        let mut polled: Vec<_> = sources
            .iter()
            .map(|&(source, fd)| PollFd::new(fd, source.events()))
            .collect();
        poll::wait(&mut polled, self.next_deadline())
            .map_err(|error| SupervisorError::system("wait for events")(error.errno))?;
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(sources
            .into_iter()
            .zip(&polled)
            .filter(|(_, fd)| is_ready(fd))
            .map(|((source, _), _)| source)
            .collect())
    }

    /// The earliest moment at which something must be done although nothing happens.
    fn next_deadline(&self) -> Deadline {
        let workers = self.workers_settings();
        let start = self
            .starting
            .overdue_at(Duration::from_millis(workers.start_timeout_ms));
        let linger = Duration::from_millis(workers.linger_timeout_ms);
        let linger = self
            .workers
            .serving()
            .filter_map(|(_, service)| service.lingers_since())
            .map(|since| Deadline::after(since, linger))
            .min();
        let drain = match self.phase {
            Phase::Draining { until, .. } => Some(until),
            _ => None,
        };
        let accept = self.accept_again.map(Deadline::at);
        let hand_over = self.hand_over_again.map(Deadline::at);
        let reserve = self.reserve_again.map(Deadline::at);
        let count = self.next_count();
        [
            start,
            linger,
            drain,
            accept,
            hand_over,
            reserve,
            count,
            self.pending.look_again(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Deadline::NONE)
    }

    fn enforce_deadlines(&mut self) {
        let now = MonotonicClock.now();
        let workers = self.workers_settings().clone();
        let start = Duration::from_millis(workers.start_timeout_ms);
        for _ in 0..self.starting.kill_overdue(now, start) {
            tracing::warn!(
                target: tags::DRIVER, limit_ms = workers.start_timeout_ms,
                "a worker took too long to start"
            );
        }
        let linger = Duration::from_millis(workers.linger_timeout_ms);
        let is_overdue = |since: TimePoint| Deadline::after(since, linger).is_past(now);
        let overdue: Vec<_> = self
            .workers
            .serving()
            .filter(|(_, service)| service.lingers_since().is_some_and(is_overdue))
            .map(|(pid, service)| (pid, service.uid))
            .collect();
        for (pid, uid) in overdue {
            tracing::warn!(target: tags::DRIVER, uid, pid, "the worker outlived its client");
            self.workers.kill(pid);
        }
        if let Phase::Draining { until, .. } = self.phase
            && until.is_past(now)
        {
            self.cut_short();
        }
        self.bound_threads(now);
        let is_due = |point: &mut TimePoint| *point <= now;
        self.accept_again.take_if(is_due);
        self.hand_over_again.take_if(is_due);
        self.reserve_again.take_if(is_due);
    }
}
