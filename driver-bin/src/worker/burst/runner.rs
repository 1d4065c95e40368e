//! What runs the requests of a burst.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst::{RequestBody, RequestHeader, encode_failure, encode_success};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OutputShape, Timing};
use nnhal_os::time::{Stopwatch, TimePoint};

use super::compiled::CompiledRequest;
use super::memories::NamedMemories;
use crate::worker::buffer::{Buffers, RequestBuffers};
use crate::worker::limits::RunLimits;
use crate::worker::memory::Memories;
use crate::worker::prepared::Prepared;
use crate::worker::run::{Context, Run};

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
    pub(super) named: NamedMemories,
    /// The device buffers of the request that is run.
    buffers: RequestBuffers,
    /// The outputs that travel in the result.
    outputs: Vec<u8>,
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
            named: NamedMemories::default(),
            buffers: RequestBuffers::default(),
            outputs: Vec::new(),
        })
    }

    /// Compiles a decoded request, ready to be run: its memories and device buffers are held.
    pub(super) fn compile(
        &mut self,
        compiled: &mut CompiledRequest,
        body: &mut RequestBody,
    ) -> Result<(), Box<Failure>> {
        self.buffers.clear();
        let model = self.prepared.model();
        compiled.fill(body, model, (&mut self.named, &self.memories))?;
        // What a device still writes is waited for.
        self.is_steady &= !compiled.has_dma_buf;
        self.buffers = self.device_buffers.of_request(model, &compiled.request)?;
        Ok(())
    }

    /// Has a request that was just compiled keep what it needs to be run later.
    pub(super) fn keep(&mut self, compiled: &mut CompiledRequest) {
        compiled.buffers = self.buffers.downgrade();
        self.buffers.clear();
    }

    /// Makes a request that was compiled before ready to be run: all that it names must be there still.
    #[inline]
    pub(super) fn hold(&mut self, compiled: &mut CompiledRequest) -> Result<(), Box<Failure>> {
        self.buffers.clear();
        self.named.hold(&mut compiled.memories, &self.memories)?;
        Ok(compiled.buffers.upgrade_into(&mut self.buffers)?)
    }

    /// Runs a compiled request, if it is `ready`, and leaves its result in `reply`. `inline` are the bytes of
    /// inputs that came with it.
    #[inline]
    pub(super) fn run(
        &mut self,
        ready: Result<(), Box<Failure>>,
        compiled: &CompiledRequest,
        (header, inline): (&RequestHeader, &[u8]),
        reply: &mut Vec<u8>,
    ) {
        (self.holds_memory, self.unused_since) = (true, None);
        let outcome = ready.and_then(|()| self.run_ready(compiled, (header, inline)));
        match outcome {
            Ok(timing) if compiled.has_fixed_shapes => {
                encode_success(reply, header.sequence, timing, None, &self.outputs);
            }
            Ok(timing) => self.tell_shapes(header.sequence, timing, reply),
            Err(failure) => {
                self.buffers.invalidate_outputs();
                compiled.buffers.invalidate_outputs();
                self.fail(header.sequence, &failure, reply);
            }
        }
        self.buffers.clear();
    }

    #[inline]
    fn run_ready(
        &mut self,
        compiled: &CompiledRequest,
        (header, inline): (&RequestHeader, &[u8]),
    ) -> Result<Timing, Box<Failure>> {
        let measure_since = (header.measure == MeasureTiming::Yes).then(Stopwatch::start);
        let limits = RunLimits::from_hal(header.deadline_ns.map(NonZeroU64::get), None);
        self.check_not_past(&limits)?;
        let mut packets = compiled.packet_pools(inline, &mut self.outputs)?;
        let run = Run {
            request: &compiled.request,
            pools: &self.named.of(&compiled.memories),
            buffers: &self.buffers,
            limits,
            measure_since,
            tells_shapes: !compiled.has_fixed_shapes,
            keeps_slot: true,
        };
        self.context.run(&run, &mut packets)
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
        self.context.slot.leave();
        self.named.release();
    }

    /// Leaves its slot to another for the time being, if it has kept one.
    pub(super) fn pass_slot(&mut self, to: &mut Runner) {
        self.context.slot.pass(&mut to.context.slot);
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

    #[inline(never)]
    fn tell_shapes(&self, sequence: u32, timing: Timing, reply: &mut Vec<u8>) {
        let found = self.context.outputs();
        let mut shapes = found
            .iter()
            .map(|output| (output.shape.dims(), output.is_sufficient));
        encode_success(reply, sequence, timing, Some(&mut shapes), &self.outputs);
    }

    #[cold]
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
