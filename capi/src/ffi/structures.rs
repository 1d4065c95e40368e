//! The structures of the interface that are read where the caller has them.
#![allow(unsafe_code, reason = "promises that any bytes are a value of them")]

use super::Plain;
use crate::types::{ANeuralNetworksOperandType, ANeuralNetworksSymmPerChannelQuantParams};

// SAFETY: numbers, and a pointer that may have any value.
unsafe impl Plain for ANeuralNetworksOperandType {}
// SAFETY: numbers, and a pointer that may have any value.
unsafe impl Plain for ANeuralNetworksSymmPerChannelQuantParams {}
