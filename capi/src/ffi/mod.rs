//! The boundary to the caller: its pointers, what they point to, and the way back.

mod bytes;
mod exit;
mod fd;
mod guard;
mod pointer;
mod structures;

pub(crate) use bytes::{CallerBuffer, CallerBytes, overlap};
pub(crate) use exit::flush_trace_at_exit;
pub(crate) use fd::duplicate;
pub(crate) use guard::{caught, guard, guard_free};
pub(crate) use pointer::Plain;
pub use pointer::{ConstHandle, Handle, In, Out};
