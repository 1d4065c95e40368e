//! What both sides of nnhal share, above the HAL ([`nnhal_hal`]) and the system ([`nnhal_os`]): the wire,
//! message queues, bursts, fences and what people read of them.
//!
//! This crate knows no kernel and opens no socket by itself.
#![deny(unsafe_code)]

pub mod burst;
pub mod diag;
pub mod fence;
#[allow(unsafe_code)]
pub mod fmq;
#[cfg(test)]
mod golden;
pub mod wire;
