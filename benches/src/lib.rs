//! Measurements of nnhal beside the limits of the hardware and beside other ways to talk to another process.
//!
//! - [`bursting_client`]: applications that execute as fast as they can, for what many of them do to each
//!   other.
//! - [`capabilities`]: how fast `nnhal-cpu` is beside `nnhal-reference`, by the models of [`workloads`].
//! - [`contest`]: what latency measurements share: [`Contestant`]s, which make round trips to another process
//!   one after the other, measured in interleaved rounds by [`Contest`], which gives a [`Report`].
//! - [`fairness`]: how evenly such applications were served.
//! - [`library`]: `libneuralnetworks.so`, opened by name as programs do.
//! - [`other_side`]: the other processes. A measuring program starts itself again as one.
//! - [`passing`]: how arguments reach the worker.
//! - [`program`]: what programs that measure are besides: their own driver, and the other sides of their
//!   rows.
//! - [`rows`]: the contestants that need nothing but nnhal and the system. Peers are in the package
//!   `nnhal-bench-peers`.

#![forbid(unsafe_code)]

pub mod bursting_client;
pub mod capabilities;
pub mod conditions;
pub mod contest;
mod error;
pub mod fairness;
pub mod library;
pub mod machine;
pub mod models;
pub mod other_side;
pub mod passing;
pub mod program;
pub mod report;
pub mod rows;
pub mod samples;
pub mod workloads;

pub use contest::{Contest, Contestant};
pub use error::Error;
pub use other_side::OtherSide;
pub use passing::Passing;
pub use report::{Report, Row};

/// What the functions here return.
pub type Result<T> = std::result::Result<T, Error>;
