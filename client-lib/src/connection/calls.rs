//! The calls that have not been answered in full, and who waits for them.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, OnceLock, Weak};
use std::task::Waker;

use nnhal::diag::tags;
use nnhal::wire::{Event, Object, Reply};
use nnhal_hal::Failure;

use super::ending::{EndListener, Farewell, Trouble};
use crate::error::{Error, ErrorKind, Result};

/// The reply to a call and the descriptors that came with it.
pub(crate) type Answer = (Reply, Vec<OwnedFd>);

/// What must stay alive until a call has ended, such as the memories it writes.
pub(crate) type Keep = Option<Box<dyn Any + Send>>;

/// Gets the result of a call that was launched.
pub(super) type Callback = Box<dyn FnOnce(Result<Event>) + Send>;

/// Which answer to a call somebody is interested in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// None.
    None,
    /// Its reply.
    Reply,
    /// The event that follows the reply.
    Event,
}

/// Who reads the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reader {
    /// Nobody: no answer is due, or the next one to wait takes over.
    #[default]
    Nobody,
    /// Somebody who waits for an answer.
    Caller,
    /// The watcher, since answers are due that nobody waits for in a call.
    Watcher,
}

/// A call that has not been answered in full, or whose answers have not been collected.
#[derive(Default)]
pub(super) struct Entry {
    reply: Option<std::result::Result<Answer, Failure>>,
    has_reply: bool,
    expects_event: bool,
    event: Option<Event>,
    /// Whether somebody is in a call of this library that waits for it.
    is_attended: bool,
    /// Whether answers are of no interest any more.
    is_abandoned: bool,
    /// Whether they never were.
    is_told: bool,
    sleeper: Option<Arc<Condvar>>,
    waker: Option<Waker>,
    callback: Option<Callback>,
    keep: Keep,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("reply", &self.reply)
            .field("event", &self.event)
            .field("is_attended", &self.is_attended)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Whether no more answers are due.
    fn is_complete(&self) -> bool {
        self.has_reply && (!self.expects_event || self.event.is_some())
    }

    fn is_unattended(&self) -> bool {
        !self.is_attended && !self.is_complete()
    }

    /// The reply, if there is one.
    pub(super) fn into_reply(self) -> Option<std::result::Result<Answer, Failure>> {
        self.reply
    }

    /// The event that followed it, if there is one.
    pub(super) fn into_event(self) -> Option<Event> {
        self.event
    }
}

/// What to do, without the lock, after an answer was handed out or the connection ended.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) sleepers: Vec<Arc<Condvar>>,
    pub(super) wakers: Vec<Waker>,
    pub(super) callbacks: Vec<(Callback, Result<Event>)>,
    /// Objects of the worker that nobody will ever name.
    pub(super) orphans: Vec<Object>,
    /// Dropped without the lock: memories may send their release.
    kept: Vec<Keep>,
}

impl Effects {
    fn notify(&mut self, entry: &mut Entry) {
        self.sleepers.extend(entry.sleeper.clone());
        self.wakers.extend(entry.waker.take());
    }
}

/// The table of calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    entries: HashMap<u64, Entry>,
    /// Entries for which [`Entry::is_unattended`] holds.
    unattended: usize,
    pub(super) reader: Reader,
    /// What a reader found that the watcher must look into.
    pub(super) trouble: Option<Trouble>,
    pub(super) farewell: Farewell,
    pub(super) has_ended: bool,
    pub(super) is_stopping: bool,
    pub(super) listeners: Vec<Weak<dyn EndListener>>,
}

impl Calls {
    /// Enters a call; an error once the connection has ended.
    pub(super) fn add(&mut self, id: u64, interest: Interest) -> std::result::Result<(), ()> {
        if self.has_ended {
            return Err(());
        }
        let entry = Entry {
            is_attended: interest != Interest::None,
            is_abandoned: interest == Interest::None,
            is_told: interest == Interest::None,
            ..Entry::default()
        };
        self.unattended += usize::from(entry.is_unattended());
        self.entries.insert(id, entry);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.unattended -= usize::from(entry.is_unattended());
        Some(entry)
    }

    /// Changes an entry and keeps the count right.
    fn change<T>(&mut self, id: u64, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.entries.get_mut(&id)?;
        let before = usize::from(entry.is_unattended());
        let result = change(entry);
        let after = usize::from(entry.is_unattended());
        self.unattended = self.unattended + after - before;
        Some(result)
    }

    /// Whether answers are due that nobody waits for in a call.
    pub(super) fn needs_watcher(&self) -> bool {
        self.unattended > 0
    }

    pub(super) fn set_attended(&mut self, id: u64, is_attended: bool) {
        self.change(id, |entry| entry.is_attended = is_attended);
    }

    pub(super) fn set_sleeper(&mut self, id: u64, sleeper: Option<Arc<Condvar>>) {
        self.change(id, |entry| entry.sleeper = sleeper);
    }

    pub(super) fn set_waker(&mut self, id: u64, waker: Waker) {
        self.change(id, |entry| entry.waker = Some(waker));
    }

    pub(super) fn set_callback(&mut self, id: u64, callback: Callback) {
        self.change(id, |entry| entry.callback = Some(callback));
    }

    pub(super) fn is_ready(&self, id: u64, interest: Interest) -> bool {
        self.entries.get(&id).is_some_and(|entry| match interest {
            Interest::None => true,
            Interest::Reply => entry.has_reply,
            Interest::Event => entry.event.is_some(),
        })
    }

    pub(super) fn keep(&mut self, id: u64, keep: Keep) {
        self.change(id, |entry| entry.keep = keep);
    }

