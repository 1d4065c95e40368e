//! Values of states in this process.

use nnhal_tflite::State;

use crate::error::{Error, Result};

/// The values that all states of a model had at one time, as the operands' bytes. It outlives the worker, and
/// a program may write it to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesCopy {
    values: Vec<(String, Vec<u8>)>,
}

impl StatesCopy {
    /// A copy with these values, of each state by its name, in the order of the model's states.
    #[must_use]
    pub fn new(values: Vec<(String, Vec<u8>)>) -> StatesCopy {
        StatesCopy { values }
    }

    /// The names and values, in the order of the model's states.
    #[must_use]
    pub fn values(&self) -> &[(String, Vec<u8>)] {
        &self.values
    }

    /// The value of the first state with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.values.iter();
        let found = values.find(|(known, _)| known == name);
        found.map(|(_, value)| &value[..])
    }

    /// Refuses a copy of other states.
    pub(super) fn expect_of<'s>(&self, states: impl ExactSizeIterator<Item = &'s State>) -> Result<()> {
        if self.values.len() != states.len() {
            return Err(Error::argument(format!(
                "the copy has {} states, the model has {}",
                self.values.len(),
                states.len()
            )));
        }
        for (index, (state, (name, value))) in states.zip(&self.values).enumerate() {
            if state.name != *name {
                return Err(Error::argument(format!(
                    "state {index} of the copy is {name:?}, that of the model is {:?}",
                    state.name
                )));
            }
            expect_size(state, value)?;
        }
        Ok(())
    }
}

/// Refuses a value of another size than the state's.
pub(super) fn expect_size(state: &State, value: &[u8]) -> Result<()> {
    if value.len() == state.initial.len() {
        return Ok(());
    }
    Err(Error::argument(format!(
        "state {:?} has {} bytes, {} were given",
        state.name,
        state.initial.len(),
        value.len()
    )))
}
