//! What people read to see what happens: models as graphs, tags of the log, spans of time.

mod dot;
pub mod tags;
pub mod trace;

pub use dot::Dot;
