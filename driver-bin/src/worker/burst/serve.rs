//! The thread of a burst.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst::{
    self, MAX_REGISTERED, RequestBody, RequestHeader, RequestPacket, decode_request, encode_failure,
    encode_success,
};
use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::fmq::{Came, ChannelEnd, Consumer, Packet, ReceiveError, SendError, WaitSettings};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OutputShape, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch, TimePoint};

use super::brevity::Brevity;
use super::guests::Guests;
use super::layout::Layout;
use super::memories::{HeldMemories, KnownMemories};
use super::series::{Series, SeriesPolicy};
use super::sharing::{Kind, Sharing};
use crate::trace;
use crate::worker::buffer::{Buffers, RequestBuffers};
use crate::worker::idle::IdleRelease;
use crate::worker::limits::RunLimits;
use crate::worker::memory::Memories;
use crate::worker::prepared::Prepared;
use crate::worker::run::{Context, PlainRun, Run};

/// What a burst has of the client: the model that it executes, and what its requests may name.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) idle_release: Arc<IdleRelease>,
}

/// What the thread of a burst owns, or has lent to another.
#[derive(Debug)]
pub(super) struct Server {
    end: ChannelEnd,
    kind: Kind,
    packet: Packet,
    reply: Vec<u8>,
    body: RequestBody,
    /// Of the general request that is run.
    general: Layout,
    /// Whether that is of what was decoded last.
    general_is_last: bool,
    registered: Vec<Option<Box<Layout>>>,
    known: KnownMemories,
    runner: Runner,
    series: SeriesPolicy,
    brevity: Brevity,
    state: State,
    /// Whether the client was asleep when a result of the last series came.
    client_slept: bool,
    idle_release: Arc<IdleRelease>,
}

/// How the thread that serves a burst goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for the next request.
    Served,
    /// Whether executions are brief has changed.
    Changed,
    /// No request came at once, and another thread may wait for the next.
    Waits,
    Ended,
}

/// When a thread leaves the waiting to another if no request comes at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leave<'a> {
    Never,
    AtOnce,
    /// Once a place may have become free after so many openings.
    AfterOpening(&'a Sharing, u32),
}

/// What runs requests.
#[derive(Debug)]
pub(super) struct Runner {
    prepared: Arc<Prepared>,
    memories: Arc<Memories>,
    device_buffers: Arc<Buffers>,
    context: Context,
    /// Whether the context may have memory to give back.
    holds_memory: bool,
    /// Since when it was not used, if that was noticed.
    unused_since: Option<TimePoint>,
    held: HeldMemories,
    buffers: RequestBuffers,
    /// Whether all executions do the same work and wait for nobody.
    is_steady: bool,
    /// Whether requests of other bursts may have been carried out since one arrived.
    shares_thread: bool,
}

impl Leave<'_> {
    #[inline]
    fn is_due(self) -> bool {
        match self {
            Leave::Never => false,
            Leave::AtOnce => true,
            Leave::AfterOpening(sharing, openings) => sharing.openings() != openings,
        }
    }
}

