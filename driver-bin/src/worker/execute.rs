//! Executions by a call of their own: synchronous and asynchronous.

use std::sync::Arc;

use nnhal::diag::trace::SpanKind;
use nnhal::wire::{
    Event, Execute, ExecutionForm, ExecutionResult, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_hal::validate::ValidRequest;
use nnhal_hal::{Failure, MeasureTiming};
use nnhal_os::time::Stopwatch;

use super::buffer::RequestBuffers;
use super::calls::OpenCall;
use super::client::{Client, RequestPools};
use super::prepared::Prepared;
use super::run::{Run, RunLimits, execution_result};
use crate::trace;

/// A request that has been checked.
#[derive(Debug)]
pub(crate) struct Job {
    prepared: Arc<Prepared>,
    request: ValidRequest,
    pools: RequestPools,
    buffers: RequestBuffers,
}

/// HAL `execute` and `executeSynchronously`.
pub(crate) fn execute(client: &Arc<Client>, call: OpenCall, arguments: Execute) {
    let seen = Stopwatch::start();
    let Execute {
        prepared_model,
        request,
        form,
        measure,
        deadline_ns,
        loop_timeout_ns,
    } = arguments;
    let limits = RunLimits::from_hal(deadline_ns, loop_timeout_ns);
    let job = match check(client, prepared_model, request) {
        Ok(job) => job,
        Err(failure) => return answer_refused(client, &call, form, failure),
    };
    if form == ExecutionForm::Asynchronous {
        client.outbox.reply(call.id(), Ok(Reply::Launched));
    }
    if let Err(failure) = limits.check_not_past() {
        job.give_up();
        return answer(client, &call, form, ExecutionResult::failed(failure));
    }
    let shared = Arc::clone(client);
    let priority = job.prepared().priority();
    let measure_since = (measure == MeasureTiming::Yes).then_some(seen);
    let submitted = super::try_submit(client, priority, call, move |call| {
        let result = job.run(call, limits, measure_since);
        answer(&shared, call, form, result);
    });
    if let Err(call) = submitted {
        answer(client, &call, form, ExecutionResult::failed(super::no_thread()));
    }
}

/// Checks a request against its model, its memories and its device buffers.
pub(crate) fn check(
    client: &Client,
    handle: PreparedModelHandle,
    request: RequestWithMemories,
) -> Result<Job, Failure> {
    let prepared = client.model(handle)?;
    let (request, pools) = client.resolve_request(request)?;
    let request = ValidRequest::new(prepared.model(), &request)
        .map_err(|error| Failure::invalid_argument(error.to_string()))?;
    let buffers = client.buffers.of_request(&prepared, &request)?;
    Ok(Job {
        prepared,
        request,
        pools,
        buffers,
    })
}

impl Job {
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
        self.buffers.invalidate_outputs();
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
        let outcome = context.run(&Run {
            request: &self.request,
            pools: &self.pools,
            inline: None,
            buffers: &self.buffers,
            limits,
            measure_since,
            tells_shapes: true,
            keeps_slot: false,
        });
        let result = execution_result(&context, outcome);
        self.prepared.give_back(context);
        Ok(result)
    }
}

/// A request that is not launched: the reply says so in either form.
fn answer_refused(client: &Client, call: &OpenCall, form: ExecutionForm, failure: Failure) {
    match form {
        ExecutionForm::Synchronous => answer(client, call, form, ExecutionResult::failed(failure)),
        ExecutionForm::Asynchronous => client.outbox.reply(call.id(), Err(failure)),
    }
}

fn answer(client: &Client, call: &OpenCall, form: ExecutionForm, result: ExecutionResult) {
    match form {
        ExecutionForm::Synchronous => client.outbox.reply(call.id(), Ok(Reply::Executed(result))),
        ExecutionForm::Asynchronous => client.outbox.event(call.id(), Event::Executed(result)),
    }
}
