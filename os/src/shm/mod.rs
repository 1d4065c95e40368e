//! Memory that two processes map.
//!
//! Contract: memory that another process can write is never borrowed. [`SharedSlice`] copies between it and
//! private memory, bounds-checked, so that what is checked afterwards is what was copied. Only memory that
//! nobody can write any more (sealed with `F_SEAL_WRITE` and `F_SEAL_SHRINK`) is seen as `&[u8]`, by
//! [`Mapping::as_bytes`] and [`SealedBytes`].
//!
//! Memory that devices share as well (a dma-buf) is mapped, never read as a file, and every access is told to
//! the kernel ([`Mapping::begin`]).
//!
//! Descriptors from a peer become [`SharedMemory`] by [`SharedMemory::from_fd`], which refuses everything
//! that is not a file or dma-buf of the declared size. Memory that its owner can still shrink may fault when
//! it is touched; that ends the process that mapped it, after
//! [`report_bus_errors`] has told which memory it was. This is why only workers, one per client, map what a
//! client can shrink. [`SharedMemory::cannot_shrink`] tells the two apart.

mod access;
mod bus_error;
mod copy;
mod error;
mod mapping;
mod memory;
mod read;
mod sealed;
mod slice;

pub use access::Access;
pub use bus_error::{BusError, FaultyMemory, report_bus_errors};
pub use error::ShmError;
pub use mapping::{Mapping, OngoingAccess};
pub use memory::SharedMemory;
pub use sealed::SealedBytes;
pub use slice::SharedSlice;
