//! Fast message queues: rings of cache-line cells in shared memory, one per direction, with a futex to sleep
//! on.
//!
//! # Contract
//! A ring has one [`Producer`] and one [`Consumer`], each owned by one thread at a time, usually in different
//! processes. A packet is 1 to `capacity` cells of 56 bytes, arrives whole, once and in order, or not at all;
//! its length is rounded up to whole cells with zero bytes. While both sides are awake neither makes a system
//! call, allocates or locks: a packet of one cell moves one cache line. A side that has waited for more than
//! 4 us may let other threads have its processor (see below).
//!
//! # What is trusted
//! Nothing the peer can write. Each side keeps its own position in private memory. A cell's sequence word
//! must be one of the two values that an honest producer can have left there, the consumed position must lie
//! between what was seen last and what was produced; anything else poisons that end for ever
//! ([`Misbehaviour`]). No value read from the ring is used as an index or a size without a bound. Work per
//! received packet is bounded by the capacity.
//!
//! # Sequence
//! A cell holds 56 payload bytes and a sequence word: the position in the stream plus one, shifted left by
//! 16, and in the low 16 bits how many cells the packet has (0 in the cells after its first). The producer
//! fills a packet's cells from the second on and stores the first one's sequence word last, which commits all
//! of them.
//!
//! # Sleeping
//! A consumer with nothing to do polls for a window ([`WaitSettings`]), then announces its sleep in the
//! doorbell word, looks once more, and sleeps on that word. Through long waits that are alike it sleeps
//! until a little before their end, and polls again. Until nobody has wanted it for a while, it offers its
//! processor after 4 us of polling and after such a sleep to other threads by `sched_yield`, so that a
//! deadline can be missed by what one of them takes, some milliseconds at most. Where they take it for long
//! on average, it sleeps at once instead. A producer looks at the word after each packet, and makes the wake
//! system call only if there is a sleeper. Each side has a full fence between its store and its look, so one
//! of the two sees the other. A consumer that has received 256 cells without a sleep spares the producer
//! that fence. The two can miss each other then, so the consumer wakes up 100 us after it has fallen asleep,
//! and once more after 10 ms, to look again (`suppression.rs`).
//!
//! # Several rings
//! One thread can wait for the packets of several rings ([`WaitSet`]): it polls all of them and sleeps on all
//! of their words (`futex_waitv`). Nothing changes for the producers.
//!
//! # The end
//! Either end dropped, or [`ChannelCloser::close`], ends the ring by a word of its own and wakes the sleeper;
//! packets sent before are still received. A peer that dies says nothing, so the thread that watches the
//! peer's socket or pid descriptor calls `close`, and nobody has to wake up now and then to look.

mod calibrate;
mod closer;
mod consumer;
mod error;
mod layout;
mod packet;
mod parked;
mod producer;
mod receive;
mod suppression;
mod sync;
mod wait;
mod wait_set;
mod waker;
mod words;
mod yielder;

#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod channel_layout;
#[cfg(loom)]
#[path = "memory_loom.rs"]
mod memory;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "sleeper_word_loom.rs"]
mod sleeper_word;

#[cfg(not(loom))]
pub use channel::{ChannelEnd, ChannelSize};
pub use closer::ChannelCloser;
pub use consumer::Consumer;
pub use error::{ChannelError, Misbehaviour, ReceiveError, SendError};
pub use layout::{CELL_BYTES, MAX_CELLS, PAYLOAD_BYTES};
pub use packet::Packet;
pub use producer::Producer;
pub use receive::Came;
pub use wait::WaitSettings;
pub use wait_set::{EmptyWaitSet, MAX_WAIT_SET, WaitSet};
pub use waker::Waker;

#[cfg(all(test, not(loom)))]
mod golden;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod suppression_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod wait_set_tests;
