//! The control protocol between an application and a driver's worker.
//!
//! Contract: both sides speak first in a fixed layout that every version understands ([`handshake`]), so that
//! two releases that cannot talk can at least say so. Then the client sends [`Call`]s, each under an id of
//! its choice, and the driver sends [`Message`]s: one [`Reply`] or [`nnhal_hal::Failure`] for each call, and
//! later the [`Event`]s of those calls that have any. Descriptors travel beside the message that needs them;
//! how many is part of the message, and a message that brought others than it says is refused
//! ([`Call::fd_count`]).
//!
//! What the bytes are is fixed by lists of their own ([`wire_record!`](crate::wire_record),
//! [`wire_numbers!`](crate::wire_numbers)) and held by golden bytes. How it grows, and what another client
//! needs to know, is said in docs/protocol.md.
//!
//! Nothing received is trusted: a message is decoded from private bytes, each count within them ([`codec`]),
//! and decoding proves its form only. Models and requests are still what a hostile peer may have sent;
//! [`nnhal_hal::validate`] decides on them.
//!
//! The methods of the HAL map to messages as follows; the older versions of a method are the same message
//! with the later arguments at their defaults.
//!
//! | HAL | here |
//! |---|---|
//! | getCapabilities, getVersionString, getType, getSupportedExtensions, getNumberOfCacheFilesNeeded | [`Welcome::device`] |
//! | getStatus | [`Call::GetStatus`] |
//! | getSupportedOperations | [`Call::GetSupportedOperations`] |
//! | prepareModel, IPreparedModelCallback | [`Call::PrepareModel`], [`Event::Prepared`] |
//! | prepareModelFromCache | [`Call::PrepareModelFromCache`], [`Event::Prepared`] |
//! | allocate, IBuffer | [`Call::Allocate`], [`Call::CopyTo`], [`Call::CopyFrom`] |
//! | execute, IExecutionCallback, executeSynchronously | [`Call::Execute`], [`Event::Executed`] |
//! | executeFenced, IFencedExecutionCallback | [`Call::ExecuteFenced`], [`Call::GetExecutionInfo`] |
//! | configureExecutionBurst, IBurstContext, IBurstCallback | [`Call::ConfigureBurst`]; memory slots are [`MemoryHandle`]s |
//! | a handle's destruction | [`Call::Release`] |

#![forbid(unsafe_code)]

mod call;
mod channel;
pub mod codec;
pub mod directory;
mod encoding;
#[cfg(test)]
mod golden;
mod handle;
pub mod handshake;
mod listing;
mod message;
#[cfg(test)]
mod page;
#[cfg(test)]
mod properties;
mod protocol_version;
#[cfg(test)]
mod samples;
mod tables;
mod value;
#[cfg(test)]
mod versions;

pub use call::{
    CacheFiles, Call, Envelope, Execute, ExecuteFenced, ExecutionForm, FenceArgument, FencedLimits,
    MemoryDescription, Object, PrepareModel, PrepareModelFromCache, RequestWithMemories,
};
pub use channel::{Inbox, MAX_PACKET, MessageError, read_inline, send};
pub use handle::{
    BufferHandle, BurstHandle, ExecutionHandle, FenceHandle, Handle, MemoryHandle, PreparedModelHandle,
};
pub use message::{
    Allocated, CauseOfDeath, Event, ExecutionInfo, ExecutionResult, FenceStarted, Message, Reply, Welcome,
    WorkerExit,
};
pub use value::{Field, TypeEntry, Types, Variant, Wire};
