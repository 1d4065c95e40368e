//! Requests that a call has brought, checked and ready to be run.

use std::sync::Arc;

use nnhal::diag::trace::SpanKind;
use nnhal::wire::ExecutionResult;
use nnhal_hal::validate::ValidRequest;
use nnhal_hal::{Failure, OutputShape, Timing};
use nnhal_os::time::Stopwatch;

use super::buffer::{Buffer, Buffers, check_parts, tokens};
use super::calls::OpenCall;
use super::limits::RunLimits;
use super::memory::Memory;
use super::prepared::Prepared;
use super::request_pools::{PacketPools, Pools, invalidate_outputs};
use super::run::{Context, Run};
use crate::trace;

/// The memories of a request, by pool; none for pools that are device buffers.
pub(crate) type RequestPools = Vec<Option<Arc<Memory>>>;

/// What a request names.
#[derive(Debug)]
struct Named {
    memories: RequestPools,
    buffers: Vec<Arc<Buffer>>,
}

impl Pools for Named {
    fn memory(&self, pool: u32) -> Option<&Memory> {
        self.memories.get(pool as usize)?.as_deref()
    }

    fn buffer(&self, token: u32) -> Option<&Buffer> {
        let mut buffers = self.buffers.iter().map(Arc::as_ref);
        buffers.find(|buffer| buffer.token() == token)
    }
}

/// A request that has been checked.
#[derive(Debug)]
pub(crate) struct Job {
    prepared: Arc<Prepared>,
    request: ValidRequest,
    named: Named,
}

impl Job {
    /// Looks up the device buffers of a request that has been checked otherwise.
    pub(crate) fn new(
        prepared: Arc<Prepared>,
        request: ValidRequest,
        pools: RequestPools,
        buffers: &Buffers,
    ) -> Result<Job, Failure> {
        let found = tokens(&request).filter_map(|(.., token)| buffers.of_token(token));
        let named = Named {
            buffers: found.collect(),
            memories: pools,
        };
        check_parts(prepared.model(), &request, |token| named.buffer(token))?;
        Ok(Job {
            prepared,
            request,
            named,
        })
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// What a fenced execution asks of a request beyond the rest.
    pub(crate) fn check_fenced(&self) -> Result<(), Failure> {
        let checked = self.request.check_fenced(self.prepared.model());
        checked.map_err(|error| Failure::invalid_argument(error.to_string()))
    }

    /// What follows for its device buffers if the job is not run.
    pub(crate) fn give_up(&self) {
        invalidate_outputs(&self.request, &self.named);
    }

    /// Runs the request. `measure_since` is when the driver has seen it, if it is to be measured.
    pub(crate) fn run(
        &self,
        call: &OpenCall,
        limits: RunLimits,
        measure_since: Option<Stopwatch>,
    ) -> ExecutionResult {
        match self.try_run(call, limits, measure_since) {
            Ok(result) => result,
            Err(failure) => {
                self.give_up();
                ExecutionResult::failed(failure)
            }
        }
    }

    fn try_run(
        &self,
        call: &OpenCall,
        limits: RunLimits,
        measure_since: Option<Stopwatch>,
    ) -> Result<ExecutionResult, Failure> {
        let _executes = trace::span(SpanKind::Execute, 0, 0);
        let mut context = self.prepared.take_context()?;
        call.works_as(context.ticket().observer())?;
        let run = Run {
            request: &self.request,
            pools: &self.named,
            limits,
            measure_since,
            tells_shapes: true,
            keeps_slot: false,
        };
        let outcome = context.run(&run, &mut PacketPools::default());
        let result = execution_result(&context, outcome);
        self.prepared.give_back(context);
        Ok(result)
    }
}

/// The result of a run as a message has it.
fn execution_result(context: &Context, outcome: Result<Timing, Box<Failure>>) -> ExecutionResult {
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
        outcome: outcome.map(drop).map_err(|failure| *failure),
        output_shapes,
        timing,
    }
}
