//! What can go wrong with a queue.

use nnhal_os::SysError;
use nnhal_os::shm::ShmError;

/// Something in the shared memory that no honest peer writes there. The end that found it refuses all further
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// A cell's sequence word is neither the next one nor that of a lap ago.
    #[error("the cell at position {position} has the sequence word {found:#x}")]
    Sequence {
        /// Position of the cell in the stream.
        position: u64,
        /// What the sequence word held.
        found: u64,
    },
    /// A packet claims no cells or more than the ring has.
    #[error("the packet at position {position} claims {cells} cells, where 1 to {capacity} are possible")]
    PacketLength {
        /// Position of the packet's first cell in the stream.
        position: u64,
        /// The claimed length in cells.
        cells: u16,
        /// The ring's length in cells.
        capacity: u32,
    },
    /// The consumed position went back, or ahead of what was produced.
    #[error("the peer claims to have consumed up to position {claimed}, where {from} to {to} are possible")]
    Consumed {
        /// The claimed position.
        claimed: u64,
        /// The lowest possible one.
        from: u64,
        /// The highest possible one.
        to: u64,
    },
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The packet has more bytes than the whole ring; it must go another way.
    #[error("a packet of {length} bytes does not fit a ring of {capacity} bytes")]
    TooLong {
        /// Length of the packet in bytes.
        length: usize,
        /// The longest packet in bytes.
        capacity: usize,
    },
    /// The consumer has not yet read enough of what was sent before; try again after its next answer.
    #[error("the ring has no room until the peer has read more")]
    Full,
    /// The ring has ended.
    #[error("the ring is closed")]
    Closed,
    /// The peer broke the protocol; this end can never be used again.
    #[error("the peer corrupted the ring: {0}")]
    Poisoned(#[from] Misbehaviour),
}

/// Why no packet was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The deadline passed first.
    #[error("no packet came before the deadline")]
    TimedOut,
    /// The ring has ended and holds no more packets.
    #[error("the ring is closed")]
    Closed,
    /// The peer broke the protocol; this end can never be used again.
    #[error("the peer corrupted the ring: {0}")]
    Poisoned(#[from] Misbehaviour),
    /// Sleeping failed.
    #[error(transparent)]
    System(#[from] SysError),
}

/// Why a channel could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The number of cells is not allowed.
    #[error("a ring of {count} cells is not possible; a power of two up to {max} is", max = super::MAX_CELLS)]
    CellCount {
        /// The number of cells.
        count: u32,
    },
    /// The memory does not start as a channel does.
    #[error("the memory holds no message queue channel")]
    NotAChannel,
    /// The channel has another layout.
    #[error("the channel has layout version {theirs}, this side speaks version {ours}")]
    Version {
        /// The version found.
        theirs: u32,
        /// The version of this side.
        ours: u32,
    },
    /// The memory is not of the size that its header implies.
    #[error("a channel of this shape has {expected} bytes, but the memory has {actual}")]
    Size {
        /// The size that the header implies, in bytes.
        expected: u64,
        /// The size of the memory in bytes.
        actual: u64,
    },
    /// The memory could be shrunk, and with it the process that maps it be ended, by its owner.
    #[error("the memory of a channel must be sealed against shrinking")]
    CanShrink,
    /// The memory could not be made or mapped.
    #[error(transparent)]
    Memory(#[from] ShmError),
}
