//! A burst: its ring, and the requests that come over it.

use std::sync::Arc;

use nnhal::burst::{
    self, Fencing, MAX_REGISTERED, RequestBody, RequestPacket, decode_request, encode_failure, encode_success,
};
use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::fmq::{ChannelEnd, Consumer, Packet, ReceiveError, SendError, WaitSettings, Waker};
use nnhal_hal::{ErrorStatus, Failure, Priority, Timing};
use nnhal_os::time::Stopwatch;

use super::cancel::Canceller;
use super::compiled::CompiledRequest;
use super::fences::{End, Fences};
use super::polling::{Batch, ShortTasks};
use super::runner::{Runner, fail};
use crate::trace;
use crate::usage::Quotas;
use crate::worker::buffer::Buffers;
use crate::worker::idle::IdleRelease;
use crate::worker::memory::Memories;
use crate::worker::prepared::Prepared;

/// What a burst has of the client: the model that it executes, and what its requests may name.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) idle_release: Arc<IdleRelease>,
}

/// What bursts have in common that one thread may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) priority: Priority,
    pub(super) wait: WaitSettings,
}

/// What the thread of a burst owns, or has lent to another.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) end: ChannelEnd,
    kind: Kind,
    /// By which others call its thread while that is a shared poller.
    waker: Arc<Waker>,
    pub(super) packet: Packet,
    reply: Vec<u8>,
    body: RequestBody,
    /// The last general request. One with the same body is not compiled again: that would add a third to a
    /// round trip of `burst_general`.
    general: CompiledRequest,
    /// Of which generation of `body` that is; 0 if it is of no use.
    general_of: u64,
    /// By number.
    registered: Vec<Option<Box<CompiledRequest>>>,
    pub(super) runner: Runner,
    tasks: ShortTasks,
    pub(super) state: State,
    /// Whether the client was asleep when a result of the last batch came.
    client_slept: bool,
    pub(super) idle_release: Arc<IdleRelease>,
}

/// How the thread that serves a burst goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for the next request.
    Served,
    /// Whether tasks are short has changed, or there is a slot for others again.
    Changed,
    Ended,
}

impl Server {
    pub(super) fn new(
        objects: Objects,
        end: ChannelEnd,
        wait: WaitSettings,
        quotas: &Quotas,
    ) -> Result<Server, Failure> {
        let Objects {
            prepared,
            memories,
            buffers,
            idle_release,
        } = objects;
        let kind = Kind {
            priority: prepared.priority(),
            wait,
        };
        let packet = end.consumer.new_packet();
        let waker = Arc::new(end.consumer.new_waker());
        let reply = Vec::with_capacity(end.producer.max_packet_bytes().min(4096));
        Ok(Server {
            end,
            kind,
            waker,
            packet,
            reply,
            body: RequestBody::default(),
            general: CompiledRequest::default(),
            general_of: 0,
            registered: Vec::new(),
            runner: Runner::new(prepared, memories, buffers, quotas)?,
            tasks: ShortTasks::default(),
            state: State::Served,
            client_slept: false,
            idle_release,
        })
    }

    /// Takes memory for the first execution, so that nobody waits for it but the first request.
    pub(super) fn reserve_memory(&mut self) {
        if !self.end.consumer.is_closed() {
            self.runner.context.reserve_memory();
        }
    }

