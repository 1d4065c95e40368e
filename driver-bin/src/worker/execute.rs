//! Executions by a call of their own: synchronous and asynchronous.

use std::sync::Arc;

use nnhal::wire::{
    Event, Execute, ExecutionForm, ExecutionResult, PreparedModelHandle, Reply, RequestWithMemories,
};
use nnhal_hal::validate::ValidRequest;
use nnhal_hal::{Failure, MeasureTiming};
use nnhal_os::time::Stopwatch;

use super::calls::{OpenCall, no_thread};
use super::client::Client;
use super::job::Job;
use super::limits::RunLimits;

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
    let submitted = call.run_on(&client.pool, priority, move |call| {
        let result = job.run(call, limits, measure_since);
        answer(&shared, call, form, result);
    });
    if let Err(call) = submitted {
        answer(client, &call, form, ExecutionResult::failed(no_thread()));
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
    Job::new(prepared, request, pools, &client.buffers)
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
