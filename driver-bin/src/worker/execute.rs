//! Executions by a call of their own: synchronous and asynchronous.

use std::sync::Arc;

use nnhal::hal::MeasureTiming;
use nnhal::time::{Clock, MonotonicClock};
use nnhal::validate::ValidRequest;
use nnhal::wire::{Event, Execute, ExecutionForm, ExecutionResult, Failure, Reply};

use super::calls::OpenCall;
use super::client::{Client, RequestPools};
use super::prepared::Prepared;
use super::run::{Run, RunLimits, execution_result};

/// A request that has been checked.
#[derive(Debug)]
struct Job {
    prepared: Arc<Prepared>,
    request: ValidRequest,
    pools: RequestPools,
}

/// HAL `execute` and `executeSynchronously`.
pub(crate) fn execute(client: &Arc<Client>, call: OpenCall, arguments: Execute) {
    let seen = MonotonicClock.now();
    let Execute {
        prepared_model,
        request,
        form,
        measure,
        deadline_ns,
        loop_timeout_ns,
    } = arguments;
    let checked = client
        .model(prepared_model)
        .and_then(|prepared| check(client, prepared, request));
    let job = match checked {
        Ok(job) => job,
        Err(failure) => return answer_refused(client, &call, form, failure),
    };
    if form == ExecutionForm::Asynchronous {
        client.outbox.reply(call.id(), Ok(Reply::Launched));
    }
    let limits = RunLimits::from_hal(deadline_ns, loop_timeout_ns);
    let shared = Arc::clone(client);
    let priority = job.prepared.priority();
    let measure_since = (measure == MeasureTiming::Yes).then_some(seen);
    let submitted = super::try_submit(client, priority, call, move |call| {
        let result = job.run(call, limits, measure_since);
        answer(&shared, call, form, result);
    });
    if let Err(call) = submitted {
        answer(client, &call, form, ExecutionResult::failed(super::no_thread()));
    }
}

fn check(
    client: &Client,
    prepared: Arc<Prepared>,
    request: nnhal::wire::RequestWithMemories,
) -> Result<Job, Failure> {
    let (request, pools) = client.resolve_request(request)?;
    let request = ValidRequest::new(prepared.model(), &request)
        .map_err(|error| Failure::invalid_argument(error.to_string()))?;
    Ok(Job {
        prepared,
        request,
        pools,
    })
}

impl Job {
    fn run(
        self,
        call: &OpenCall,
        limits: RunLimits,
        measure_since: Option<nnhal::time::TimePoint>,
    ) -> ExecutionResult {
        let context = limits
            .check_not_past()
            .and_then(|()| self.prepared.take_context());
        let mut context = match context {
            Ok(context) => context,
            Err(failure) => return ExecutionResult::failed(failure),
        };
        call.works_as(context.ticket().observer());
        let outcome = context.run(&Run {
            request: &self.request,
            pools: &self.pools,
            inline: None,
            limits,
            measure_since,
        });
        let result = execution_result(&context, outcome);
        self.prepared.give_back(context);
        result
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