impl Server {
    pub(super) fn new(objects: Objects, end: ChannelEnd, wait: WaitSettings) -> Result<Server, Failure> {
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
        let context = prepared.new_context()?;
        let packet = end.consumer.new_packet();
        let reply = Vec::with_capacity(end.producer.max_packet_bytes().min(4096));
        Ok(Server {
            end,
            kind,
            packet,
            reply,
            body: RequestBody::default(),
            general: Layout::default(),
            general_is_last: false,
            registered: Vec::new(),
            known: KnownMemories::default(),
            runner: Runner {
                is_steady: prepared.is_steady(),
                shares_thread: false,
                prepared,
                memories,
                device_buffers: buffers,
                context,
                holds_memory: true,
                unused_since: None,
                held: HeldMemories::default(),
                buffers: RequestBuffers::default(),
            },
            series: SeriesPolicy::default(),
            brevity: Brevity::default(),
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

    /// Whether others hardly wait behind its executions, as far as is known.
    #[inline]
    pub(super) fn is_brief(&self) -> bool {
        self.brevity.is_brief() && self.runner.is_steady
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether it was left because no request came at once.
    pub(super) fn may_be_lent(&self) -> bool {
        self.state == State::Waits
    }

    /// Whether its ring has ended and holds no more packets.
    pub(super) fn has_no_more(&mut self) -> bool {
        self.end.consumer.is_closed() && !self.end.consumer.has_packet()
    }

    pub(super) fn consumer(&self) -> &Consumer {
        &self.end.consumer
    }

    pub(super) fn consumer_mut(&mut self) -> &mut Consumer {
        &mut self.end.consumer
    }

    /// Serves requests of this burst and of the guests of its thread until it ends, until whether it [`Server::is_brief`]
    /// changes, or until it waits and the thread is to leave that to another.
    pub(super) fn serve(&mut self, guests: &mut Guests<'_>, leave: Leave<'_>) {
        self.state = State::Served;
        while self.state == State::Served {
            match self.receive(guests, leave) {
                Ok(Came::Here) => {
                    self.runner.shares_thread = !guests.is_empty();
                    self.serve_received();
                    guests.serve_between(&mut self.runner);
                }
                Ok(Came::Elsewhere) => {
                    guests.serve(&mut self.runner);
                    if guests.has_gone_round() && self.has_no_more() {
                        self.state = State::Ended;
                    }
                }
                Err(ReceiveError::TimedOut) if leave.is_due() => self.state = State::Waits,
                // It was time to see who has not used its memory.
                Err(ReceiveError::TimedOut) => {}
                Err(ReceiveError::System(error)) if !guests.is_empty() => {
                    tracing::warn!(target: tags::DRIVER, %error, "bursts keep their threads");
                    guests.give_sharing_up();
                    self.state = State::Changed;
                }
                Err(error) => self.end_for(&error, error == ReceiveError::Closed),
            }
        }
    }

    /// Serves what has come for this burst, which is the guest of another thread; whether it may stay that.
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
    fn end_for(&mut self, error: &dyn std::error::Error, is_wanted: bool) {
        if !is_wanted {
            tracing::warn!(target: tags::DRIVER, %error, "a burst ends");
            self.end.closer.close();
        }
        self.state = State::Ended;
    }

    fn serve_received(&mut self) {
        let was_brief = self.is_brief();
        let looked_at = self.brevity.begin();
        if let Err(error) = self.serve_series() {
            return self.end_for(&error, error == SendError::Closed);
        }
        if let Some(since) = looked_at {
            self.brevity.end(since.elapsed());
        }
        if self.is_brief() != was_brief {
            self.state = State::Changed;
        }
    }

    /// Carries out the request that was received, and those that are behind it already.
    ///
    /// Between them the slot is kept and nobody is looked for who falls asleep just then: each of that takes locked
    /// instructions, which wait until the other processor has given up the lines of the results. For a client that was found
    /// asleep lately it is done all the same, since it will fall asleep behind each result. The slot, unless others want it,
    /// and the memories are kept longer, for the next series, until that does not come at once.
    fn serve_series(&mut self) -> Result<(), SendError> {
        let mut series = self.series.start();
        self.runner.held.forget_freed();
        let outcome = self.serve_queued(&mut series);
        self.runner.context.rest_in_slot();
        self.series.end(&series);
        outcome
    }

    fn serve_queued(&mut self, series: &mut Series) -> Result<(), SendError> {
        let client_slept = std::mem::take(&mut self.client_slept);
        loop {
            let serves = trace::span(SpanKind::BurstRequest, 0, 0);
            self.answer();
            drop(serves);
            self.push()?;
            // What else the ring says is for the next wait to find.
            if !series.may_go_on() || self.end.consumer.try_receive(&mut self.packet) != Ok(true) {
                break;
            }
            self.client_slept |= if client_slept {
                self.end.producer.notify()
            } else {
                self.end.producer.notify_sleeper()
            };
            self.end.producer.prefetch();
            series.go_on();
        }
        self.client_slept |= self.end.producer.notify();
        Ok(())
    }

    /// Waits for the next packet, or for what comes for guests, and has all let go of slots and memories if neither comes at
    /// once. Bursts that have waited for long give back the memory of their executions, unless their models are to keep it.
    #[inline]
    fn receive(&mut self, guests: &mut Guests<'_>, leave: Leave<'_>) -> Result<Came, ReceiveError> {
        let (runner, idle_release) = (&mut self.runner, &self.idle_release);
        self.end.consumer.receive_in(guests, &mut self.packet, |guests| {
            runner.rest();
            guests.rest();
            if leave.is_due() {
                return None;
            }
            Some(match idle_release.get() {
                Some(patience) => runner.give_memory_up(guests, patience),
                None => Deadline::NONE,
            })
        })
    }

    /// Gives back what is kept between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.runner.rest();
    }

    /// What runs its requests.
    pub(super) fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Sends the reply without looking for a sleeper; one that the whole ring cannot hold becomes a failure that says so.
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
                self.general_is_last = false;
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
                Some(Some(layout)) => self.runner.run(layout, &header, inline, &mut self.reply),
                _ => fail(&mut self.reply, header.sequence, &not_registered(layout)),
            },
            RequestPacket::General {
                header,
                inline,
                is_as_before,
            } => {
                let is_filled = is_as_before && self.general_is_last && self.runner.can_run(&self.general);
                if is_filled {
                    self.general.comes_again();
                } else {
                    self.runner.rest();
                    let filled = self
                        .runner
                        .fill(&mut self.general, &mut self.body, &mut self.known);
                    self.general_is_last = filled.is_ok();
                    if let Err(failure) = filled {
                        return fail(&mut self.reply, header.sequence, &failure);
                    }
                }
                self.runner
                    .run(&mut self.general, &header, inline, &mut self.reply);
            }
            RequestPacket::Register { header, layout } => {
                // Only what is short keeps others from the slot.
                self.runner.rest();
                let outcome = self.register(layout);
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

    fn register(&mut self, number: u16) -> Result<(), Failure> {
        self.general_is_last = false;
        if number >= MAX_REGISTERED {
            return Err(Failure::invalid_argument(format!(
                "{number} is no number for a registered request; 0 to {} are",
                MAX_REGISTERED - 1
            )));
        }
        let mut layout = Box::new(Layout::default());
        self.runner.fill(&mut layout, &mut self.body, &mut self.known)?;
        layout.comes_again();
        let at = usize::from(number);
        if self.registered.len() <= at {
            self.registered.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.registered.get_mut(at) {
            *slot = Some(layout);
        }
        Ok(())
    }
}

impl Runner {
    /// Checks a decoded request into a layout.
    fn fill(
        &mut self,
        layout: &mut Layout,
        body: &mut RequestBody,
        known: &mut KnownMemories,
    ) -> Result<(), Failure> {
        layout.fill(body, self.prepared.model(), known, &self.memories)?;
        // What a device still writes is waited for.
        self.is_steady &= !layout.has_dma_buf;
        layout.buffers = self
            .device_buffers
            .of_request(self.prepared.model(), &layout.request)?
            .downgrade();
        Ok(())
    }

    /// Whether all that a layout names is there still.
    #[inline(never)]
    fn can_run(&mut self, layout: &Layout) -> bool {
        self.held.hold(&layout.memories).is_ok() && layout.buffers.are_alive()
    }

    /// Runs a request and leaves its result in `reply`.
    fn run(&mut self, layout: &mut Layout, header: &RequestHeader, inline: &[u8], reply: &mut Vec<u8>) {
        (self.holds_memory, self.unused_since) = (true, None);
        match self.run_plain(layout, header, inline) {
            Ok(PlainRun::Done) => {
                let outputs = layout.inline.outputs.get_mut();
                encode_success(reply, header.sequence, Timing::NONE, None, outputs);
            }
            Ok(come) => self.run_any(layout, (header, inline), come == PlainRun::Computed, reply),
            Err(failure) => self.fail(header.sequence, &failure, reply),
        }
    }

    /// Runs a request as a plain one, as far as it is.
    #[inline(always)]
    fn run_plain(
        &mut self,
        layout: &mut Layout,
        header: &RequestHeader,
        inline: &[u8],
    ) -> Result<PlainRun, Box<Failure>> {
        let is_quiet =
            header.measure == MeasureTiming::No && header.deadline_ns.is_none() && trace::tracer().is_none();
        let is_whole = inline.len() >= layout.inline.inputs.len();
        if !is_quiet || !is_whole || !layout.plain.is_plain() {
            return Ok(PlainRun::NotBegun);
        }
        self.context.run_plain(
            &layout.plain,
            &self.held.still(&layout.memories),
            (inline, layout.inline.outputs.get_mut()),
        )
    }

    /// Runs any request, or writes the outputs of one that is computed.
    #[inline(never)]
    fn run_any(
        &mut self,
        layout: &mut Layout,
        (header, inline): (&RequestHeader, &[u8]),
        is_computed: bool,
        reply: &mut Vec<u8>,
    ) {
        let outcome = self.execute(layout, (header, inline), is_computed);
        if outcome.is_err() {
            layout.buffers.invalidate_outputs();
        }
        self.buffers.clear();
        match outcome {
            Ok(timing) => self.succeed(layout, header.sequence, timing, reply),
            Err(failure) => self.fail(header.sequence, &failure, reply),
        }
    }

    #[inline]
    fn execute(
        &mut self,
        layout: &mut Layout,
        (header, inline): (&RequestHeader, &[u8]),
        is_computed: bool,
    ) -> Result<Timing, Failure> {
        let measure_since = (header.measure == MeasureTiming::Yes).then(Stopwatch::start);
        let limits = RunLimits::from_hal(header.deadline_ns.map(NonZeroU64::get), None);
        layout.inline.receive(inline)?;
        self.check_not_past(&limits)?;
        self.held.hold(&layout.memories)?;
        layout.buffers.upgrade_into(&mut self.buffers)?;
        let run = Run {
            request: &layout.request,
            pools: &self.held.of(&layout.memories),
            inline: Some(&layout.inline),
            buffers: &self.buffers,
            limits,
            measure_since,
            tells_shapes: !layout.has_fixed_shapes,
            keeps_slot: true,
        };
        if is_computed {
            return self.context.finish(&run);
        }
        self.context.run(&run)
    }

    /// What is said of a request that was too late when it was taken up: it may be the fault of other bursts.
    fn check_not_past(&self, limits: &RunLimits) -> Result<(), Failure> {
        match limits.check_not_past() {
            Err(_) if self.shares_thread => Err(Failure::new(
                ErrorStatus::MissedDeadlineTransient,
                "the deadline had passed when the request was taken up; other bursts of the client may have been first",
            )),
            outcome => outcome,
        }
    }

    /// The burst is a guest from now on, or is one no more.
    pub(super) fn set_shares_thread(&mut self, shares_thread: bool) {
        self.shares_thread = shares_thread;
    }

    /// Gives back what is kept between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.context.leave_slot();
        self.held.release();
    }

    /// Leaves its slot to another for the time being, if it has kept one.
    pub(super) fn pass_slot(&mut self, to: &mut Runner) {
        self.context.pass_slot(&mut to.context);
    }

    /// Has those that did not use their memory for that long give it back; returns when to look again.
    fn give_memory_up(&mut self, guests: &mut Guests<'_>, patience: Duration) -> Deadline {
        let now = MonotonicClock.now();
        let until = guests.release_unused_memory(now, patience);
        if self.release_unused_memory(now, patience) {
            Deadline::after(now, patience).earlier(until)
        } else {
            until
        }
    }

    /// Gives back the memory of the execution if it was not used for that long, and the model is not to keep it; whether there
    /// is some that may be given back later.
    pub(super) fn release_unused_memory(&mut self, now: TimePoint, patience: Duration) -> bool {
        if !self.holds_memory || self.prepared.keeps_memory() {
            return false;
        }
        let since = *self.unused_since.get_or_insert(now);
        if now.saturating_since(since) < patience {
            return true;
        }
        self.context.release_memory();
        self.holds_memory = false;
        nnhal_os::heap::give_back_free();
        false
    }

    fn succeed(&self, layout: &Layout, sequence: u32, timing: Timing, reply: &mut Vec<u8>) {
        let outputs = layout.inline.outputs.borrow();
        if layout.has_fixed_shapes {
            return encode_success(reply, sequence, timing, None, &outputs);
        }
        let found = self.context.outputs();
        let mut shapes = found
            .iter()
            .map(|output| (output.shape.dims(), output.is_sufficient));
        encode_success(reply, sequence, timing, Some(&mut shapes), &outputs);
    }

    fn fail(&self, sequence: u32, failure: &Failure, reply: &mut Vec<u8>) {
        if failure.status != ErrorStatus::OutputInsufficientSize {
            return fail(reply, sequence, failure);
        }
        let shapes: Vec<OutputShape> = self
            .context
            .outputs()
            .iter()
            .map(|output| OutputShape {
                dimensions: output.shape.dims().to_vec(),
                is_sufficient: output.is_sufficient,
            })
            .collect();
        encode_failure(reply, sequence, failure.status, &shapes, &failure.to_string());
    }
}

fn fail(reply: &mut Vec<u8>, sequence: u32, failure: &Failure) {
    encode_failure(reply, sequence, failure.status, &[], &failure.to_string());
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
