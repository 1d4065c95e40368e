//! The atomics of the ring: the standard library's, or loom's where the protocol is model-checked.

pub(super) use std::sync::atomic::compiler_fence;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The word that a consumer sleeps on.
#[cfg(not(loom))]
pub(super) type SleeperWord = AtomicU32;
#[cfg(loom)]
pub(super) use super::sleeper_word::SleeperWord;
