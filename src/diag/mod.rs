//! Models as people read them.

mod dot;

pub use dot::Dot;
