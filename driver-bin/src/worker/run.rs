//! One execution of a request, the same for every form: copy in, run, copy out.

mod failures;
mod input;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use nnhal::diag::trace::SpanKind;
use nnhal_device::{Control, Execution};
use nnhal_hal::validate::{ArgumentPlan, Direction, ValidRequest};
use nnhal_hal::{ErrorStatus, Failure, Shape, Timing};
use nnhal_os::time::{Clock, MonotonicClock, Stopwatch};

use self::failures::{contradicts, insufficient, no_memory, not_computed, of_argument, read_only};
use self::input::{InMemory, InPacket};
use super::buffer::Content;
use super::estimate::Estimate;
use super::limits::RunLimits;
use super::memory::Memory;
use super::queued;
use super::request_pools::{PacketPools, Pools, check_fits, content_of, invalidate_outputs, output_buffer};
use super::slot::Slot;
use super::watchdog::Watchdog;
use crate::scheduler::Ticket;
use crate::trace;

/// A device's execution and what the driver needs beside it; used again and again, by one run at a time.
#[derive(Debug)]
pub(crate) struct Context {
    execution: Box<dyn Execution>,
    computes: Computes,
    pub(crate) slot: Slot,
    watchdog: Arc<Watchdog>,
    estimate: Arc<Estimate>,
    /// What the last run found of its outputs, as far as it was to tell.
    outputs: Vec<FoundOutput>,
}

/// Where a device computes an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computes {
    /// On the thread that runs it.
    Here,
    /// Elsewhere, and a fence tells the end.
    Queued,
    /// Elsewhere, and nothing tells the end: the execution cannot be used.
    Lost,
}

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
    pub(crate) limits: RunLimits,
    /// Since when the driver has known of the request, if the run is to be measured.
    pub(crate) measure_since: Option<Stopwatch>,
    /// Whether somebody wants to know the outputs' shapes even if all went well.
    pub(crate) tells_shapes: bool,
    /// Whether the context keeps its slot until the next run or [`Slot::leave`], which must come before
    /// long.
    pub(crate) keeps_slot: bool,
}

impl Context {
    pub(crate) fn new(
        mut execution: Box<dyn Execution>,
        ticket: Ticket,
        watchdog: &Arc<Watchdog>,
        estimate: &Arc<Estimate>,
    ) -> Context {
        watchdog.watch(ticket.observer());
        let computes = match execution.queued() {
            Some(_) => Computes::Queued,
            None => Computes::Here,
        };
        Context {
            execution,
            computes,
            slot: Slot::new(ticket),
            watchdog: Arc::clone(watchdog),
            estimate: Arc::clone(estimate),
            outputs: Vec::new(),
        }
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        self.slot.ticket()
    }

    /// Whether a thread that runs it waits for the device.
    pub(crate) fn is_queued(&self) -> bool {
        self.computes != Computes::Here
    }

    /// Whether the device may still compute an earlier run, so that there can be no other.
    pub(crate) fn is_lost(&self) -> bool {
        self.computes == Computes::Lost
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
        if !self.is_lost() {
            self.execution.release_memory();
        }
    }

    /// Runs a request. Allocates nothing, and makes no system call, once it has run one of the same shapes on
    /// memories that are mapped, unless the device computes by itself.
    ///
    /// Device buffers that were to be written hold nothing after a failure.
    #[inline]
    pub(crate) fn run(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &mut PacketPools<'_>,
    ) -> Result<Timing, Box<Failure>> {
        self.outputs.clear();
        let on_device = match self.run_when_free(run, packets) {
            Ok(on_device) => on_device,
            Err(failure) => return Err(self.forget_outputs(run, failure)),
        };
        Ok(run.measure_since.map_or(Timing::NONE, |since| Timing {
            time_on_device_us: on_device.map_or(u64::MAX, micros),
            time_in_driver_us: micros(since.elapsed()),
        }))
    }

    /// After this failure outputs have no value, and only of those that are too large the shapes are told.
    #[cold]
    fn forget_outputs(&mut self, run: &Run<'_, impl Pools>, failure: Box<Failure>) -> Box<Failure> {
        invalidate_outputs(run.request, run.pools);
        if failure.status != ErrorStatus::OutputInsufficientSize {
            self.outputs.clear();
        }
        failure
    }

    #[inline]
    fn run_when_free(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &mut PacketPools<'_>,
    ) -> Result<Option<Duration>, Box<Failure>> {
        if self.is_lost() {
            return Err(queued::lost().into());
        }
        self.expect_outputs(run, packets)?;
        if !run.limits.deadline.is_none() {
            self.estimate.check(MonotonicClock.now(), &run.limits)?;
        }
        self.slot.take(run.limits.deadline)?;
        self.watchdog.work_starts();
        let outcome = self.run_in_slot(run, packets);
        if !run.keeps_slot {
            self.slot.leave();
        }
        outcome
    }

