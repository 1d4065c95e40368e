//! Device buffers: allocation, copies, and their use in executions (cases A, K and E of the VTS inventory).

mod allocation;
mod bench;
mod bursts;
mod copies;
mod executions;
