//! Models that are ready to be executed.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal::fmq::WaitSettings;
use nnhal::wire::{Call, Execute, ExecutionForm, Object, PreparedModelHandle, Reply};
use nnhal_hal::ExecutionPreference;
use nnhal_os::time::Deadline;

use crate::arguments::Arguments;
use crate::connection::{Connection, Link, wrong_connection};
use crate::error::{Error, Result};
use crate::execution::{Completed, ExecuteOptions, completed};
use crate::model::ArgumentTypes;
use crate::request::Request;
use crate::tensor::TensorType;
use crate::values::{Input, ListedValues, Output};

/// How many sets of arguments of [`PreparedModel::run`] are kept for the next call: as many threads can run
/// one model at once without making memory anew.
const KEPT_ARGUMENTS: usize = 8;

/// A model that a device is ready to execute. The role of the HAL's `IPreparedModel`.
///
/// Clones are handles on the same prepared model, which goes with the last of them. Executions of one
/// prepared model may overlap.
#[derive(Clone, Debug)]
pub struct PreparedModel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Arc<Connection>,
    handle: PreparedModelHandle,
    types: Option<ArgumentTypes>,
    preference: ExecutionPreference,
    /// Arguments that [`PreparedModel::run`] does not use at this moment.
    spare: Mutex<Vec<Arguments>>,
}

impl PreparedModel {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        handle: PreparedModelHandle,
        types: Option<ArgumentTypes>,
        preference: ExecutionPreference,
    ) -> PreparedModel {
        let connection = Arc::clone(connection);
        PreparedModel {
            inner: Arc::new(Inner {
                connection,
                handle,
                types,
                preference,
                spare: Mutex::default(),
            }),
        }
    }

    /// The types of the inputs, in argument order; empty if it was prepared from a cache without its model.
    #[must_use]
    pub fn inputs(&self) -> &[TensorType] {
        self.inner.types.as_ref().map_or(&[], |types| &types.inputs)
    }

    /// The types of the outputs, in argument order; empty if it was prepared from a cache without its model.
    #[must_use]
    pub fn outputs(&self) -> &[TensorType] {
        self.inner.types.as_ref().map_or(&[], |types| &types.outputs)
    }

    /// HAL `executeSynchronously`: executes a request and waits for the end.
    ///
    /// # Errors
    /// The statuses of the HAL, each with the argument or operation and the reason.
    /// `OUTPUT_INSUFFICIENT_SIZE` comes with the shapes that are needed: [`Error::output_shapes`].
    pub fn execute(&self, request: &Request, options: &ExecuteOptions) -> Result<Completed> {
        let deadline = options.wait_deadline();
        let call = Call::Execute(self.call(request, options, ExecutionForm::Synchronous, deadline)?);
        let (name, link) = (call.name(), self.link());
        match link.call_by(call, &[], deadline)? {
            (Reply::Executed(result), _) => completed(link, name, result),
            (other, _) => Err(link.misplaced(name, &other)),
        }
    }

    /// Executes with inputs and outputs in this process's own memory, which are copied into and out of shared
    /// memory that is kept for the next call.
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
        let arguments = self.take_arguments(inputs, outputs)?;
        let mut values = ListedValues { inputs, outputs };
        arguments.write_all(&values)?;
        let result = self.execute(arguments.request(), options);
        if let Ok(completed) = &result {
            arguments.read_all(completed, &mut values)?;
        }
        // An execution that was not waited for may still write to them.
        if !matches!(&result, Err(error) if error.failure().is_none()) {
            self.give_back(arguments);
        }
        result
    }

    /// Shared memory for every argument of a model that leaves no dimension open.
    ///
    /// # Errors
    /// The size of an argument is not known: its dimensions are open, or the model is not known (see
    /// [`crate::Device::prepare_from_cache`]); the system has no memory.
    pub fn new_arguments(&self) -> Result<Arguments> {
        Arguments::for_types(self.types()?)
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        self.inner.connection.link()
    }

    /// How bursts wait unless they are told: without polling where energy counts most.
    pub(crate) fn wait_settings(&self) -> WaitSettings {
        match self.inner.preference {
            ExecutionPreference::LowPower => WaitSettings::Sleep,
            _ => WaitSettings::default(),
        }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.inner.connection
    }

    /// The model's name on `connection`.
    pub(crate) fn handle_on(&self, connection: &Arc<Connection>) -> Result<PreparedModelHandle> {
        if Arc::ptr_eq(connection, &self.inner.connection) {
            Ok(self.inner.handle)
        } else {
            Err(wrong_connection("a prepared model"))
        }
    }

    pub(crate) fn types(&self) -> Result<&ArgumentTypes> {
        self.inner.types.as_ref().ok_or_else(|| {
            Error::argument(
                "the model was prepared from a cache without its types; give the model to prepare_from_cache, or \
                 use execute with a Request",
            )
        })
    }

    /// The call that executes a request. The worker is told by then of memories that it does not know yet.
    pub(crate) fn call(
        &self,
        request: &Request,
        options: &ExecuteOptions,
        form: ExecutionForm,
        deadline: Deadline,
    ) -> Result<Execute> {
        let deadline = deadline.earlier(self.link().timeouts().call_deadline());
        Ok(Execute {
            prepared_model: self.inner.handle,
            request: request.on_wire(&self.inner.connection, deadline)?,
            form,
            measure: options.measure,
            deadline_ns: options.deadline.to_hal(),
            loop_timeout_ns: options.loop_timeout_ns(),
        })
    }

    /// Arguments of this layout: some that are kept, or new ones.
    fn take_arguments(&self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Arguments> {
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = spare.iter().position(|arguments| arguments.fits(inputs, outputs));
        if let Some(index) = fitting {
            return Ok(spare.swap_remove(index));
        }
        drop(spare);
        Arguments::for_values(self.types()?, inputs, outputs)
    }

    fn give_back(&self, arguments: Arguments) {
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() == KEPT_ARGUMENTS {
            // Those that were not used for longest are in front.
            let oldest = spare.remove(0);
            drop(spare);
            drop(oldest);
            spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        }
        spare.push(arguments);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection.link().release(Object::PreparedModel(self.handle));
    }
}
