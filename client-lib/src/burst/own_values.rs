//! Executing with values in this process's own memory.
//!
//! Values of sizes that come again are passed by a request that is registered for them: small ones inside the
//! cells of the rings, larger ones through shared memory that is kept. Values of sizes that change all the
//! time are passed through one memory by a general request, as registering each time is another round trip.

use std::sync::Arc;

use nnhal::burst::Fencing;

use super::kept_for_values::KEPT;
use super::registered::{self, Numbers};
use super::{Burst, RegisteredRequest};
use crate::arguments::Arguments;
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions, is_given_up};
use crate::kept_memory::{reuse, with_reserve};
use crate::values::{Input, ListedValues, Output};

/// How values are passed.
enum Way {
    Registered(Arc<RegisteredRequest>),
    /// By a general request: they may never come again.
    Once,
    /// No ring can carry a request for them.
    Message,
}

impl Burst {
    /// Executes with inputs and outputs in this process's own memory: [`PreparedModel::run`] by burst. Values
    /// of sizes that were met before cost least: the worker keeps a request for each of a few.
    ///
    /// # Errors
    /// As [`PreparedModel::run`].
    ///
    /// [`PreparedModel::run`]: crate::PreparedModel::run
    pub fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        self.expect_idle(|_| options.wait_deadline())?;
        let way = match options.loop_timeout {
            None => self.way_for(inputs, outputs)?,
            Some(_) => Way::Message,
        };
        let registered = match way {
            Way::Registered(registered) => registered,
            Way::Once => return self.run_once(inputs, outputs, options),
            Way::Message => return self.model().run_by_message(inputs, outputs, options),
        };
        let result = self.fire_with(&registered, &mut ListedValues { inputs, outputs }, options);
        // The next call waits for the end of one whose wait was given up before it writes to the memory.
        self.values.registered.push(registered);
        result
    }

    /// The registered request by which [`Burst::run`] passes such values; `None` if no ring can carry any.
    #[cfg(feature = "runtime")]
    pub(crate) fn register_values(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Result<Option<Arc<RegisteredRequest>>> {
        self.expect_idle(crate::timeouts::Timeouts::call_deadline)?;
        let registered = match self.values.take(inputs, outputs) {
            None if !self.values.has_too_many => self.new_for_values(inputs, outputs)?,
            known => known,
        };
        self.values.registered.extend(registered.clone());
        Ok(registered)
    }

    #[inline]
    fn way_for(&mut self, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Way> {
        if let Some(registered) = self.values.take(inputs, outputs) {
            return Ok(Way::Registered(registered));
        }
        if self.values.has_too_many {
            return Ok(Way::Message);
        }
        let last = self.values.last_general.as_ref();
        let come_again = self.values.is_last_good && last.is_some_and(|last| last.fits(inputs, outputs));
        if self.values.is_full() && !come_again {
            return Ok(Way::Once);
        }
        let registered = self.new_for_values(inputs, outputs)?;
        Ok(registered.map_or(Way::Message, Way::Registered))
    }

    /// Has the worker keep a request for such values; `None` if it is too long for the ring.
    #[cold]
    fn new_for_values(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Result<Option<Arc<RegisteredRequest>>> {
        let model = self.exchange.model();
        let (kept, mut number) = (&mut self.values.registered, None);
        let arguments = Arguments::for_values_in(model.types()?, inputs, outputs, |size| {
            // The oldest makes room: the new one gets its number, and its memory if that suits.
            let oldest = (kept.len() == KEPT).then(|| kept.remove(0));
            let oldest = oldest.and_then(Arc::into_inner);
            let (its_number, memory) = oldest.map_or((None, None), RegisteredRequest::into_parts);
            number = its_number;
            reuse(memory, size)
        })?;
        let memory = self.memories.handle(arguments.memory(), model.connection())?;
        let planned = registered::plan(&arguments, memory);
        self.pools.clone_from(&planned.pools);
        let number = match number {
            Some(number) => number,
            None => Numbers::take(&self.numbers)?,
        };
        self.values.has_too_many = !self.register_as(&number, &planned.request, Fencing::No)?;
        let new = || Arc::new(RegisteredRequest::of_values(number, arguments, &planned));
        Ok((!self.values.has_too_many).then(new))
    }

    /// Passes values by a general request, through the memory of those before if it suits.
    #[cold]
    fn run_once(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> Result<Completed> {
        let model = self.exchange.model();
        // Before anything is written: a forked child has the memory in common with its parent.
        model.link().check_process()?;
        let last = &mut self.values.last_general;
        let arguments = Arguments::for_values_in(model.types()?, inputs, outputs, |size| {
            reuse(last.take().map(|last| last.memory().clone()), with_reserve(size))
        })?;
        let mut values = ListedValues { inputs, outputs };
        let result = arguments.pass(&mut values, |request| self.execute(request, options));
        self.values.is_last_good = result.is_ok();
        // A request that no ring carries went by a message, and the ring does not tell its end: after a wait
        // that was given up, the memory is not used again.
        if !is_given_up(&result) {
            self.values.last_general = Some(arguments);
        }
        result
    }
}
