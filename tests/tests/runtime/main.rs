//! The runtime of the client library against real daemons.

mod arguments;
mod caching;
mod common;
mod devices;
mod fallback;
mod fenced;
mod memories;
mod partitions;
mod random;
mod recovery;
