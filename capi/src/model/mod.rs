//! Models.

mod draft;
mod finish;
#[cfg(test)]
mod finish_tests;
mod finished;
mod order;
mod signature;
#[cfg(test)]
mod signature_tests;
mod value;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal_client::OperationType;
use nnhal_hal::{ExtraParams, SymmPerChannelQuantParams};

use self::draft::Draft;
pub(crate) use self::finished::Finished;
pub(crate) use self::value::NewValue;
use crate::result::{Failure, Outcome};

/// What is behind an `ANeuralNetworksModel`.
#[derive(Debug)]
pub(crate) struct Model {
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Operands and operations are added.
    Open(Draft),
    Finished(Arc<Finished>),
    /// Finishing has failed.
    Invalid,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            state: Mutex::new(State::Open(Draft::default())),
        }
    }
}

impl Model {
    /// The model, which must be finished.
    pub(crate) fn finished(&self) -> Outcome<Arc<Finished>> {
        match &*self.lock() {
            State::Finished(finished) => Ok(Arc::clone(finished)),
            State::Open(_) => Err(Failure::bad_state(
                "the model is not finished; call ANeuralNetworksModel_finish first",
            )),
            State::Invalid => Err(Failure::bad_state(
                "the model is invalid: ANeuralNetworksModel_finish has failed",
            )),
        }
    }

    pub(crate) fn finish(&self) -> Outcome {
        self.change(|_| Ok(()))?;
        let mut state = self.lock();
        let State::Open(draft) = std::mem::replace(&mut *state, State::Invalid) else {
            return Err(Failure::bad_state("the model was finished meanwhile"));
        };
        *state = State::Finished(Arc::new(Finished::new(draft)?));
        Ok(())
    }

    /// Changes a model that is not finished.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Draft) -> Outcome<T>) -> Outcome<T> {
        match &mut *self.lock() {
            State::Open(draft) => change(draft),
            State::Finished(_) => Err(Failure::bad_state(
                "the model is finished and cannot be changed any more",
            )),
            State::Invalid => Err(Failure::bad_state(
                "the model is invalid since ANeuralNetworksModel_finish has failed, and cannot be changed any more",
            )),
        }
    }

    pub(crate) fn set_value(&self, index: i32, value: NewValue) -> Outcome {
        self.change(|draft| draft.set_value(index, value))
    }

    pub(crate) fn set_channels(&self, index: i32, params: SymmPerChannelQuantParams) -> Outcome {
        self.change(|draft| draft.set_extra_params(index, ExtraParams::ChannelQuant(params)))
    }

    pub(crate) fn add_operation(&self, kind: i32, inputs: Vec<u32>, outputs: Vec<u32>) -> Outcome {
        // Extension values use all 32 bits.
        let kind = OperationType(kind.cast_unsigned());
        self.change(|draft| draft.add_operation(kind, inputs, outputs))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