    /// Returns the time on the device, if the run is measured.
    #[inline]
    fn run_in_slot(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &mut PacketPools<'_>,
    ) -> Result<Option<Duration>, Box<Failure>> {
        let copies = trace::span(SpanKind::CopyIn, 0, 0);
        if let Err(failure) = self.set_inputs(run, packets) {
            self.execution.unbind_inputs();
            return Err(failure);
        }
        drop(copies);
        let control = Control::new(self.slot.ticket(), run.limits.deadline, run.limits.loop_timeout)
            .measured(run.measure_since.is_some());
        // Nobody asks for the time of the others.
        let is_timed = run.measure_since.is_some() || !run.limits.deadline.is_none();
        let started = is_timed.then(Stopwatch::start);
        let runs = trace::span(SpanKind::Run, 0, 0);
        let computed = match self.computes {
            Computes::Here => self.execution.run(&control),
            Computes::Queued | Computes::Lost => {
                let ended = queued::run(&mut *self.execution, self.slot.ticket(), &control);
                if ended.is_lost {
                    self.computes = Computes::Lost;
                }
                ended.outcome
            }
        };
        let busy = match computed {
            Ok(busy) => busy,
            Err(failure) => return Err(self.estimate.judge(failure, &run.limits).into()),
        };
        drop(runs);
        let on_device = started.map(|started| {
            let elapsed = started.elapsed();
            // The rest is time in the device's queue.
            let busy = busy.map_or(elapsed, |busy| busy.min(elapsed));
            self.estimate.record(busy);
            busy
        });
        let _copies = trace::span(SpanKind::CopyOut, 0, 0);
        self.copy_out(run, packets)?;
        Ok(on_device)
    }

    /// Tells the device what is known of the outputs, and has their places fetched before they are computed.
    #[inline]
    fn expect_outputs(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &PacketPools<'_>,
    ) -> Result<(), Box<Failure>> {
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
                    if packets.has_outputs(*pool) {
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

    /// Gives the device its inputs.
    #[inline]
    fn set_inputs(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &PacketPools<'_>,
    ) -> Result<(), Box<Failure>> {
        let control = Control::new(self.slot.ticket(), run.limits.deadline, run.limits.loop_timeout);
        for (index, plan) in run.request.inputs().iter().enumerate() {
            match plan {
                ArgumentPlan::Omitted => self.execution.omit_input(index)?,
                ArgumentPlan::Memory {
                    shape,
                    pool,
                    offset,
                    length,
                } => {
                    let at = (index, *pool);
                    match packets.input(*pool, *offset, *length) {
                        Some(bytes) => {
                            let source = InPacket { at, bytes };
                            self.execution.set_input(index, shape, &source, &control)?;
                        }
                        None => {
                            let source = InMemory {
                                at,
                                memory: memory_of(run, *pool)?,
                                offset: *offset,
                                length: *length,
                            };
                            self.execution.set_input(index, shape, &source, &control)?;
                        }
                    }
                }
                ArgumentPlan::Token { shape, token } => {
                    let content = content_of(run.pools, (index, *token), shape)?;
                    self.execution
                        .bind_input(index, content.shape, &content.memory, &control)?;
                }
            }
        }
        Ok(())
    }

    /// Writes each output where the request wants it. After an error those before the one that it is about
    /// may be written; device buffers get what is theirs when all others are.
    #[inline]
    fn copy_out(
        &mut self,
        run: &Run<'_, impl Pools>,
        packets: &mut PacketPools<'_>,
    ) -> Result<(), Box<Failure>> {
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
                    if bytes.len() as u64 > *length {
                        too_large = Some(index);
                    } else if !packets.put_output(*pool, *offset, bytes) {
                        let copied = memory_of(run, *pool)?.write(*offset, bytes);
                        copied.map_err(|failure| of_argument(Direction::Output, index, *pool, *failure))?;
                    }
                }
                ArgumentPlan::Token {
                    shape: expected,
                    token,
                } => {
                    check_agrees(index, expected, shape)?;
                    check_fits(index, output_buffer(run.pools, (index, *token))?, shape)?;
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
    fn end_outputs(
        &mut self,
        run: &Run<'_, impl Pools>,
        too_large: Option<usize>,
    ) -> Result<(), Box<Failure>> {
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
            if let (ArgumentPlan::Token { token, .. }, Some(shape)) = (plan, found) {
                self.move_out(run, (index, *token), shape)?;
            }
        }
        Ok(())
    }

    /// Makes an output the content of its device buffer, and has the device use again what was there before.
    fn move_out(
        &mut self,
        run: &Run<'_, impl Pools>,
        (index, token): (usize, u32),
        shape: Shape,
    ) -> Result<(), Failure> {
        let buffer = output_buffer(run.pools, (index, token))?;
        let memory = self.execution.take_output(index)?;
        if let Some(old) = buffer.set_content(Content { shape, memory })? {
            self.execution.recycle(old.memory);
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[inline(always)]
fn memory_of<'a>(run: &Run<'a, impl Pools>, pool: u32) -> Result<&'a Memory, Box<Failure>> {
    run.pools.memory(pool).ok_or_else(|| no_memory(pool))
}

fn check_agrees(index: usize, expected: &Shape, found: &Shape) -> Result<(), Box<Failure>> {
    if expected == found || expected.allows(found) {
        return Ok(());
    }
    Err(contradicts(index, expected, found))
}
