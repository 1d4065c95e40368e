//! The types of NN HAL 1.0, 1.1 and 1.2 where they differ from those of 1.3, and the way up and down between
//! them.
//!
//! Only what differs is here. Operations, operand types (numbers), locations, arguments, performance figures,
//! pools, preferences, output shapes and timings are the same in every version that has them: those of
//! [`crate`].
//!
//! - **Up** nothing is lost: `From` and the methods `to_latest` take a value of an older version to that of
//!   1.3, by the rules of the HAL's reference. What the older version does not say gets the value that
//!   changes nothing.
//! - **Down** something may be. A [`Downcast`] is a value of an older version with the list of what it no
//!   longer says; [`Inexpressible`] says why there is no such value. Taken up again, a value is what it was
//!   if nothing was lost.
//! - `compliant_with` answers the reference's question, which is a weaker one: may the value be used where
//!   the older version is spoken? A device whose figures for IF are dropped may, one whose float figures
//!   differ may not.
//!
//! Whether an operation's signature is one of an older version is known to [`crate::ops`]: the way down for
//! models is [`crate::validate::ValidModel::to_v1_0`] and its like, and
//! [`crate::validate::ValidModel::compliant_with`].
//!
//! Source: `types.hal` of NN HAL 1.0 to 1.3, and the conversions of the reference (`compliantWith`,
//! `convertTo`).

mod capabilities;
pub(crate) mod model;
mod request;
mod status;
pub mod v1_0;
pub mod v1_1;
pub mod v1_2;

use std::fmt;

use super::HalVersion;

/// Something that a value of an older version does not say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {reason}")]
pub struct Loss {
    /// What of the value.
    pub part: String,
    /// What becomes of it, and which version has it.
    pub reason: String,
}

impl Loss {
    pub(crate) fn new(part: impl Into<String>, reason: impl Into<String>) -> Loss {
        Loss {
            part: part.into(),
            reason: reason.into(),
        }
    }
}

/// A value in the form of an older version.
#[derive(Clone, Debug, PartialEq)]
pub struct Downcast<T> {
    /// The value.
    pub value: T,
    /// What it does not say; empty if taking it up again gives what it was made from.
    pub losses: Vec<Loss>,
}

impl<T> Downcast<T> {
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Downcast<U> {
        Downcast {
            value: convert(self.value),
            losses: self.losses,
        }
    }
}

/// Why a value has no form in an older version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inexpressible {
    /// The version.
    pub version: HalVersion,
    /// What stands in the way; never empty.
    pub obstacles: Vec<Loss>,
}

/// Most obstacles that a message names; the others are counted.
const NAMED_OBSTACLES: usize = 4;

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HAL {} cannot express it: ", self.version)?;
        for (index, obstacle) in self.obstacles.iter().take(NAMED_OBSTACLES).enumerate() {
            write!(f, "{}{obstacle}", if index == 0 { "" } else { "; " })?;
        }
        match self.obstacles.len().saturating_sub(NAMED_OBSTACLES) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Inexpressible {}

#[cfg(test)]
mod properties;
