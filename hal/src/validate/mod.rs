//! From what a peer sent to what may be relied on.
//!
//! [`ValidModel`] and [`ValidRequest`] cannot be made but by checking; everything below this module takes
//! them and nothing else. Checks are pure: they read no clock, no file and no shared memory. Whatever another
//! process could still change must have been copied before.
//!
//! Source of the rules: the NN HAL 1.0 to 1.3 interface text. Every violation is INVALID_ARGUMENT there.

mod compliance;
mod context;
mod control_flow;
mod graph;
pub mod limits;
mod model;
mod operand;
mod operation;
mod request;
mod slicing;

pub use compliance::Compliance;
pub use context::ModelError;
pub use control_flow::check_control_flow;
pub use model::ValidModel;
pub use operand::{check_declaration, check_extra_params};
pub use request::{ArgumentPlan, Direction, RequestError, ValidRequest};
pub use slicing::Slice;
