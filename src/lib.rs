//! The contract that both sides of nnhal share: the types of the NN HAL, the operation table, validation, and the
//! shared memory and message queues through which application and driver talk.
//!
//! This crate knows no kernel and opens no socket by itself.
#![deny(unsafe_code)]

pub mod burst;
pub mod diag;
pub mod fence;
#[allow(unsafe_code)]
pub mod fmq;
pub mod hal;
pub mod ops;
#[allow(unsafe_code)]
pub mod shm;
#[allow(unsafe_code)]
pub mod sys;
pub mod time;
pub mod validate;
pub mod wire;
