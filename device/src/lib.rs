//! What a vendor implements to put a device behind a driver.
//!
//! A vendor's devices need this crate alone. The HAL's types are [`hal`], what validation gives a device is
//! [`hal::validate`], and [`os`] has clocks, deadlines and shared memory. The library `nnhal-driver` makes a
//! daemon of devices; `examples/vendor-driver` is such a driver. Tests of a device need no driver:
//! [`Undisturbed`] stands for one.
//!
//! # The contract
//!
//! A vendor implements three traits: [`Device`], which answers questions and prepares models;
//! [`PreparedModel`], which holds what preparing produced; and [`Execution`], which holds the memory of one
//! run at a time. Everything else (the protocol, processes, memories, bursts, fences, deadlines, priorities,
//! quotas) is the driver library's.
//!
//! - **What a device sees is valid.** Models and requests have passed [`hal::validate`] before a device is
//!   asked: structure, types, signatures and locations hold, and constants are in memory that no other
//!   process can change. A device does not check again. Operands of an extension's types have dimensions and
//!   sizes as [`hal::DeviceInfo::extensions`] says. What validation cannot know, because it depends on values
//!   (an axis, an index into a table) or on an extension (the signatures of its operations, the parameters of
//!   its types), is the device's to check, without panicking.
//! - **What a device computes with is private.** A device copies each input once from where it is
//!   ([`InputSource`]) to where it needs it, which need not be memory of the host. The driver copies outputs
//!   from the device. A device never sees a pointer to memory that another process can write.
//! - **Each client has a process of its own**, and in it each device an object of its own. A device that
//!   crashes or hangs ends that client's worker and nothing else. Global state, files and threads are per
//!   worker.
//! - **Workers run under a jail** that is entered before the first client is known, after the devices have
//!   been created. From then on nothing is opened or executed, and system calls are few. A device that needs
//!   more says so with its entry in the driver's registry ([`Needs`]).
//! - **Threads.** A device is called from several threads at once. One `Execution` is used by one thread at a
//!   time, not always the same. A device that computes an execution with threads of its own asks
//!   [`Control::cores`] for processors, uses one thread for models of preference `LOW_POWER`, and ends the
//!   threads in [`Execution::release_memory`].
//! - **Long work asks [`Control::checkpoint`]** between operations, and where that is possible after 200 us
//!   of work within one. It returns an error when the work shall end (deadline, cancellation, end of the
//!   session), and blocks while work of higher priority goes first. Work that does not ask for longer than
//!   the watchdog's limit is taken for hung, and the worker is ended.
//! - **A device that computes by itself** gives [`Execution::queued`]. The driver submits the work then, and
//!   waits for the fence that the device returns, with the request's deadline and under the watchdog.
//! - **No allocation in steady state.** Once an execution has run with certain shapes, running it again with
//!   the same shapes should not allocate: bursts rely on it for their latency.
//! - **Device buffers** ([`DeviceMemory`]) are written once and then only read, by any number of executions
//!   at once: a buffer that the client writes again gets new memory. So a device can hand what one execution
//!   computed to the next without copying, and without locking; the driver gives memory back to an execution
//!   when nobody reads it any more ([`Execution::recycle`]).
//! - **Compilation caches.** A device that asks for cache files need not do anything else: what is kept is
//!   the model with its constants, which is prepared again. One that takes its time to prepare gives
//!   [`PreparedModel::compiled`] and takes it back in [`Device::restore`].
//! - **Weights in memory once.** What [`PreparedModel::compiled`] gives is also what clients of the same user
//!   share: the driver library puts it into memory that all their workers map, and has [`Device::restore`]
//!   make the model ready from there. A device that leaves it where it is keeps no copy of its own.
//! - **Memory between runs.** The driver calls [`Execution::release_memory`] on executions that have not run
//!   for a while.
//! - **Failures** are a HAL status and a text that tells a person what was wrong, where, and what would be
//!   right.

#![forbid(unsafe_code)]

mod compiled;
mod control;
mod device;
mod execution;
mod input;
mod memory;
mod needs;
pub mod older;
mod options;
mod queued;

pub use compiled::{CACHE_FILES, Compiled};
pub use control::{Control, Interruption, Undisturbed, Work};
pub use device::{Device, PrepareOptions};
pub use execution::{Execution, PreparedModel};
pub use input::InputSource;
pub use memory::{DeviceMemory, exhaustion};
pub use needs::{Need, Needs};
pub use options::DeviceOptions;
pub use queued::QueuedExecution;

pub use nnhal_hal as hal;
pub use nnhal_os as os;
