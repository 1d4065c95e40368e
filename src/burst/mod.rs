//! Burst packets: what travels on the two rings of a burst.
//!
//! # Contract
//! The client sends requests on one ring of a [`crate::fmq`] channel and receives one result for each, in
//! order, on the other. A request comes in two forms. The *general* one spells every argument out. A
//! *registered* one is spelled out once, under a number that the client chooses; *firing* it afterwards is a
//! header and, if the layout says so, the bytes of small inputs: one cell of the ring for up to
//! [`FIRE_INLINE_BYTES`] bytes. Small outputs come back the same way inside the result.
//!
//! # Pools
//! An argument's location refers to the packet's own list of [`Pool`]s: memories by their handle (the HAL's
//! memory slots), or one of two pools that are the packet itself: [`Pool::InlineInputs`] inside the request,
//! [`Pool::InlineOutputs`] inside the result.
//!
//! # What is trusted
//! Nothing. Decoders are total functions over any bytes: every count is bounded by the bytes that are there
//! before it is used, enumerations and padding are checked, and what is left over must be the zeros that fill
//! the last cell. They decode into memory that is used again, so that steady state allocates nothing.
//!
//! Source: the duties B1 to B11 of NN HAL 1.2 bursts; the encoding is our own, since the HAL's tagged unions
//! are four times as large. HAL bursts carry no deadline; ours may.

mod bytes;
#[cfg(test)]
mod golden;
mod request;
mod result;

/// Most requests that can be registered with one burst: numbers from 0 to one less.
pub const MAX_REGISTERED: u16 = 1024;

pub use bytes::{PacketError, copy_values, put_values};
pub use request::{
    FIRE_INLINE_BYTES, Fencing, Pool, RequestBody, RequestHeader, RequestPacket, claimed_sequence,
    decode_request, encode_fire, encode_general, encode_register, encode_register_fenced, encode_unregister,
};
pub use result::{
    MAX_DETAIL_BYTES, RESULT_INLINE_BYTES, ResultBody, ResultHeader, decode_result, encode_failure,
    encode_success,
};
