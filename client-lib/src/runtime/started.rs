//! Executions that go on in a driver alone, which has begun their only step.

use std::sync::Arc;

use nnhal_hal::OutputShape;

use super::arguments::{BoundArguments, Location};
use super::compilation::Compilation;
use super::computed::Finished;
use super::deadline::expect_time;
use super::request_builder::Target;
use super::result::{RuntimeError, RuntimeResult};
use super::run::Run;
use super::step::Prepared;
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions};
use crate::pending::PendingExecution;

/// The only step of an execution, which a driver has begun.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pending: PendingExecution,
    /// The shapes of its outputs, as far as they were known before.
    known: Arc<[OutputShape]>,
}

impl Compilation {
    /// Has a driver begin an execution of a single step whose arguments it finds in memory. `None` if a
    /// thread is to execute, which also tells what is wrong.
    pub(super) fn start_step(&self, placed: &BoundArguments, options: &ExecuteOptions) -> Option<Started> {
        let [step] = &self.plan().steps[..] else {
            return None;
        };
        let mut arguments = placed.inputs.iter().chain(&placed.outputs);
        let are_in_memory =
            arguments.all(|location| matches!(location, Location::Memory { .. } | Location::Omitted));
        let Prepared::Driver(prepared) = step.prepared() else {
            return None;
        };
        if !are_in_memory {
            return None;
        }
        expect_time(options).ok()?;
        let run = Run::new(self, placed, options).ok()?;
        let builder = run.request(step, Target::Device(&step.device)).ok()?;
        Some(Started {
            pending: prepared.start(&builder.request, options).ok()?,
            known: step.known_shapes(&builder.request),
        })
    }

    /// What the execution reports whose step has this outcome.
    pub(super) fn end_of_step(
        &self,
        (placed, options): (&BoundArguments, &ExecuteOptions),
        started: &Started,
        outcome: Result<Completed>,
    ) -> RuntimeResult<Finished> {
        let mut run = Run::new(self, placed, options)?;
        let [step] = &self.plan().steps[..] else {
            return Err(RuntimeError::failed(
                "an execution of several steps was begun as one",
            ));
        };
        let completed = outcome.map_err(|error| step.failed(error.into(), &started.known))?;
        run.keep(step, &step.computed(completed, &started.known)?);
        Ok(run.finished())
    }
}
