//! One execution of a request, the same for every form: copy in, run, copy out.

mod plain;

pub(crate) use plain::{PlainRequest, PlainRun};

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use nnhal::burst::copy_values;
use nnhal::diag::trace::SpanKind;
use nnhal::wire::ExecutionResult;
use nnhal_device::{Control, Execution};
use nnhal_hal::validate::{ArgumentPlan, Direction, ValidRequest};
use nnhal_hal::{ErrorStatus, Failure, OutputShape, Place, Shape, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch};

use super::buffer::{Buffer, Content, RequestBuffers};
use super::estimate::Estimate;
use super::limits::RunLimits;
use super::memory::Memory;
use super::watchdog::Watchdog;
use crate::scheduler::Ticket;
use crate::trace;

/// A device's execution and what the driver needs beside it; used again and again, by one run at a time.
#[derive(Debug)]
pub(crate) struct Context {
    execution: Box<dyn Execution>,
    ticket: Ticket,
    /// Whether the ticket has a slot: while work runs, and after it if that kept the slot for the next.
    holds_slot: bool,
    /// Whether it was taken a moment ago and nothing has run in it.
    is_slot_fresh: bool,
    /// Whether something was to run in it since [`Context::rest_in_slot`].
    uses_slot: bool,
    /// Whether the last run read an input in place that a plain request would copy.
    read_in_place: bool,
    /// How many more times it is given back at once, since others have waited for one.
    returns_slot: u32,
    watchdog: Arc<Watchdog>,
    estimate: Arc<Estimate>,
    /// What the last run found of its outputs, as far as it was to tell.
    outputs: Vec<FoundOutput>,
}

/// From how many bytes on devices are asked to fill an input themselves: copying fewer takes a few
/// microseconds.
const LARGE_INPUT: usize = 64 * 1024;

/// Copying less takes less than to look whether it could be read where it is.
const LEAST_IN_PLACE: u64 = 4096;

/// How often a slot is given back at once after others were seen waiting for one. Those wait a microsecond
/// longer, which is how long it is kept without work, and are then woken, some 10 us in all. Spread over so
/// many requests that is less than the 8 ns that each of them saves.
const RETURNS_WHEN_WANTED: u32 = 4096;

/// What a run found of one output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundOutput {
    pub(crate) shape: Shape,
    pub(crate) is_sufficient: bool,
}

/// What a run needs to know.
#[derive(Debug)]
pub(crate) struct Run<'a, P> {
    pub(crate) request: &'a ValidRequest,
    pub(crate) pools: &'a P,
    /// Pools that are part of a packet.
    pub(crate) inline: Option<&'a InlineBytes>,
    /// Those of its arguments that are device buffers.
    pub(crate) buffers: &'a RequestBuffers,
    pub(crate) limits: RunLimits,
    /// Since when the driver has known of the request, if the run is to be measured.
    pub(crate) measure_since: Option<Stopwatch>,
    /// Whether somebody wants to know the outputs' shapes even if all went well.
    pub(crate) tells_shapes: bool,
    /// Whether the context keeps its slot until the next run or [`Context::leave_slot`], which must come
    /// before long.
    pub(crate) keeps_slot: bool,
}

/// The memories of a request.
pub(crate) trait Pools: std::fmt::Debug {
    /// The memory of this pool; none for pools that are device buffers, and for bytes in packets.
    fn memory(&self, pool: u32) -> Option<&Memory>;
}

impl Pools for Vec<Option<Arc<Memory>>> {
    fn memory(&self, pool: u32) -> Option<&Memory> {
        self.get(pool as usize)?.as_deref()
    }
}

/// The bytes of arguments that travel inside a burst's packets.
#[derive(Debug, Default)]
pub(crate) struct InlineBytes {
    /// Which pool of the request stands for `inputs`.
    pub(crate) input_pool: Option<u32>,
    pub(crate) inputs: Vec<u8>,
    /// Which pool of the request stands for `outputs`.
    pub(crate) output_pool: Option<u32>,
    pub(crate) outputs: RefCell<Vec<u8>>,
}

