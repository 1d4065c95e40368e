//! What a burst keeps for values in this process's own memory.

use std::sync::Arc;

use super::registered::RegisteredRequest;
use crate::arguments::Arguments;
use crate::values::{Input, Output};

/// How many registered requests are kept: calls that take turns among a few sizes meet them again. A choice,
/// not a measurement: each keeps memory for its values, and a call looks through all of them.
pub(super) const KEPT: usize = 8;

/// The system gives memory by so many bytes.
const PAGE: u64 = 4096;

/// What [`Burst::run`] keeps from one call to the next.
#[derive(Debug, Default)]
pub(super) struct KeptForValues {
    /// By which values are passed, each for others. The one that was used last is the last.
    pub(super) registered: Vec<Arc<RegisteredRequest>>,
    /// Through which values were passed last that none of them is for.
    pub(super) passed: Option<Arguments>,
    /// Whether the model has more arguments than a ring can name.
    pub(super) has_too_many: bool,
}

impl KeptForValues {
    /// Takes the registered request for such values.
    #[inline]
    pub(super) fn take(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Option<Arc<RegisteredRequest>> {
        let last = self.registered.len().checked_sub(1)?;
        let at = self
            .registered
            .iter()
            .rposition(|registered| registered.fits(inputs, outputs))?;
        if at == last {
            self.registered.pop()
        } else {
            Some(self.registered.remove(at))
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.registered.len() == KEPT
    }
}

/// So many bytes as the system gives memory by.
pub(super) fn whole_pages(size: u64) -> u64 {
    size.checked_next_multiple_of(PAGE).unwrap_or(size)
}

/// Whether memory of one size serves values of another: neither too small nor mostly empty.
pub(super) fn suits(memory: u64, size: u64) -> bool {
    size <= memory && memory / 4 <= whole_pages(size)
}
