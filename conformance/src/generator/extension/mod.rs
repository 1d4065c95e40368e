//! What the extension's operations take that NNAPI's do not: by their parameters' names, as for NNAPI's.
//!
//! An operation of the extension that does what NNAPI's does has that one's arguments, too. Nothing here
//! knows the others.

mod extents;
mod integers;
mod scalars;
mod shapes;
mod values;

pub(super) use integers::integers;
pub(super) use scalars::scalar;
pub(super) use shapes::{of, spelled_out};
pub(super) use values::value;

#[cfg(test)]
mod tests;
