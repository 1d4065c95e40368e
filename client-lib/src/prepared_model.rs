//! Models that are ready to be executed.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal::fmq::WaitSettings;
use nnhal::wire::{Execute, ExecutionForm, Object, PreparedModelHandle};
use nnhal_hal::ExecutionPreference;
use nnhal_os::time::Deadline;

use crate::arguments::Arguments;
use crate::connection::{Connection, Link, wrong_connection};
use crate::error::{Error, Result};
use crate::execution::ExecuteOptions;
use crate::executors::Executors;
use crate::model::ArgumentTypes;
use crate::request::Request;
use crate::tensor::TensorType;
use crate::values::{Input, Output};

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
    /// By which it is executed without a burst of the program. They hold the model, so they are not in
    /// `inner`.
    executors: Arc<Executors>,
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
            executors: Arc::default(),
        }
    }

    /// The same for one of its executors, which has none itself.
    pub(crate) fn without_executors(&self) -> PreparedModel {
        PreparedModel {
            inner: Arc::clone(&self.inner),
            executors: Arc::default(),
        }
    }

    /// Whether this is another handle on the same model.
    pub(crate) fn is_same(&self, other: &PreparedModel) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn executors(&self) -> &Arc<Executors> {
        &self.executors
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
    pub(crate) fn take_arguments(&self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Arguments> {
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = spare.iter().position(|arguments| arguments.fits(inputs, outputs));
        if let Some(index) = fitting {
            return Ok(spare.swap_remove(index));
        }
        drop(spare);
        Arguments::for_values(self.types()?, inputs, outputs)
    }

    /// Gives up the arguments that are kept.
    pub(crate) fn drop_arguments(&self) {
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *spare);
        drop(spare);
        drop(dropped);
    }

    pub(crate) fn give_back(&self, arguments: Arguments) {
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
