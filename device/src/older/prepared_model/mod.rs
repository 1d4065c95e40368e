//! Prepared models of older versions.

pub(super) mod v1_0;
pub(super) mod v1_2;
