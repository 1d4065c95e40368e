//! Why a call failed, beyond the HAL's status.

use serde::{Deserialize, Serialize};

use super::ErrorStatus;

/// Why a call failed: the HAL's status, and what a person needs to know beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{status}: {detail}")]
pub struct Failure {
    /// The HAL's status, never `NONE`.
    pub status: ErrorStatus,
    /// What was wrong and what would be right; at most [`Failure::MAX_DETAIL`] bytes.
    pub detail: String,
    /// What it concerns.
    pub place: Place,
}

/// What a failure concerns, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Index of the referenced subgraph; the main graph if absent.
    pub subgraph: Option<u32>,
    /// Index of the operation in its subgraph.
    pub operation: Option<u32>,
    /// Index of the operand in its subgraph.
    pub operand: Option<u32>,
    /// Index of the pool in the model or request.
    pub pool: Option<u32>,
}

impl Failure {
    /// The longest text that a failure carries, in bytes.
    pub const MAX_DETAIL: usize = 2048;

    /// A failure with this status and text; a text beyond [`Failure::MAX_DETAIL`] is cut.
    #[must_use]
    pub fn new(status: ErrorStatus, detail: impl Into<String>) -> Failure {
        debug_assert_ne!(status, ErrorStatus::None, "a failure has a status");
        let mut detail = detail.into();
        if detail.len() > Failure::MAX_DETAIL {
            detail.truncate(detail.floor_char_boundary(Failure::MAX_DETAIL - '…'.len_utf8()));
            detail.push('…');
        }
        Failure {
            status,
            detail,
            place: Place::default(),
        }
    }

    /// `INVALID_ARGUMENT`.
    #[must_use]
    pub fn invalid_argument(detail: impl Into<String>) -> Failure {
        Failure::new(ErrorStatus::InvalidArgument, detail)
    }

    /// `GENERAL_FAILURE`.
    #[must_use]
    pub fn general(detail: impl Into<String>) -> Failure {
        Failure::new(ErrorStatus::GeneralFailure, detail)
    }

    /// The same failure, at this place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Failure {
        self.place = place;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_detail_is_cut_at_a_character() {
        let failure = Failure::general("é".repeat(Failure::MAX_DETAIL));
        assert!(failure.detail.len() <= Failure::MAX_DETAIL);
        assert!(failure.detail.ends_with("é…"), "{}", failure.detail);
        assert_eq!(Failure::general("short").detail, "short");
    }
}