    /// What bursts must have in common with this one to be served by the same thread.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    pub(super) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Whether others hardly wait behind its tasks, as far as is known.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.tasks.are_short() && self.runner.is_steady
    }

    /// Whether its ring has ended and holds no more packets.
    pub(super) fn has_no_more(&mut self) -> bool {
        self.end.consumer.is_closed() && !self.end.consumer.has_packet()
    }

    /// By which other threads cancel its requests.
    pub(super) fn canceller(&self) -> &Arc<Canceller> {
        self.runner.canceller()
    }

    /// By which other threads get fences of its requests.
    pub(super) fn fences(&self) -> &Arc<Fences> {
        self.runner.fences()
    }

    pub(super) fn consumer(&self) -> &Consumer {
        &self.end.consumer
    }

    pub(super) fn consumer_mut(&mut self) -> &mut Consumer {
        &mut self.end.consumer
    }

    /// Serves what has come for this burst, which is lent to another thread; whether it may stay that.
    pub(super) fn serve_ready(&mut self) -> bool {
        self.state = State::Served;
        match self.end.consumer.try_receive(&mut self.packet) {
            Ok(false) => {}
            Ok(true) => self.serve_received(),
            Err(error) => self.end_for(&error, error == ReceiveError::Closed),
        }
        self.state == State::Served
    }

    /// Ends the burst; an end that the client has not wished for is worth a word.
    pub(super) fn end_for(&mut self, error: &dyn std::error::Error, is_wanted: bool) {
        if !is_wanted {
            tracing::warn!(target: tags::DRIVER, %error, "a burst ends");
            self.end.closer.close();
        }
        self.state = State::Ended;
    }

    /// Carries out what was received, and what is behind it.
    pub(super) fn serve_received(&mut self) {
        let was_short = self.is_short();
        if let Err(error) = self.serve_batch() {
            return self.end_for(&error, error == SendError::Closed);
        }
        if self.is_short() != was_short {
            self.state = State::Changed;
        }
    }

    /// Carries out the request that was received, and those that are behind it already.
    ///
    /// Between them the slot is kept and nobody is looked for who falls asleep just then: each of that takes
    /// locked instructions, which wait until the other processor has given up the lines of the results. For a
    /// client that was found asleep lately it is done all the same, since it will fall asleep behind each
    /// result. The slot, unless others want it, and the memories are kept longer, for the next batch, until
    /// that does not come at once.
    fn serve_batch(&mut self) -> Result<(), SendError> {
        let mut batch = self.tasks.begin();
        let mut since = batch.is_timed().then(Stopwatch::start);
        self.runner.forget_freed();
        let outcome = self.serve_queued(&mut batch, &mut since);
        self.runner.context.slot.rest();
        if let Some(since) = since {
            self.tasks.end(&batch, since.elapsed());
        }
        outcome
    }

    fn serve_queued(&mut self, batch: &mut Batch, since: &mut Option<Stopwatch>) -> Result<(), SendError> {
        let client_slept = std::mem::take(&mut self.client_slept);
        loop {
            let serves = trace::span(SpanKind::BurstRequest, 0, 0);
            self.answer();
            drop(serves);
            self.push()?;
            // What else the ring says is for the next wait to find.
            if !batch.may_go_on()
                || self.runner.keeps_others_waiting()
                || self.end.consumer.try_receive(&mut self.packet) != Ok(true)
            {
                break;
            }
            self.client_slept |= if client_slept {
                self.end.producer.notify()
            } else {
                self.end.producer.notify_sleeper()
            };
            self.end.producer.prefetch();
            if batch.go_on() {
                *since = Some(Stopwatch::start());
            }
        }
        self.client_slept |= self.end.producer.notify();
        Ok(())
    }

    /// Gives back what is kept between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.runner.rest();
    }

    /// Sends the reply without looking for a sleeper; one that the whole ring cannot hold becomes a failure
    /// that says so.
    fn push(&mut self) -> Result<(), SendError> {
        match self.end.producer.push(&self.reply) {
            Err(SendError::TooLong { length, capacity }) => {
                let sequence = sequence_of(self.packet.bytes());
                // Short enough for a ring of one cell.
                let detail = format!("{length} bytes, the result queue holds {capacity}");
                encode_failure(
                    &mut self.reply,
                    sequence,
                    ErrorStatus::GeneralFailure,
                    &[],
                    &detail,
                );
                self.end.producer.push(&self.reply)
            }
            other => other,
        }
    }

    /// Carries the received packet out and leaves the result in `reply`.
    fn answer(&mut self) {
        let request = match decode_request(self.packet.bytes(), &mut self.body) {
            Ok(request) => request,
            Err(error) => {
                self.runner.rest();
                let sequence = sequence_of(self.packet.bytes());
                let status = ErrorStatus::GeneralFailure;
                return encode_failure(&mut self.reply, sequence, status, &[], &error.to_string());
            }
        };
        match request {
            RequestPacket::Fire {
                header,
                layout,
                inline,
            } => match self.registered.get_mut(usize::from(layout)) {
                Some(Some(compiled)) => {
                    let ready = self.runner.hold(compiled);
                    let reply = &mut self.reply;
                    if header.fencing == Fencing::No {
                        let _ = self.runner.run(ready, compiled, (&header, inline), reply);
                    } else {
                        self.runner.run_fenced(ready, compiled, (&header, inline), reply);
                    }
                }
                _ => {
                    let failure = not_registered(layout);
                    fail(&mut self.reply, header.sequence, &failure);
                    if header.fencing != Fencing::No {
                        self.runner
                            .end_fenced(header.sequence, End::Failed(failure.into()));
                    }
                }
            },
            RequestPacket::General { header, inline } => {
                let compiled = &mut self.general;
                let generation = self.body.generation();
                let is_ready = self.general_of == generation && self.runner.hold(compiled).is_ok();
                let ready = if is_ready {
                    Ok(())
                } else {
                    self.runner.compile(compiled, &mut self.body)
                };
                self.general_of = if ready.is_ok() { generation } else { 0 };
                let reply = &mut self.reply;
                let _ = self.runner.run(ready, compiled, (&header, inline), reply);
            }
            RequestPacket::Register { header, layout } => {
                // Only what is short keeps others from the slot.
                self.runner.rest();
                let outcome = self.register(layout, header.fencing);
                finish(&mut self.reply, header.sequence, outcome);
            }
            RequestPacket::Unregister { header, layout } => {
                self.runner.rest();
                let removed = self
                    .registered
                    .get_mut(usize::from(layout))
                    .and_then(Option::take);
                let outcome = removed.map(drop).ok_or_else(|| not_registered(layout));
                finish(&mut self.reply, header.sequence, outcome);
            }
        }
    }

    fn register(&mut self, number: u16, fencing: Fencing) -> Result<(), Failure> {
        if number >= MAX_REGISTERED {
            return Err(Failure::invalid_argument(format!(
                "{number} is no number for a registered request; 0 to {} are",
                MAX_REGISTERED - 1
            )));
        }
        let mut compiled = Box::<CompiledRequest>::default();
        let outcome = self.runner.compile(&mut compiled, &mut self.body);
        outcome.map_err(|failure| *failure)?;
        if fencing != Fencing::No {
            self.runner.check_fenced(&mut compiled)?;
        }
        let at = usize::from(number);
        if self.registered.len() <= at {
            self.registered.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.registered.get_mut(at) {
            *slot = Some(compiled);
        }
        Ok(())
    }
}

fn finish(reply: &mut Vec<u8>, sequence: u32, outcome: Result<(), Failure>) {
    match outcome {
        Ok(()) => encode_success(reply, sequence, Timing::NONE, None, &[]),
        Err(failure) => fail(reply, sequence, &failure),
    }
}

fn not_registered(layout: u16) -> Failure {
    Failure::invalid_argument(format!("no request is registered under {layout}"))
}

/// The sequence that an undecodable packet claims, so that the client can tell what failed.
fn sequence_of(bytes: &[u8]) -> u32 {
    burst::claimed_sequence(bytes)
}
