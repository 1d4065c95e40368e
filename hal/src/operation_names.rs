//! The names of operations: those of the HAL, and of the extension [`tflite`].

use super::{OperationType, tflite};

impl OperationType {
    /// The HAL's name, or the one in [`tflite`]; `None` for an unknown operation or one of another extension.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let known = self.facts().map(|(name, ..)| name);
        known.or_else(|| tflite::facts(self).map(|(name, _)| name))
    }

    /// What it computes, in a sentence; `None` where there is no name.
    #[must_use]
    pub fn description(self) -> Option<&'static str> {
        let known = self.facts().map(|(.., description)| description);
        let known = known.or_else(|| tflite::facts(self).map(|(_, description)| description));
        known.map(str::trim)
    }

    /// The operation with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<OperationType> {
        OperationType::ALL
            .iter()
            .chain(tflite::OPERATIONS)
            .copied()
            .find(|operation| operation.name() == Some(name))
    }
}

impl std::fmt::Display for OperationType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None if self.is_extension() => {
                write!(
                    f,
                    "extension operation {:#x}:{}",
                    self.extension_prefix(),
                    self.extension_number()
                )
            }
            None => write!(f, "unknown operation {}", self.0),
        }
    }
}

impl std::fmt::Debug for OperationType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
