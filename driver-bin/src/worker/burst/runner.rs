//! What runs the requests of a burst.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst::{RequestBody, RequestHeader, encode_failure, encode_success};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OutputShape, Timing};
use nnhal_os::time::{Stopwatch, TimePoint};

use super::layout::Layout;
use super::memories::{HeldMemories, KnownMemories};
use crate::trace;
use crate::worker::buffer::{Buffers, RequestBuffers};
use crate::worker::limits::RunLimits;
use crate::worker::memory::Memories;
use crate::worker::prepared::Prepared;
use crate::worker::run::{Context, PlainRun, Run};

/// What runs requests.
#[derive(Debug)]
pub(super) struct Runner {
    prepared: Arc<Prepared>,
    memories: Arc<Memories>,
    device_buffers: Arc<Buffers>,
    pub(super) context: Context,
    /// Whether the context may have memory to give back.
    holds_memory: bool,
    /// Since when it was not used, if that was noticed.
    unused_since: Option<TimePoint>,
    pub(super) held: HeldMemories,
    buffers: RequestBuffers,
    /// Whether all executions do the same work and wait for nobody.
    pub(super) is_steady: bool,
    /// Whether requests of other bursts may have been carried out since one arrived.
    pub(super) shares_thread: bool,
}

impl Runner {
    pub(super) fn new(
        prepared: Arc<Prepared>,
        memories: Arc<Memories>,
        device_buffers: Arc<Buffers>,
    ) -> Result<Runner, Failure> {
        Ok(Runner {
            is_steady: prepared.is_steady(),
            shares_thread: false,
            context: prepared.new_context()?,
            prepared,
            memories,
            device_buffers,
            holds_memory: true,
            unused_since: None,
            held: HeldMemories::default(),
            buffers: RequestBuffers::default(),
        })
    }

    /// Checks a decoded request into a layout.
    pub(super) fn fill(
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
    pub(super) fn can_run(&mut self, layout: &Layout) -> bool {
        self.held.hold(&layout.memories).is_ok() && layout.buffers.are_alive()
    }

    /// Runs a request and leaves its result in `reply`.
    #[inline]
    pub(super) fn run(
        &mut self,
        layout: &mut Layout,
        header: &RequestHeader,
        inline: &[u8],
        reply: &mut Vec<u8>,
    ) {
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

    /// Gives back what is kept between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.context.leave_slot();
        self.held.release();
    }

    /// Leaves its slot to another for the time being, if it has kept one.
    pub(super) fn pass_slot(&mut self, to: &mut Runner) {
        self.context.pass_slot(&mut to.context);
    }

    /// Gives back the memory of the execution if it was not used for that long, and the model is not to keep
    /// it; whether there is some that may be given back later.
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

/// Leaves a failure that came without shapes in `reply`.
pub(super) fn fail(reply: &mut Vec<u8>, sequence: u32, failure: &Failure) {
    encode_failure(reply, sequence, failure.status, &[], &failure.to_string());
}
