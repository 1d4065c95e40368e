//! What runs the requests of a burst.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst::{Fencing, RequestBody, RequestHeader, encode_failure, encode_success};
use nnhal::wire::MemoryHandle;
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OutputShape, Place, Timing};
use nnhal_os::time::{Stopwatch, TimePoint};

use super::cancel::Canceller;
use super::compiled::CompiledRequest;
use super::fences::{End, Ends, Fences};
use super::named::{Named, NamedObjects};
use crate::usage::Quotas;
use crate::worker::buffer::{Buffer, Buffers, check_parts, tokens};
use crate::worker::limits::RunLimits;
use crate::worker::memory::{Memories, Memory};
use crate::worker::prepared::Prepared;
use crate::worker::request_pools::{Pools, invalidate_outputs};
use crate::worker::run::{Context, Run};

/// What runs requests.
#[derive(Debug)]
pub(super) struct Runner {
    prepared: Arc<Prepared>,
    memories: Arc<Memories>,
    device_buffers: Arc<Buffers>,
    pub(super) context: Context,
    /// Of the context's work.
    canceller: Arc<Canceller>,
    /// Of requests that are fenced executions.
    ends: Ends,
    /// Whether the context may have memory to give back.
    holds_memory: bool,
    /// Since when it was not used, if that was noticed.
    unused_since: Option<TimePoint>,
    named_memories: Named<MemoryHandle, Memory>,
    /// Device buffers, by their tokens.
    named_buffers: Named<u32, Buffer>,
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
        quotas: &Quotas,
    ) -> Result<Runner, Failure> {
        let context = prepared.new_context()?;
        Ok(Runner {
            is_steady: prepared.is_steady() && !context.is_queued(),
            shares_thread: false,
            canceller: Arc::new(Canceller::new(context.ticket())),
            context,
            ends: Ends::new(quotas.clone()),
            prepared,
            memories,
            device_buffers,
            holds_memory: true,
            unused_since: None,
            named_memories: Named::default(),
            named_buffers: Named::default(),
            outputs: Vec::new(),
        })
    }

    /// By which other threads cancel requests.
    pub(super) fn canceller(&self) -> &Arc<Canceller> {
        &self.canceller
    }

    /// By which other threads get fences of requests.
    pub(super) fn fences(&self) -> &Arc<Fences> {
        self.ends.fences()
    }

    /// What a fenced execution asks of a request beyond the rest.
    pub(super) fn check_fenced(&self, compiled: &mut CompiledRequest) -> Result<(), Failure> {
        let checked = compiled.request.check_fenced(self.prepared.model());
        checked.map_err(|error| Failure::invalid_argument(error.to_string()))?;
        compiled.may_be_fenced = true;
        Ok(())
    }

    /// Compiles a decoded request, ready to be run: its memories and device buffers are held.
    pub(super) fn compile(
        &mut self,
        compiled: &mut CompiledRequest,
        body: &mut RequestBody,
    ) -> Result<(), Box<Failure>> {
        let model = self.prepared.model();
        compiled.fill(body, model, (&mut self.named_memories, &self.memories))?;
        // What a device still writes is waited for.
        self.is_steady &= !compiled.has_dma_buf;
        self.named_buffers.begin();
        for (.., token) in tokens(&compiled.request) {
            let look_up = |token| self.device_buffers.of_token(token).ok_or(());
            // What is missing is told of below, with its argument.
            let name = self.named_buffers.name(token, look_up).ok();
            compiled.names.buffers.extend(name);
        }
        let objects = self.objects(compiled);
        Ok(check_parts(model, &compiled.request, |token| {
            objects.buffer(token)
        })?)
    }

    /// Makes a request that was compiled before ready to be run: all that it names must be there still.
    #[inline]
    pub(super) fn hold(&mut self, compiled: &mut CompiledRequest) -> Result<(), Box<Failure>> {
        let memories = self
            .named_memories
            .hold(compiled.names.memories.iter_mut().flatten(), |handle| {
                self.memories.get(handle)
            });
        let buffers = self
            .named_buffers
            .hold(compiled.names.buffers.iter_mut(), |token| {
                self.device_buffers.of_token(token).ok_or(())
            });
        if memories.is_err() || buffers.is_err() {
            return Err(self.freed(compiled, memories.err(), buffers.err()));
        }
        Ok(())
    }

    /// Says what of a request's objects is there no more.
    #[cold]
    fn freed(
        &self,
        compiled: &CompiledRequest,
        memory: Option<MemoryHandle>,
        buffer: Option<u32>,
    ) -> Box<Failure> {
        invalidate_outputs(&compiled.request, &self.objects(compiled));
        let Some(handle) = memory else {
            return Failure::invalid_argument(format!(
                "device buffer {} was freed; register the request anew",
                buffer.unwrap_or(0)
            ))
            .into();
        };
        let mut names = compiled.names.memories.iter();
        let pool = names.position(|name| name.is_some_and(|name| name.id == handle));
        Failure::invalid_argument(format!(
            "memory {} of generation {} was freed; register the request anew",
            handle.0.index, handle.0.generation
        ))
        .at(Place {
            pool: pool.and_then(|pool| u32::try_from(pool).ok()),
            ..Place::default()
        })
        .into()
    }

    #[inline(always)]
    fn objects<'a>(&'a self, compiled: &'a CompiledRequest) -> NamedObjects<'a> {
        NamedObjects {
            names: &compiled.names,
            memories: &self.named_memories,
            buffers: &self.named_buffers,
        }
    }

    /// Runs a fenced execution, as [`Runner::run`] does, and tells its end to who asks for a fence.
    pub(super) fn run_fenced(
        &mut self,
        ready: Result<(), Box<Failure>>,
        compiled: &CompiledRequest,
        (header, inline): (&RequestHeader, &[u8]),
        reply: &mut Vec<u8>,
    ) {
        let may_run = match header.fencing {
            _ if !compiled.may_be_fenced => Err(not_registered_so()),
            Fencing::Behind => self.ends.expect_good(),
            Fencing::Fenced | Fencing::No => Ok(()),
        };
        let is_run = may_run.is_ok();
        if !is_run && ready.is_ok() {
            invalidate_outputs(&compiled.request, &self.objects(compiled));
        }
        let outcome = self.run(ready.and(may_run), compiled, (header, inline), reply);
        let end = match outcome {
            Ok(()) => End::Good,
            Err(_) if !is_run && compiled.may_be_fenced => End::NotRun,
            Err(failure) => End::Failed(failure),
        };
        self.end_fenced(header.sequence, end);
    }

    /// A fenced execution has ended.
    pub(super) fn end_fenced(&mut self, sequence: u32, end: End) {
        self.ends.end(sequence, end);
    }

    /// Runs a compiled request, if it is `ready`, and leaves its result in `reply`. `inline` are the bytes of
    /// inputs that came with it. The failure is returned, too.
    #[inline]
    pub(super) fn run(
        &mut self,
        ready: Result<(), Box<Failure>>,
        compiled: &CompiledRequest,
        (header, inline): (&RequestHeader, &[u8]),
        reply: &mut Vec<u8>,
    ) -> Result<(), Box<Failure>> {
        (self.holds_memory, self.unused_since) = (true, None);
        if let Err(failure) = ready {
            self.fail(header, &failure, reply);
            return Err(failure);
        }
        match self.run_ready(compiled, (header, inline)) {
            Ok(timing) if compiled.has_fixed_shapes => {
                encode_success(reply, header.sequence, timing, None, &self.outputs);
            }
            Ok(timing) => self.tell_shapes(header.sequence, timing, reply),
            Err(failure) => {
                invalidate_outputs(&compiled.request, &self.objects(compiled));
                self.fail(header, &failure, reply);
                self.replace_lost();
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Has other memory for the next request, if the device may still use what there is. Without memory that
    /// request is told so, and the one after it tries again.
    fn replace_lost(&mut self) {
        if self.context.is_lost()
            && let Ok(context) = self.prepared.new_context()
        {
            self.canceller.go_on_with(context.ticket(), self.context.ticket());
            self.context = context;
        }
    }

    #[inline]
    fn run_ready(
        &mut self,
        compiled: &CompiledRequest,
        (header, inline): (&RequestHeader, &[u8]),
    ) -> Result<Timing, Box<Failure>> {
        self.context.ticket().begin(header.sequence);
        let measure_since = (header.measure == MeasureTiming::Yes).then(Stopwatch::start);
        let limits = RunLimits::from_hal(header.deadline_ns.map(NonZeroU64::get), None);
        self.check_not_past(&limits)?;
        let mut packets = compiled.packet_pools(inline, &mut self.outputs)?;
        let pools = &NamedObjects {
            names: &compiled.names,
            memories: &self.named_memories,
            buffers: &self.named_buffers,
        };
        let run = Run {
            request: &compiled.request,
            pools,
            limits,
            measure_since,
            tells_shapes: !compiled.has_fixed_shapes,
            keeps_slot: true,
        };
        self.context.run(&run, &mut packets)
    }

    /// What is said of a request that was too late when it was taken up: it may be the fault of other bursts.
    #[inline]
    fn check_not_past(&self, limits: &RunLimits) -> Result<(), Failure> {
        match limits.check_not_past() {
            Err(_) if self.shares_thread => Err(Failure::new(
                ErrorStatus::MissedDeadlineTransient,
                "the deadline had passed when the request was taken up; other bursts of the client may have been first",
            )),
            outcome => outcome,
        }
    }

    /// Lets go of what the client has freed.
    #[inline]
    pub(super) fn forget_freed(&mut self) {
        self.named_memories.forget_freed();
        self.named_buffers.forget_freed();
    }

    /// Gives back what is kept between requests that follow each other at once.
    pub(super) fn rest(&mut self) {
        self.context.slot.leave();
        self.named_memories.release();
        self.named_buffers.release();
    }

    /// Whether the next request may wait for a slot, and requests of other bursts behind it.
    #[inline]
    pub(super) fn keeps_others_waiting(&self) -> bool {
        self.shares_thread && self.context.ticket().others_wait()
    }

    /// Whether it has a slot, or gets one before long.
    #[inline]
    pub(super) fn takes_slot_soon(&mut self) -> bool {
        self.context.slot.take_soon()
    }

    /// Leaves its slot to another for the time being, if it has kept one.
    pub(super) fn pass_slot(&mut self, to: &mut Runner) {
        self.context.slot.pass(&mut to.context.slot);
    }

    /// Gives back the memory of the execution if it was not used for that long, and the model is not to keep
    /// it; whether there is some that may be given back later.
    pub(super) fn release_unused_memory(&mut self, now: TimePoint, unused_for: Duration) -> bool {
        if !self.holds_memory || self.prepared.keeps_memory() {
            return false;
        }
        let since = *self.unused_since.get_or_insert(now);
        if now.saturating_since(since) < unused_for {
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
    fn fail(&self, header: &RequestHeader, failure: &Failure, reply: &mut Vec<u8>) {
        let sequence = header.sequence;
        // A fenced execution tells no shapes: its outputs are known.
        if failure.status != ErrorStatus::OutputInsufficientSize || header.fencing != Fencing::No {
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

#[cold]
fn not_registered_so() -> Box<Failure> {
    Failure::invalid_argument("the request was not registered for fenced executions".to_owned()).into()
}

/// Leaves a failure that came without shapes in `reply`.
pub(super) fn fail(reply: &mut Vec<u8>, sequence: u32, failure: &Failure) {
    encode_failure(reply, sequence, failure.status, &[], &failure.to_string());
}
