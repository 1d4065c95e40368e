//! The only home of raw system calls.

pub mod socket;
