//! The conformance corpus of the NN HAL, and the procedures that hold an implementation to it.
//!
//! The corpus is data: models, inputs and the outputs they must give, one JSON file for each specification
//! ([`corpus`]). A case becomes a model and a request ([`instance`]), goes through its procedures
//! ([`procedure`]) against any [`implementation::Implementation`], and its outputs are held to the accuracy
//! rules ([`accuracy`]). Two implementations exist: the executor as a library ([`in_process`]) and, in the
//! `nnhal` command, a device across the process boundary, so that a wrong kernel and a wrong transport can be
//! told apart.
//!
//! # For writers of kernels
//!
//! ```text
//! cargo run -p nnhal-conformance --bin conformance-in-process -- --op CONV_2D
//! cargo run -p nnhal-conformance --bin conformance-in-process -- --filter '^conv_float' --verbose
//! ```
//!
//! prints every case that failed with the reason (the first wrong elements, a refusal's text, a panic's
//! place) and counts for each operation, and exits with 1 if any failed. A case with an operation that has no
//! kernel or no entry in the operation table is skipped. The corpus is looked for in
//! `$NNHAL_SHARED/conformance`, by default in the folder `shared` beside the checkout.
//!
//! `cargo test -p nnhal-conformance` runs everything and compares with `passed.txt`: how many cases pass for
//! each operation. A count that falls fails the test; one that rises is recorded by `conformance-in-process
//! --record`.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod corpus;
pub mod coupling;
pub mod element;
pub mod fuzzing;
pub mod generator;
pub mod implementation;
pub mod in_process;
pub mod instance;
pub mod negative;
pub mod procedure;
pub mod ratchet;
pub mod report;
pub mod runner;
