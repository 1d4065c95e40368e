//! The runtime of the client library against real daemons.

mod arguments;
mod caching;
mod common;
mod devices;
mod extensions;
mod fallback;
mod fenced;
mod memories;
mod models;
mod older;
mod partitions;
mod random;
mod recovery;
mod started;