    pub(super) fn take_reply(&mut self, id: u64) -> Option<std::result::Result<Answer, Failure>> {
        self.entries.get_mut(&id)?.reply.take()
    }

    /// Somebody who sleeps and should read now, since nobody does.
    pub(super) fn next_reader(&self) -> Option<Arc<Condvar>> {
        self.entries.values().find_map(|entry| entry.sleeper.clone())
    }

    /// Enters a reply.
    pub(super) fn reply(
        &mut self,
        id: u64,
        result: std::result::Result<Answer, Failure>,
    ) -> std::result::Result<Effects, String> {
        let mut effects = Effects::default();
        let fresh = self.change(id, |entry| {
            let is_fresh = !entry.has_reply;
            entry.has_reply = true;
            entry.expects_event = matches!(result, Ok((Reply::Launched, _)));
            entry.reply = Some(result);
            effects.notify(entry);
            is_fresh
        });
        match fresh {
            Some(true) => Ok(self.forget(id, effects)),
            Some(false) => Err(format!("it answered call {id} twice")),
            None => Err(format!("it answered call {id}, which was not made")),
        }
    }

    /// Enters an event.
    pub(super) fn event(&mut self, id: u64, event: Event) -> std::result::Result<Effects, String> {
        let mut effects = Effects::default();
        let fresh = self.change(id, |entry| {
            let is_due = entry.expects_event && entry.event.is_none();
            if !is_due {
                return false;
            }
            effects.notify(entry);
            match entry.callback.take() {
                Some(callback) => {
                    effects.callbacks.push((callback, Ok(event)));
                    entry.expects_event = false;
                    // Nothing is left of it to be collected.
                    entry.is_abandoned = true;
                }
                None => entry.event = Some(event),
            }
            true
        });
        match fresh {
            Some(true) => Ok(self.forget(id, effects)),
            _ => Err(format!("it sent an event of call {id}, which has none due")),
        }
    }

    /// Gives a call up. Answers that are still due are read and dropped.
    pub(super) fn abandon(&mut self, id: u64) -> Effects {
        self.change(id, |entry| {
            entry.is_abandoned = true;
            entry.is_attended = false;
            entry.waker = None;
            entry.sleeper = None;
        });
        self.forget(id, Effects::default())
    }

    /// Removes an entry that has all its answers and that nobody cares for.
    fn forget(&mut self, id: u64, mut effects: Effects) -> Effects {
        let is_over = self
            .entries
            .get(&id)
            .is_some_and(|entry| entry.is_abandoned && entry.is_complete());
        // What is only told, such as a release, makes no object. An answer that names one all the same is not
        // answered by a release, whose answer could name another.
        if is_over && let Some(entry) = self.remove(id) {
            if entry.is_told {
                return effects;
            }
            effects
                .orphans
                .extend(entry.reply.and_then(|reply| reply_object(&reply.ok()?.0)));
            effects
                .orphans
                .extend(entry.event.as_ref().and_then(event_object));
            effects.kept.push(entry.keep);
        }
        effects
    }

    /// Ends all calls.
    pub(super) fn end(&mut self, error: impl Fn() -> Error) -> (Effects, Vec<Arc<dyn EndListener>>) {
        self.has_ended = true;
        let mut effects = Effects::default();
        for entry in self.entries.values_mut() {
            effects.notify(entry);
            effects.kept.push(entry.keep.take());
            if let Some(callback) = entry.callback.take() {
                effects.callbacks.push((callback, Err(error())));
            }
        }
        let listeners = self.listeners.drain(..).filter_map(|listener| listener.upgrade());
        (effects, listeners.collect())
    }
}

fn reply_object(reply: &Reply) -> Option<Object> {
    Some(match reply {
        Reply::Memory(memory) => Object::Memory(*memory),
        Reply::Fence(fence) => Object::Fence(*fence),
        Reply::Allocated(allocated) => Object::Buffer(allocated.buffer),
        Reply::Fenced(started) => Object::Execution(started.execution),
        Reply::Burst(burst) => Object::Burst(*burst),
        Reply::Done
        | Reply::Status(_)
        | Reply::SupportedOperations(_)
        | Reply::Launched
        | Reply::Executed(_)
        | Reply::ExecutionInfo(_)
        | Reply::BurstFence { .. } => return None,
    })
}

fn event_object(event: &Event) -> Option<Object> {
    match event {
        Event::Prepared(Ok(model)) => Some(Object::PreparedModel(*model)),
        Event::Prepared(Err(_)) | Event::Executed(_) => None,
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that runs callbacks, so that they may take their time and call this library. Started with the
/// first.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    jobs: OnceLock<Sender<Job>>,
}

impl Callbacks {
    /// Makes sure that the thread is there.
    pub(super) fn start(&self) -> Result<()> {
        if self.jobs.get().is_some() {
            return Ok(());
        }
        let (sender, jobs) = channel::<Job>();
        // Ends when the connection goes, and with it the sender.
        let run = move || {
            for job in jobs {
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    tracing::error!(target: tags::DRIVER, "a callback panicked; the others go on");
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("nnhal-callbacks".into())
            .spawn(run);
        thread.map_err(|source| ErrorKind::Thread {
            source: Arc::new(source),
        })?;
        // Another thread may have been faster; its sender stays, and this one's thread ends.
        let _ = self.jobs.set(sender);
        Ok(())
    }

    pub(super) fn run(&self, job: Job) {
        if let Some(jobs) = self.jobs.get() {
            // The thread lives as long as the sender.
            let _ = jobs.send(job);
        }
    }
}
