//! Devices in the form of HAL 1.0, 1.1 or 1.2, and what makes a [`crate::Device`] of them.
//!
//! For drivers that were written against an older interface. A vendor implements [`v1_0::Device`],
//! [`v1_1::Device`] or [`v1_2::Device`], whose methods are those of the HAL's `IDevice` of that version in
//! Rust names, over the types of [`nnhal_hal::versions`], and hands it to [`serve_v1_0`], [`serve_v1_1`] or
//! [`serve_v1_2`]. Clients see [`nnhal_hal::DeviceInfo::hal_version`], and otherwise a device like any other:
//!
//! | what the version lacks | what happens |
//! |---|---|
//! | operations, types, argument lists | the device is asked about the part of a model that its version can express, and about no other; the rest is unsupported, with the reason |
//! | the relaxed flag (1.0) | it is dropped: the device computes strictly |
//! | version and type (1.0, 1.1) | `UNKNOWN` and `OTHER` |
//! | figures for each operand type | those of the older version go to the types that they stood for; IF and WHILE have none |
//! | synchronous executions (1.0, 1.1) | the driver waits for the callback |
//! | bursts, fences, device buffers, priorities, cancelling before the start | the driver library's own machinery, for which a device only executes |
//! | deadlines | refused before the start if the estimate says so; a preparation or execution that is under way when its deadline passes is left to the device, and what comes of it is dropped |
//! | reasons | the status, and which call gave it |
//! | outputs of unknown dimensions (1.0, 1.1) | `INVALID_ARGUMENT` unless the request gives them; 1.2 has them, and runs again with more room if it says that it needs more |
//! | caching (1.0, 1.1) | none, since a release without a version cannot be told from the next; 1.2 has the driver library's |
//!
//! # The contract
//!
//! That of [`crate`] holds, with these differences. Models and requests are valid for the version. A callback
//! is used up by notifying, so that it is notified at most once; one that is dropped counts as
//! `GENERAL_FAILURE`. It may be notified before the call that got it returns, or later, from any thread. The
//! memories of a request belong to the device from the call to the notification: nobody else looks at them
//! meanwhile, and afterwards they are the driver's. A device that neither answers nor notifies for longer
//! than the watchdog's limit is taken for hung. Executions through these interfaces allocate.

mod awaited;
mod execution;
mod execution_callback;
mod failure;
mod memory;
mod preparation_callback;
mod prepared_model;
mod serve;
pub mod v1_0;
pub mod v1_1;
pub mod v1_2;

pub use execution_callback::ExecutionCallback;
pub use memory::RequestMemories;
pub use preparation_callback::PreparedModelCallback;
pub use serve::{serve_v1_0, serve_v1_1, serve_v1_2};

#[cfg(test)]
mod tests;
