//! The names of memories that a burst has met.

use std::sync::Arc;

use nnhal::wire::MemoryHandle;

use crate::connection::Connection;
use crate::error::Result;
use crate::memory::Memory;

/// How many names are remembered. More only cost a look into the memory's own list.
const REMEMBERED: usize = 64;

/// Names under which a connection's worker knows memories, so that naming them again takes no lock. A memory
/// that is gone is never asked for again, since no other has its id.
#[derive(Debug, Default)]
pub(super) struct MemoryNames {
    names: Vec<(u64, MemoryHandle)>,
}

impl MemoryNames {
    /// The memory's name on this connection, always the same one; the worker is told of the memory if it does
    /// not know it.
    #[inline]
    pub(super) fn handle(&mut self, memory: &Memory, connection: &Arc<Connection>) -> Result<MemoryHandle> {
        let id = memory.id();
        match self.names.iter().find(|(known, _)| *known == id) {
            Some((_, handle)) => Ok(*handle),
            None => self.look_up(memory, connection),
        }
    }

    #[cold]
    fn look_up(&mut self, memory: &Memory, connection: &Arc<Connection>) -> Result<MemoryHandle> {
        let handle = memory.handle_on(connection)?;
        if self.names.len() == REMEMBERED {
            self.names.clear();
        }
        self.names.push((memory.id(), handle));
        Ok(handle)
    }
}
