//! Synchronous executions: by rings in shared memory, or by a message each.
//!
//! A model that is executed more than once has bursts of its own ([`Executors`]). So its executions cost
//! about as much as those of a burst that the program has made. Both sides wait as bursts do: they poll while
//! that pays, and sleep otherwise.
//!
//! A message is for what no ring can say: a time limit for loops, and a limit of the wait for the answer,
//! after which the driver is asked to end the execution.

use nnhal::burst::Fencing;
use nnhal::fmq::Consumer;
use nnhal::wire::{Call, ExecutionForm, Reply};
use nnhal_hal::Timing;
use nnhal_os::time::Deadline;

use crate::burst::Burst;
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions, completed, is_given_up};
use crate::executors::{Choice, Counted, Executor, Place, Started};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::values::{Input, ListedValues, Output};

/// The name of the call in messages.
const CALL: &str = "Execute";

impl PreparedModel {
    /// HAL `executeSynchronously`: executes a request and waits for the end.
    ///
    /// From the second execution on this goes by rings in shared memory, as bursts do, and costs about as
    /// much. Up to four threads execute a model that way at once, up to sixteen all models of a device;
    /// others exchange messages with the worker, until models that are not executed any more have given way.
    ///
    /// # Errors
    /// The statuses of the HAL, each with the argument or operation and the reason.
    /// `OUTPUT_INSUFFICIENT_SIZE` comes with the shapes that are needed: [`crate::Error::output_shapes`].
    pub fn execute(&self, request: &Request, options: &ExecuteOptions) -> Result<Completed> {
        match self.take_executor(options) {
            Some(mut executor) => {
                let result = executor.executor.execute(request, options);
                self.end_with(executor, &result);
                result
            }
            None => self.execute_by_message(request, options),
        }
    }

    /// Executes with inputs and outputs in this process's own memory, which are copied into and out of shared
    /// memory that is kept for the next call, or travel in the rings if they are small.
    ///
    /// Where the model leaves dimensions open, inputs say theirs ([`Input::with_dimensions`]); of outputs
    /// that are smaller than the room given, the first bytes are written, and [`Completed::output_shapes`]
    /// says how much.
    ///
    /// ```no_run
    /// # use nnhal_client::{ExecuteOptions, Input, Output, PreparedModel, Result};
    /// # fn example(prepared: &PreparedModel) -> Result<()> {
    /// let mut sum = [0.0_f32; 4];
    /// prepared.run(
    ///     &[Input::from(&[1.0_f32, 2.0, 3.0, 4.0])],
    ///     &mut [Output::from(&mut sum)],
    ///     &ExecuteOptions::new(),
    /// )?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PreparedModel::execute`]; an argument whose Rust type cannot fill the operand.
    pub fn run(
        &self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        match self.take_executor(options) {
            Some(mut executor) => {
                let result = executor.executor.run(inputs, outputs, options);
                self.end_with(executor, &result);
                result
            }
            None => self.run_by_message(inputs, outputs, options),
        }
    }

    /// [`PreparedModel::execute`] by a message.
    pub(crate) fn execute_by_message(
        &self,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        let deadline = options.wait_deadline();
        let call = Call::Execute(self.call(request, options, ExecutionForm::Synchronous, deadline)?);
        let link = self.link();
        match link.call_by(call, &[], deadline)? {
            (Reply::Executed(result), _) => completed(link, CALL, result),
            (other, _) => Err(link.misplaced(CALL, &other)),
        }
    }

    /// [`PreparedModel::run`] by a message.
    pub(crate) fn run_by_message(
        &self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        // Before anything is written: a forked child has the memory in common with its parent.
        self.link().check_process()?;
        let arguments = self.take_arguments(inputs, outputs)?;
        let mut values = ListedValues { inputs, outputs };
        let result = arguments.pass(&mut values, |request| self.execute_by_message(request, options));
        // An execution that was not waited for may still write to them.
        if !is_given_up(&result) {
            self.give_back(arguments);
        }
        result
    }

    /// What to execute by; `None` for a message.
    #[inline]
    pub(crate) fn take_executor(&self, options: &ExecuteOptions) -> Option<Counted> {
        if !self.may_use_rings(options) {
            return None;
        }
        match self.executors().take() {
            Choice::Executor(executor) => Some(executor),
            Choice::New(place) => self.new_executor(place),
            Choice::Message => None,
        }
    }

    /// Whether a ring can say all of it.
    #[inline]
    pub(crate) fn may_use_rings(&self, options: &ExecuteOptions) -> bool {
        options.suit_rings() && !self.link().timeouts().limit_work()
    }

    /// A burst, if the connection may have one more and the driver has room. What else is wrong the message
    /// will say.
    #[cold]
    fn new_executor(&self, place: Place) -> Option<Counted> {
        let permit = self.link().burst_permit(self.executors())?;
        // Bursts have arguments of their own.
        self.drop_arguments();
        match Burst::open_executor(&self.without_executors(), CALL) {
            Ok(burst) => Some(Counted::new(Box::new(burst), place, permit)),
            Err(_) => {
                self.link().give_back_burst_permit(permit);
                None
            }
        }
    }

    /// Keeps an executor for the next execution, unless it may still be at work on this one: also after an
    /// error that came from elsewhere than its ring.
    #[inline]
    pub(crate) fn end_with(&self, executor: Counted, result: &Result<Completed>) {
        if !is_given_up(result) && executor.executor.is_idle() {
            self.executors().keep(executor);
        }
    }
}

impl Executor for Burst {
    fn execute(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Completed> {
        Burst::execute(self, request, options)
    }

    fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        Burst::run(self, inputs, outputs, options)
    }

    fn start(&mut self, request: &Request, options: &ExecuteOptions) -> Result<Option<Started>> {
        Burst::start(self, request, options)
    }

    fn finish(&mut self, deadline: Deadline) -> Result<Completed> {
        self.finish_started(deadline)
    }

    fn start_fenced(
        &mut self,
        fencing: Fencing,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<Started>> {
        Burst::start_fenced(self, fencing, request, options)
    }

    fn finish_fenced(&mut self, deadline: Deadline) -> Result<Result<Timing>> {
        Burst::finish_fenced(self, deadline)
    }

    fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    fn consumer(&self) -> Option<&Consumer> {
        Burst::consumer(self)
    }

    fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        Burst::consumer_mut(self)
    }
}
