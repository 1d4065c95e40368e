//! The forms in which a driver executes a request.

use nnhal_client::{Completed, Deadline, ExecuteOptions, PreparedModel, Request, Result, WaitFor};
use nnhal_conformance::implementation::Form;

/// Executes once in this form and waits for the end.
///
/// A burst that the caller has is not for this: requests of that form go as synchronous calls.
pub(crate) fn execute(
    prepared: &PreparedModel,
    request: &Request,
    options: &ExecuteOptions,
    form: Form,
) -> Result<Completed> {
    match form {
        Form::Synchronous | Form::Burst => prepared.execute(request, options),
        Form::Asynchronous => prepared.start(request, options)?.wait(Deadline::NONE),
        Form::Fenced => {
            let execution = prepared.execute_fenced(request, &[], options)?;
            let timing = execution.wait(Deadline::NONE)?;
            Ok(Completed {
                output_shapes: Vec::new(),
                timing: timing.launched,
            })
        }
    }
}

/// Executes twice by fences, the second waiting for the first, as a pipeline would, and waits for the end of
/// both.
pub(crate) fn execute_in_turn(
    prepared: &PreparedModel,
    request: &Request,
    options: &ExecuteOptions,
) -> Result<Completed> {
    let first = prepared.execute_fenced(request, &[], options)?;
    let fences: Vec<WaitFor<'_>> = first.fence()?.map(WaitFor::Fence).into_iter().collect();
    let launched = prepared.execute_fenced(request, &fences, options);
    // The first one's failure is what the second would have to do with.
    let timing = first.wait(Deadline::NONE)?;
    match launched {
        Ok(second) => second.wait(Deadline::NONE)?,
        // The fence of a first one that has failed by now may be refused; it has not.
        Err(error) => return Err(error),
    };
    Ok(Completed {
        output_shapes: Vec::new(),
        timing: timing.launched,
    })
}
