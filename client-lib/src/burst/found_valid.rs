//! What a burst remembers of requests that are started, and what it keeps for the one that goes on.

use super::registered::Number;
use crate::buffer::Buffer;
use crate::memory::Memory;
use crate::request::Request;

/// A request that the worker has found valid, and keeps under a number. Its memories may be gone: no other
/// memory has their ids, and no other device buffer their tokens.
#[derive(Debug)]
pub(super) struct FoundValid {
    hal: nnhal_hal::Request,
    memories: Vec<u64>,
    pub(super) number: Number,
    /// Whether it does for a fenced execution.
    pub(super) is_fenced: bool,
}

impl FoundValid {
    pub(super) fn new(request: &Request, number: Number, is_fenced: bool) -> FoundValid {
        FoundValid {
            hal: request.hal().clone(),
            memories: request.memories().iter().map(Memory::id).collect(),
            number,
            is_fenced,
        }
    }

    pub(super) fn is(&self, request: &Request) -> bool {
        let memories = request.memories().iter().map(Memory::id);
        memories.eq(self.memories.iter().copied()) && self.hal == *request.hal()
    }
}

/// What an execution uses, kept until it has ended.
#[derive(Debug)]
#[allow(dead_code, reason = "it is there to keep them")]
pub(super) struct Held {
    memories: Vec<Memory>,
    buffers: Vec<Buffer>,
}

impl Held {
    pub(super) fn of(request: &Request) -> Held {
        Held {
            memories: request.memories().to_vec(),
            buffers: request.buffers().to_vec(),
        }
    }
}
