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
}

impl FoundValid {
    pub(super) fn new(request: &Request, number: Number) -> FoundValid {
        FoundValid {
            hal: request.hal().clone(),
            memories: request.memories().iter().map(Memory::id).collect(),
            number,
        }
    }

    pub(super) fn is(&self, request: &Request) -> bool {
        let memories = request.memories().iter().map(Memory::id);
        memories.eq(self.memories.iter().copied()) && self.hal == *request.hal()
    }
}

/// What an execution uses, kept until it has ended.
#[derive(Debug, Default)]
pub(super) struct Held {
    memories: Vec<Memory>,
    buffers: Vec<Buffer>,
}

impl Held {
    pub(super) fn hold(&mut self, request: &Request) {
        self.memories.extend_from_slice(request.memories());
        self.buffers.extend_from_slice(request.buffers());
    }

    pub(super) fn let_go(&mut self) {
        self.memories.clear();
        self.buffers.clear();
    }
}
