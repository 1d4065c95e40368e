//! What a burst keeps for values in this process's own memory.

use std::sync::Arc;

use super::registered::RegisteredRequest;
use crate::arguments::Arguments;
use crate::values::{Input, Output};

/// How many registered requests are kept: calls that take turns among a few sizes meet them again. A choice,
/// not a measurement: each keeps memory for its values, and a call looks through all of them.
pub(super) const KEPT: usize = 8;

/// What [`Burst::run`] keeps from one call to the next.
#[derive(Debug, Default)]
pub(super) struct KeptForValues {
    /// By which values are passed, each for others. The one that was used last is the last.
    pub(super) registered: Vec<Arc<RegisteredRequest>>,
    /// Those that were passed by a general request last, whose memory serves the next.
    pub(super) last_general: Option<Arguments>,
    /// Whether that went well, so that a request is registered for values like them.
    pub(super) is_last_good: bool,
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
        let mut registered = self.registered.iter();
        let at = registered.rposition(|registered| registered.fits(inputs, outputs))?;
        Some(self.registered.remove(at))
    }

    pub(super) fn is_full(&self) -> bool {
        self.registered.len() == KEPT
    }
}