impl InlineBytes {
    /// The bytes of an input in this pool, if it is the packet.
    fn input(&self, pool: u32, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        (self.input_pool == Some(pool))
            .then(|| self.inputs.get(start..start.checked_add(length)?))
            .flatten()
    }

    /// Keeps the bytes of an output in this pool, if it is the packet; says whether it was.
    fn put_output(&self, pool: u32, offset: u64, bytes: &[u8]) -> bool {
        if self.output_pool != Some(pool) {
            return false;
        }
        let mut outputs = self.outputs.borrow_mut();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        outputs
            .get_mut(start..end)
            .map(|room| copy_values(bytes, room))
            .is_some()
    }
}

impl Context {
    pub(crate) fn new(
        execution: Box<dyn Execution>,
        ticket: Ticket,
        watchdog: &Arc<Watchdog>,
        estimate: &Arc<Estimate>,
    ) -> Context {
        watchdog.watch(ticket.observer());
        Context {
            execution,
            ticket,
            holds_slot: false,
            is_slot_fresh: false,
            uses_slot: false,
            read_in_place: false,
            returns_slot: 0,
            watchdog: Arc::clone(watchdog),
            estimate: Arc::clone(estimate),
            outputs: Vec::new(),
        }
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// What the last run found of its outputs; none unless it succeeded and was to tell, or an output was too
    /// small.
    pub(crate) fn outputs(&self) -> &[FoundOutput] {
        &self.outputs
    }

    /// Takes memory for the first run, as far as the device knows what that needs.
    pub(crate) fn reserve_memory(&mut self) {
        self.execution.reserve_memory();
    }

    /// Gives back the memory that the next run would need anyway.
    pub(crate) fn release_memory(&mut self) {
        self.execution.release_memory();
    }

    /// Runs a request. Allocates nothing, and makes no system call, once it has run one of the same shapes on
    /// memories that are mapped.
    ///
    /// Device buffers that were to be written hold nothing after a failure.
    pub(crate) fn run(&mut self, run: &Run<'_, impl Pools>) -> Result<Timing, Failure> {
        self.outputs.clear();
        let on_device = match self.run_when_free(run) {
            Ok(on_device) => on_device,
            Err(failure) => return Err(self.forget_outputs(run, failure)),
        };
        Ok(run.measure_since.map_or(Timing::NONE, |since| Timing {
            time_on_device_us: on_device.map_or(u64::MAX, micros),
            time_in_driver_us: micros(since.elapsed()),
        }))
    }

    /// Writes the outputs of a run whose device has computed them, by [`Context::run_plain`].
    pub(crate) fn finish(&mut self, run: &Run<'_, impl Pools>) -> Result<Timing, Failure> {
        self.outputs.clear();
        match self.copy_out(run) {
            Ok(()) => Ok(Timing::NONE),
            Err(failure) => Err(self.forget_outputs(run, failure)),
        }
    }

    /// After this failure outputs have no value, and only of those that are too large the shapes are told.
    #[cold]
    fn forget_outputs(&mut self, run: &Run<'_, impl Pools>, failure: Failure) -> Failure {
        run.buffers.invalidate_outputs();
        if failure.status != ErrorStatus::OutputInsufficientSize {
            self.outputs.clear();
        }
        failure
    }

    fn run_when_free(&mut self, run: &Run<'_, impl Pools>) -> Result<Option<Duration>, Failure> {
        self.expect_outputs(run)?;
        if !run.limits.deadline.is_none() {
            self.estimate.check(MonotonicClock.now(), &run.limits)?;
        }
        self.take_slot(run.limits.deadline)?;
        self.watchdog.work_starts();
        let outcome = self.run_in_slot(run);
        if !run.keeps_slot {
            self.leave_slot();
        }
        outcome
    }

    /// Takes a slot, or goes on with the one that the last run has kept if nobody waits for it.
    #[inline]
    fn take_slot(&mut self, deadline: Deadline) -> Result<(), Failure> {
        self.uses_slot = true;
        if self.holds_slot && (std::mem::take(&mut self.is_slot_fresh) || self.ticket.stay()) {
            return Ok(());
        }
        self.enter_slot(deadline)
    }

    #[inline(never)]
    fn enter_slot(&mut self, deadline: Deadline) -> Result<(), Failure> {
        self.leave_slot();
        let waits = trace::span(SpanKind::QueueWait, 0, 0);
        self.ticket.enter(deadline)?;
        drop(waits);
        self.holds_slot = true;
        Ok(())
    }

    /// Gives back the slot that the last run has kept, if it has.
    pub(crate) fn leave_slot(&mut self) {
        self.is_slot_fresh = false;
        if self.holds_slot {
            self.holds_slot = false;
            if self.ticket.leave() {
                self.returns_slot = RETURNS_WHEN_WANTED;
            }
        }
    }

    /// Leaves the slot that the last run has kept, if it has, to another context whose work the same thread
    /// does next.
    #[inline]
    pub(crate) fn pass_slot(&mut self, to: &mut Context) {
        if self.holds_slot && !to.holds_slot {
            (self.holds_slot, self.is_slot_fresh) = (false, false);
            self.ticket.pass_slot(&to.ticket);
            to.holds_slot = true;
        }
    }

    /// To be called where the next run may come at once, and [`Context::leave_slot`] is called if it does
    /// not: goes on holding the slot, as taking it is a locked instruction on that run's way. Not where
    /// others have waited for one lately, nor where nothing has run since the last time, and so nobody has
    /// looked for others: requests that fail early may come again and again.
    #[inline]
    pub(crate) fn rest_in_slot(&mut self) {
        let is_used = std::mem::take(&mut self.uses_slot) && !self.is_slot_fresh;
        if self.returns_slot > 0 {
            self.returns_slot -= 1;
        } else if is_used {
            return;
        }
        self.leave_slot();
    }

    /// Returns the time on the device, if the run is measured.
    fn run_in_slot(&mut self, run: &Run<'_, impl Pools>) -> Result<Option<Duration>, Failure> {
        let copies = trace::span(SpanKind::CopyIn, 0, 0);
        if let Err(failure) = self.copy_in(run) {
            self.execution.unbind_inputs();
            return Err(failure);
        }
        drop(copies);
        let control = Control::new(&self.ticket, run.limits.deadline, run.limits.loop_timeout)
            .measured(run.measure_since.is_some());
        // Nobody asks for the time of the others.
        let is_timed = run.measure_since.is_some() || !run.limits.deadline.is_none();
        let started = is_timed.then(Stopwatch::start);
        let runs = trace::span(SpanKind::Run, 0, 0);
        let busy = match self.execution.run(&control) {
            Ok(busy) => busy,
            Err(failure) => return Err(self.estimate.judge(failure, &run.limits)),
        };
        drop(runs);
        let on_device = started.map(|started| {
            let elapsed = started.elapsed();
            self.estimate.record(elapsed);
            busy.map_or(elapsed, |busy| busy.min(elapsed))
        });
        let _copies = trace::span(SpanKind::CopyOut, 0, 0);
        self.copy_out(run)?;
        Ok(on_device)
    }

    /// Tells the device what is known of the outputs, and has their places fetched before they are computed.
    fn expect_outputs(&mut self, run: &Run<'_, impl Pools>) -> Result<(), Failure> {
        for (index, plan) in run.request.outputs().iter().enumerate() {
            match plan {
                ArgumentPlan::Omitted => {}
                ArgumentPlan::Memory {
                    shape,
                    pool,
                    offset,
                    length,
                } => {
                    self.execution.expect_output(index, shape);
                    if run.inline.is_some_and(|inline| inline.output_pool == Some(*pool)) {
                        continue;
                    }
                    let memory = memory_of(run, *pool)?;
                    if !memory.is_writable() {
                        return Err(read_only(index, *pool));
                    }
                    memory.expect_write(*offset, *length)?;
                }
                ArgumentPlan::Token { shape, .. } => self.execution.expect_output(index, shape),
            }
        }
        Ok(())
    }

    fn copy_in(&mut self, run: &Run<'_, impl Pools>) -> Result<(), Failure> {
        self.read_in_place = false;
        for (index, plan) in run.request.inputs().iter().enumerate() {
            match plan {
                ArgumentPlan::Omitted => self.execution.omit_input(index)?,
                ArgumentPlan::Memory {
                    shape,
                    pool,
                    offset,
                    length: given,
                } => {
                    if *given >= LEAST_IN_PLACE
                        && self.reads_in_place(run, (index, shape), (*pool, *offset, *given))
                    {
                        self.read_in_place = true;
                        continue;
                    }
                    let bytes = match self.execution.input_again(index, shape) {
                        Some(bytes) => bytes,
                        None => self.execution.input(index, shape)?,
                    };
                    let length = bytes.len();
                    check_given(index, *given, length)?;
                    if let Some(inline) = run.inline.and_then(|inline| inline.input(*pool, *offset, length)) {
                        copy_values(inline, bytes);
                        continue;
                    }
                    let memory = memory_of(run, *pool)?;
                    let copied = if length < LARGE_INPUT || !memory.is_at_hand(*offset, length) {
                        memory.read(*offset, bytes)
                    } else {
                        let fill = |from, bytes: &mut [u8]| memory.read(offset + from, bytes);
                        let control =
                            Control::new(&self.ticket, run.limits.deadline, run.limits.loop_timeout);
                        self.execution.fill_input(index, shape, &control, &fill)
                    };
                    copied.map_err(|failure| of_argument(Direction::Input, index, *pool, failure))?;
                }
                ArgumentPlan::Token { shape, .. } => self.bind_input(run, index, shape)?,
            }
        }
        Ok(())
    }

    /// Has a large input read where it is, if that is memory that nobody can change any more; says whether it
    /// is.
    #[inline(never)]
    fn reads_in_place(
        &mut self,
        run: &Run<'_, impl Pools>,
        (index, shape): (usize, &Shape),
        (pool, offset, length): (u32, u64, u64),
    ) -> bool {
        let is_inline = run.inline.is_some_and(|inline| inline.input_pool == Some(pool));
        let memory = run.pools.memory(pool).filter(|_| !is_inline);
        memory
            .and_then(|memory| memory.sealed(offset, length))
            .is_some_and(|(memory, part)| self.execution.bind_sealed(index, shape, memory, part))
    }

    /// Has an input read from its device buffer.
    #[inline(never)]
    fn bind_input(&mut self, run: &Run<'_, impl Pools>, index: usize, shape: &Shape) -> Result<(), Failure> {
        let content = content_of(run, index, shape)?;
        self.execution.bind_input(index, content.shape, &content.memory)
    }

    /// Writes each output where the request wants it. After an error those before the one that it is about
    /// may be written; device buffers get what is theirs when all others are.
    fn copy_out(&mut self, run: &Run<'_, impl Pools>) -> Result<(), Failure> {
        let (mut too_large, mut has_tokens) = (None, false);
        for (index, plan) in run.request.outputs().iter().enumerate() {
            let (shape, bytes) = self.execution.output(index).ok_or_else(|| not_computed(index))?;
            match plan {
                ArgumentPlan::Omitted => {}
                ArgumentPlan::Memory {
                    shape: expected,
                    pool,
                    offset,
                    length,
                } => {
                    check_agrees(index, expected, shape)?;
                    if too_large.is_some() {
                        continue;
                    }
                    if bytes.len() as u64 <= *length {
                        write_output(run, index, (*pool, *offset), bytes)?;
                    } else {
                        too_large = Some(index);
                    }
                }
                ArgumentPlan::Token { shape: expected, .. } => {
                    check_agrees(index, expected, shape)?;
                    check_fits(index, output_buffer(run, index)?, shape)?;
                    has_tokens = true;
                }
            }
        }
        if too_large.is_some() || has_tokens || run.tells_shapes {
            return self.end_outputs(run, too_large);
        }
        Ok(())
    }

    /// Does what is left when all outputs are known: tells their shapes, and makes those of a run that was
    /// found good the contents of their device buffers.
    #[inline(never)]
    fn end_outputs(&mut self, run: &Run<'_, impl Pools>, too_large: Option<usize>) -> Result<(), Failure> {
        let plans = run.request.outputs();
        for (index, plan) in plans.iter().enumerate() {
            let (shape, bytes) = self.execution.output(index).ok_or_else(|| not_computed(index))?;
            let is_sufficient = match plan {
                ArgumentPlan::Memory { length, .. } => bytes.len() as u64 <= *length,
                ArgumentPlan::Omitted | ArgumentPlan::Token { .. } => true,
            };
            self.outputs.push(FoundOutput {
                shape: *shape,
                is_sufficient,
            });
        }
        if let Some(index) = too_large {
            return Err(insufficient(
                index,
                plans.get(index),
                self.execution.output(index),
            ));
        }
        for (index, plan) in plans.iter().enumerate() {
            let found = self.outputs.get(index).map(|output| output.shape);
            if let (ArgumentPlan::Token { .. }, Some(shape)) = (plan, found) {
                self.move_out(run, index, shape)?;
            }
        }
        Ok(())
    }

    /// Makes an output the content of its device buffer, and has the device use again what was there before.
    fn move_out(&mut self, run: &Run<'_, impl Pools>, index: usize, shape: Shape) -> Result<(), Failure> {
        let buffer = output_buffer(run, index)?;
        let memory = self.execution.take_output(index)?;
        if let Some(old) = buffer.set_content(Some(Content { shape, memory })) {
            self.execution.recycle(old.memory);
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.leave_slot();
    }
}

/// The result of a run as a message has it.
pub(crate) fn execution_result(context: &Context, outcome: Result<Timing, Failure>) -> ExecutionResult {
    let output_shapes = context
        .outputs()
        .iter()
        .map(|output| OutputShape {
            dimensions: output.shape.dims().to_vec(),
            is_sufficient: output.is_sufficient,
        })
        .collect();
    let timing = outcome.as_ref().copied().unwrap_or(Timing::NONE);
    ExecutionResult {
        outcome: outcome.map(drop),
        output_shapes,
        timing,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn memory_of<'a>(run: &Run<'a, impl Pools>, pool: u32) -> Result<&'a Memory, Failure> {
    run.pools.memory(pool).ok_or_else(|| no_memory(pool))
}

#[cold]
fn no_memory(pool: u32) -> Failure {
    Failure::invalid_argument(format!("pool {pool} of the request is no memory"))
}

#[cold]
fn not_computed(output: usize) -> Failure {
    Failure::general(format!("the device did not compute output {output}"))
}

#[cold]
fn read_only(index: usize, pool: u32) -> Failure {
    Failure::invalid_argument(format!(
        "output {index} is in pool {pool}, which is shared for reading only"
    ))
    .at(Place {
        pool: Some(pool),
        ..Place::default()
    })
}

/// Writes the bytes of an output where the request wants them.
fn write_output(
    run: &Run<'_, impl Pools>,
    index: usize,
    (pool, offset): (u32, u64),
    bytes: &[u8],
) -> Result<(), Failure> {
    if run
        .inline
        .is_some_and(|inline| inline.put_output(pool, offset, bytes))
    {
        return Ok(());
    }
    let copied = memory_of(run, pool)?.write(offset, bytes);
    copied.map_err(|failure| of_argument(Direction::Output, index, pool, failure))
}

/// Validation knows the sizes of standard types and of the device's own; of others only the device does.
fn check_given(index: usize, given: u64, needed: usize) -> Result<(), Failure> {
    if needed as u64 <= given {
        return Ok(());
    }
    Err(too_short(index, given, needed))
}

#[cold]
fn too_short(index: usize, given: u64, needed: usize) -> Failure {
    Failure::invalid_argument(format!(
        "input {index} has {given} bytes, the device needs {needed}"
    ))
}

fn check_agrees(index: usize, expected: &Shape, found: &Shape) -> Result<(), Failure> {
    if expected == found || expected.allows(found) {
        return Ok(());
    }
    Err(contradicts(index, expected, found))
}

#[cold]
fn contradicts(index: usize, expected: &Shape, found: &Shape) -> Failure {
    Failure::general(format!(
        "output {index} has dimensions {found:?} when computed, model and request say {expected:?}"
    ))
}

#[cold]
fn insufficient(index: usize, plan: Option<&ArgumentPlan>, output: Option<(&Shape, &[u8])>) -> Failure {
    let room = match plan {
        Some(ArgumentPlan::Memory { length, .. }) => *length,
        _ => 0,
    };
    let (shape, needed) = output.map_or((Shape::SCALAR, 0), |(shape, bytes)| (*shape, bytes.len()));
    Failure::new(
        ErrorStatus::OutputInsufficientSize,
        format!("output {index} has room for {room} bytes; with dimensions {shape:?} it takes {needed}"),
    )
}

/// A failure to copy, with what was copied.
#[cold]
fn of_argument(direction: Direction, index: usize, pool: u32, failure: Failure) -> Failure {
    let detail = format!("{direction} {index}: {}", failure.detail);
    Failure { detail, ..failure }.at(Place {
        pool: Some(pool),
        ..Place::default()
    })
}

/// What the device buffer of an input holds, if it fits the request.
fn content_of(run: &Run<'_, impl Pools>, index: usize, expected: &Shape) -> Result<Content, Failure> {
    let buffer = run.buffers.input(index);
    let buffer =
        buffer.ok_or_else(|| Failure::invalid_argument(format!("input {index} has no device buffer")))?;
    let content = buffer.content().ok_or_else(|| {
        Failure::general(format!(
            "the device buffer of input {index} holds nothing yet, or no more"
        ))
    })?;
    if *expected == content.shape || expected.combine(&content.shape) == Some(content.shape) {
        return Ok(content);
    }
    Err(Failure::invalid_argument(format!(
        "input {index} has dimensions {expected:?}, its device buffer holds {:?}",
        content.shape
    )))
}

fn output_buffer<'a>(run: &Run<'a, impl Pools>, index: usize) -> Result<&'a Buffer, Failure> {
    let buffer = run.buffers.output(index);
    buffer.ok_or_else(|| Failure::invalid_argument(format!("output {index} has no device buffer")))
}

fn check_fits(index: usize, buffer: &Buffer, shape: &Shape) -> Result<(), Failure> {
    if buffer.takes(shape) {
        return Ok(());
    }
    Err(Failure::general(format!(
        "output {index} has dimensions {shape:?} when computed, for which its device buffer was not allocated"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_shorter_than_what_the_device_asks_for_is_refused() {
        check_given(0, 8, 8).unwrap();
        check_given(0, 9, 8).unwrap();
        let failure = check_given(3, 7, 8).unwrap_err();
        assert_eq!(failure.status, ErrorStatus::InvalidArgument);
        assert_eq!(failure.detail, "input 3 has 7 bytes, the device needs 8");
    }
}
