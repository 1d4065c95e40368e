//! What the handles, the callers and the watcher of a connection share.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nnhal::wire::handshake::{CANCEL_BURST_SINCE, FENCED_BURSTS_SINCE};
use nnhal::wire::{self, BurstHandle, Call, Envelope, Inbox, Object};
use nnhal_hal::{DeviceInfo, Failure, OutputShape};
use nnhal_os::fork::ForkStamp;
use nnhal_os::time::Deadline;
use nnhal_os::{eventfd, socket};

use super::burst_permit::{BurstPermit, BurstPermits, Holder};
use super::calls::{Answer, Callbacks, Calls, Interest};
use super::completer::{Awaited, Completer};
use super::ending::{self, EndListener, Ending};
use crate::driver_process::Process;
use crate::error::{Error, ErrorKind, Result};
use crate::timeouts::Timeouts;
use crate::trace;

/// What the handles, the callers and the watcher share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) socket: socket::Connection,
    /// Of the protocol, which both sides go on with.
    pub(super) version: u32,
    /// Wakes the watcher.
    pub(super) wake: OwnedFd,
    /// Becomes readable when the worker ends.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) device: Arc<DeviceInfo>,
    pub(super) name: Arc<str>,
    pub(super) worker: Process,
    pub(super) supervisor: Process,
    pub(super) timeouts: Timeouts,
    pub(super) stamp: ForkStamp,
    pub(super) next_id: AtomicU64,
    pub(super) calls: Mutex<Calls>,
    /// Told when the connection has ended.
    pub(super) ended: Condvar,
    /// Held by the reader.
    pub(super) inbox: Mutex<Inbox>,
    pub(super) ending: OnceLock<Ending>,
    pub(super) callbacks: Callbacks,
    pub(super) completer: Completer,
    /// Calls whose replies nobody waits for, while the socket had no room for them; made before the next one.
    pub(super) unsaid: Mutex<Vec<Call>>,
    pub(super) burst_permits: BurstPermits,
}

impl Link {
    /// The worker that answers.
    pub(crate) fn worker(&self) -> Process {
        self.worker
    }

    /// A descriptor that becomes readable when the worker ends, if there is one.
    pub(crate) fn worker_pidfd(&self) -> Option<OwnedFd> {
        self.pidfd.as_ref()?.try_clone().ok()
    }

