//! Models that are ready to run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal_device::PreparedModel;
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{ExecutionPreference, Failure, Priority};

use super::estimate::Estimate;
use super::run::Context;
use super::watchdog::Watchdog;
use super::weights::Hold;
use crate::scheduler::{Scheduler, Ticket};

/// A model that is ready to run, with the executions that are free for the next request.
#[derive(Debug)]
pub(crate) struct Prepared {
    model: Arc<ValidModel>,
    device_model: Arc<dyn PreparedModel>,
    preference: ExecutionPreference,
    priority: Priority,
    estimate: Arc<Estimate>,
    scheduler: Arc<Scheduler>,
    watchdog: Arc<Watchdog>,
    free: Mutex<Vec<Context>>,
    /// Of weights that the device model shares with other workers.
    _weights: Option<Hold>,
}

impl Prepared {
    pub(crate) fn new(
        model: Arc<ValidModel>,
        (device_model, weights): (Arc<dyn PreparedModel>, Option<Hold>),
        (preference, priority): (ExecutionPreference, Priority),
        scheduler: &Arc<Scheduler>,
        watchdog: &Arc<Watchdog>,
    ) -> Prepared {
        Prepared {
            estimate: Arc::new(Estimate::of(&model)),
            model,
            device_model,
            preference,
            priority,
            scheduler: Arc::clone(scheduler),
            watchdog: Arc::clone(watchdog),
            free: Mutex::default(),
            _weights: weights,
        }
    }

    /// The model. No other prepared model has the same object.
    pub(crate) fn model(&self) -> &Arc<ValidModel> {
        &self.model
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    pub(crate) fn preference(&self) -> ExecutionPreference {
        self.preference
    }

    /// Whether all runs do the same work.
    pub(crate) fn is_steady(&self) -> bool {
        self.estimate.is_steady()
    }

    /// A context of its own for one run at a time.
    pub(crate) fn new_context(&self) -> Result<Context, Failure> {
        let ticket = Ticket::new(&self.scheduler, self.priority);
        Ok(Context::new(
            self.device_model.new_execution()?,
            ticket,
            &self.watchdog,
            &self.estimate,
        ))
    }

    /// A context that ran before, if one is free.
    pub(crate) fn take_context(&self) -> Result<Context, Failure> {
        let free = self.lock().pop();
        match free {
            Some(context) => {
                context.ticket().reset();
                Ok(context)
            }
            None => self.new_context(),
        }
    }

    /// Keeps a context for the next request, if it can be used again.
    pub(crate) fn give_back(&self, context: Context) {
        if !context.is_lost() {
            self.lock().push(context);
        }
    }

    /// Whether contexts keep their memory while nothing runs: a stream of executions for sustained speed
    /// shall not pay for its pauses.
    pub(crate) fn keeps_memory(&self) -> bool {
        self.preference == ExecutionPreference::SustainedSpeed
    }

    /// Gives back the scratch memory of contexts that are free.
    pub(crate) fn release_memory(&self) {
        let mut free = self.lock();
        // One stays; the others were made for executions at the same time.
        free.truncate(1);
        if !self.keeps_memory() {
            free.iter_mut().for_each(Context::release_memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Context>> {
        // The list is whole between any two statements of this module.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
