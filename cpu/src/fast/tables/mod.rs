//! Operations on bytes that a table has the results of.

pub(super) mod byte_table;