    /// Refuses use by another process than the one that made the connection.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.stamp.is_current() {
            Ok(())
        } else {
            Err(ErrorKind::Forked.into())
        }
    }

    /// A permit for a burst that this library makes of itself.
    pub(crate) fn burst_permit<H: Holder + 'static>(&self, holder: &Arc<H>) -> Option<BurstPermit> {
        self.burst_permits.take(holder)
    }

    /// The driver has no room for the burst of this permit.
    pub(crate) fn give_back_burst_permit(&self, permit: BurstPermit) {
        self.burst_permits.give_back_unused(permit);
    }

    /// Whether the worker can be asked to end what a burst executes.
    #[inline]
    pub(crate) fn can_cancel_bursts(&self) -> bool {
        self.version >= CANCEL_BURST_SINCE
    }

    /// Whether requests of bursts can be fenced executions.
    #[inline]
    pub(crate) fn has_fenced_bursts(&self) -> bool {
        self.version >= FENCED_BURSTS_SINCE
    }

    /// Makes sure that [`Link::complete`] can be called.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start_completer(&self) -> Result<()> {
        self.completer.start()
    }

    /// Has a thread of this library finish an execution once its result has come.
    pub(crate) fn complete(&self, awaited: Box<dyn Awaited>) {
        self.completer.add(awaited);
    }

    /// Makes sure that [`Link::run_callback`] can be called.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start_callbacks(&self) -> Result<()> {
        self.callbacks.start()
    }

    /// Has the thread for callbacks run one.
    pub(crate) fn run_callback(&self, callback: Box<dyn FnOnce() + Send>) {
        self.callbacks.run(callback);
    }

    /// The limits of waits that have none of their own.
    #[inline]
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Makes a call that needs no computing and waits for its reply.
    ///
    /// # Errors
    /// As [`Link::call_by`].
    pub(crate) fn call(&self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<Answer> {
        self.call_by(call, fds, self.timeouts.call_deadline())
    }

    /// Makes a call and waits for its reply.
    ///
    /// # Errors
    /// The driver's refusal; the end of the worker; the deadline.
    pub(crate) fn call_by(&self, call: Call, fds: &[BorrowedFd<'_>], deadline: Deadline) -> Result<Answer> {
        let name = call.name();
        let is_execution = matches!(call, Call::Execute(_) | Call::ExecuteFenced(_));
        let _calls = trace::span(trace::kind_of(&call), 0);
        let deadline = self.timeouts.work_deadline(deadline);
        let id = self.begin_in_turn(call, fds, Interest::Reply, deadline)?;
        if let Err(error) = self.wait(id, name, Interest::Reply, deadline) {
            if is_execution && matches!(error.kind(), ErrorKind::TimedOut { .. }) {
                self.tell(Call::Cancel { id });
            }
            self.abandon(id);
            return Err(error);
        }
        let entry = self.lock().remove(id).ok_or_else(|| self.ended_error(name))?;
        match entry.into_reply() {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(failure)) => Err(self.status(name, failure, Vec::new())),
            None => Err(self.ended_error(name)),
        }
    }

    /// Makes a call whose reply nobody waits for, without waiting for room in the socket either; says whether
    /// it was sent.
    pub(crate) fn tell(&self, call: Call) -> bool {
        let is_sent = self.stamp.is_current()
            && self
                .begin(call, &[], Interest::None, Deadline::from_raw(0))
                .is_ok();
        if is_sent {
            self.attend_unattended();
        }
        is_sent
    }

    /// Gives up an object of the worker. Never waits: what the socket has no room for is said before the next
    /// call.
    pub(crate) fn release(&self, object: Object) {
        let call = Call::Release { object };
        if !self.tell(call.clone()) && self.can_be_told() {
            self.unsaid().push(call);
        }
    }

    /// Asks the worker to end the execution of this sequence early. Never waits either.
    pub(crate) fn cancel_burst(&self, burst: BurstHandle, sequence: u32) {
        let call = Call::CancelBurst { burst, sequence };
        if !self.tell(call.clone()) && self.can_be_told() {
            let mut unsaid = self.unsaid();
            // It may be asked for as often as the program likes.
            if !unsaid.contains(&call) {
                unsaid.push(call);
            }
        }
    }

    /// Whether the worker may be told later what it could not be told now.
    fn can_be_told(&self) -> bool {
        self.stamp.is_current() && self.ended_with().is_none()
    }

    pub(super) fn unsaid(&self) -> MutexGuard<'_, Vec<Call>> {
        // The list is whole between any two statements of this module.
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the calls for which there was no room. What goes wrong is for the call that follows to run into.
    fn catch_up(&self, deadline: Deadline) {
        loop {
            let Some(call) = self.unsaid().pop() else {
                return;
            };
            if self.begin(call.clone(), &[], Interest::None, deadline).is_err() {
                return self.unsaid().push(call);
            }
            // A worker whose answers nobody reads may stop reading, too.
            self.attend_unattended();
        }
    }

    /// Sends a call behind what was to be said before. A worker that does not read is not waited for as
    /// long as one that works.
    pub(super) fn begin_in_turn(
        &self,
        call: Call,
        fds: &[BorrowedFd<'_>],
        interest: Interest,
        deadline: Deadline,
    ) -> Result<u64> {
        let deadline = deadline.earlier(self.timeouts.call_deadline());
        self.catch_up(deadline);
        self.begin(call, fds, interest, deadline)
    }

    /// Sends a call and enters it among those to be answered.
    pub(super) fn begin(
        &self,
        call: Call,
        fds: &[BorrowedFd<'_>],
        interest: Interest,
        deadline: Deadline,
    ) -> Result<u64> {
        self.check_process()?;
        let name = call.name();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.lock()
            .add(id, interest)
            .map_err(|()| self.ended_error(name))?;
        let envelope = Envelope { id, call };
        match wire::send(&self.socket, self.version, &envelope, fds, deadline) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.lock().remove(id);
                // Who wants no answer does not wait for the reason either: it may be the watcher itself.
                if error.is_closed() && interest != Interest::None {
                    Err(self.wait_for_end(name))
                } else {
                    Err(Error::channel(name, self.worker)(error))
                }
            }
        }
    }

    /// The error for a status of the HAL from the driver.
    pub(crate) fn status(
        &self,
        call: &'static str,
        failure: Failure,
        output_shapes: Vec<OutputShape>,
    ) -> Error {
        ErrorKind::Status {
            call,
            device: Arc::clone(&self.name),
            process: self.worker,
            failure,
            output_shapes,
        }
        .into()
    }

    /// The error for an answer that does not belong to the call.
    pub(crate) fn misplaced(&self, call: &'static str, answer: &dyn std::fmt::Debug) -> Error {
        let mut answer = format!("{answer:?}");
        answer.truncate(answer.floor_char_boundary(200));
        ErrorKind::Protocol {
            process: self.worker,
            message: format!("it answered {call} with {answer}"),
        }
        .into()
    }

    /// Has `listener` told when the connection ends; at once if it has.
    pub(crate) fn on_end(&self, listener: Weak<dyn EndListener>) {
        let mut calls = self.lock();
        calls.listeners.retain(|known| known.strong_count() > 0);
        calls.listeners.push(Weak::clone(&listener));
        let has_ended = calls.has_ended;
        drop(calls);
        if has_ended && let Some(listener) = listener.upgrade() {
            ending::fail(listener.connection_ended().into_iter());
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Calls> {
        // A panic elsewhere leaves the table whole: it is changed by single steps.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_watcher(&self) {
        eventfd::wake(&self.wake);
    }
}
