//! Plans how a validated model is computed.
//!
//! A [`Program`] is made once from a model. Constants are copied into aligned memory, and operations on
//! nothing else are computed (`folding`). Each other operation becomes a node (`lower`). The graph of these
//! is rewritten (`graph`, `passes`): nodes that are worth computing as one by the figures of `cost` become
//! one. The last reader of every temporary is found (`memory`). What is left is a list of nodes.
//!
//! Where the model leaves extents of its inputs open, that is done again for shapes which inputs have often
//! (`shaped`, `shapes`).

mod compiled;
mod constants;
pub(crate) mod cost;
mod declared;
mod error;
mod fixed_outputs;
mod folding;
mod graph;
mod kernel_set;
mod lower;
pub(crate) mod memory;
pub(crate) mod node;
mod passes;
mod program;
mod shaped;
mod shapes;
mod traffic;

pub(crate) use declared::Declared;
pub(crate) use fixed_outputs::FixedOutputs;
pub(crate) use lower::Plan;

pub use compiled::{CompiledProgram, compiled_form};
pub use error::ProgramError;
pub use kernel_set::KernelSet;
pub(crate) use shapes::{Found, InputShapes};

pub use program::Program;
