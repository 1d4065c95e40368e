//! The thread that takes the results which come by rings while nobody waits in a call: for futures, for
//! callbacks, and of executions that were given up.
//!
//! It is started with the first of them, and serves all of a connection by one wait set. While none is
//! pending it sleeps on a condition variable: no deadline wakes it.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::fmq::{ChannelEnd, ChannelSize, Consumer, WaitSet, WaitSettings, Waker};
use nnhal_os::time::Deadline;

use crate::error::{Error, ErrorKind, Result};

/// Cells of the rings of the thread's own, on which nothing is ever sent: a waker needs one.
const WAKER_CHANNEL: ChannelSize = ChannelSize {
    outgoing: 1,
    incoming: 1,
};

/// How long the thread pauses between two looks where the kernel cannot wait for several rings at once.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// An execution whose result comes by a ring.
pub(crate) trait Awaited: Send + std::fmt::Debug {
    /// Where its result comes from, if there is anything.
    fn consumer(&self) -> Option<&Consumer>;

    /// The same, to be used.
    fn consumer_mut(&mut self) -> Option<&mut Consumer>;

    /// How to wait for it.
    fn wait_settings(&self) -> WaitSettings;

    /// Takes the result and tells it; gives the execution back if what has come was the result of another.
    fn finish(self: Box<Self>) -> Option<Box<dyn Awaited>>;
}

/// The completer of a connection.
#[derive(Debug, Default)]
pub(super) struct Completer {
    shared: Mutex<Option<Arc<Shared>>>,
}

/// What the thread has in common with others.
#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Inbox {
    arrived: Vec<Box<dyn Awaited>>,
    is_stopping: bool,
}

impl Completer {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        // It is changed by a single step.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the thread is there.
    pub(super) fn start(&self) -> Result<()> {
        let mut running = self.lock();
        if running.is_some() {
            return Ok(());
        }
        let (end, _memory) = ChannelEnd::create(WAKER_CHANNEL, WaitSettings::default())
            .map_err(Error::ring("make the rings of a thread"))?;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            filled: Condvar::new(),
            waker: end.consumer.new_waker(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("nnhal-complete".into())
            .spawn(move || complete(&own, end));
        thread.map_err(|source| ErrorKind::Thread {
            source: Arc::new(source),
        })?;
        *running = Some(shared);
        Ok(())
    }

    /// Has the thread, which was started, finish an execution once its result has come.
    pub(super) fn add(&self, awaited: Box<dyn Awaited>) {
        let shared = self.lock().clone();
        if let Some(shared) = shared {
            shared.inbox().arrived.push(awaited);
            shared.call();
        }
    }

    /// Has the thread end. Executions keep their connection, so there are none by then.
    pub(super) fn stop(&self) {
        if let Some(shared) = self.lock().take() {
            shared.inbox().is_stopping = true;
            shared.call();
        }
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // It is whole between any two statements of this module.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look into its inbox, wherever it sleeps.
    fn call(&self) {
        self.filled.notify_one();
        self.waker.wake();
    }
}

/// Finishes executions until it is told to stop.
fn complete(shared: &Shared, mut channel: ChannelEnd) {
    let mut pending = Pending {
        shared,
        executions: Vec::new(),
    };
    let mut packet = channel.consumer.new_packet();
    let mut settings = WaitSettings::default();
    while pending.take_in() {
        let wanted = pending.wait_settings();
        if wanted != settings {
            settings = wanted;
            channel.consumer.set_wait(settings);
        }
        // Ends with the peer: its end closes all rings.
        let waited = channel
            .consumer
            .receive_in(&mut pending, &mut packet, |_| Some(Deadline::NONE));
        if waited.is_err() {
            std::thread::park_timeout(LOOK_AGAIN);
        }
        pending.finish_ready();
    }
}

/// The executions that the thread waits for.
#[derive(Debug)]
struct Pending<'a> {
    shared: &'a Shared,
    executions: Vec<Box<dyn Awaited>>,
}

impl Pending<'_> {
    /// Takes in what has arrived, and waits until there is something; whether to go on.
    fn take_in(&mut self) -> bool {
        self.shared.waker.clear();
        let mut inbox = self.shared.inbox();
        loop {
            self.executions.append(&mut inbox.arrived);
            if inbox.is_stopping {
                return false;
            }
            if !self.executions.is_empty() {
                return true;
            }
            let waited = self.shared.filled.wait(inbox);
            inbox = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Without polling if anybody wants that.
    fn wait_settings(&self) -> WaitSettings {
        let mut all = self.executions.iter().map(|execution| execution.wait_settings());
        match all.any(|settings| settings == WaitSettings::Sleep) {
            true => WaitSettings::Sleep,
            false => WaitSettings::default(),
        }
    }

    fn finish_ready(&mut self) {
        let is_ready =
            |execution: &mut Box<dyn Awaited>| execution.consumer_mut().is_none_or(Consumer::is_ready);
        while let Some(at) = self.executions.iter_mut().position(is_ready) {
            let execution = self.executions.swap_remove(at);
            // It calls wakers, which are the program's.
            match std::panic::catch_unwind(AssertUnwindSafe(|| execution.finish())) {
                Ok(unfinished) => self.executions.extend(unfinished),
                Err(_) => {
                    tracing::error!(target: tags::DRIVER, "telling of an end panicked; other executions go on");
                }
            }
        }
    }
}

impl WaitSet for Pending<'_> {
    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.executions
            .iter()
            .filter_map(|execution| execution.consumer())
    }

    fn consumers_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.executions
            .iter_mut()
            .filter_map(|execution| execution.consumer_mut())
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.shared.waker)
    }
}
