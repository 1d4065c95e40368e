//! Device buffers: memory that belongs to the device.

use std::sync::Arc;

use nnhal::wire::{Allocated, Call, Object, Reply};

use crate::connection::Connection;
use crate::error::Result;
use crate::memory::Memory;

/// Memory of a device for arguments of executions, which this process cannot map. The role of the HAL's
/// `IBuffer`.
///
/// It starts without a value. A successful execution that writes it, or [`Buffer::copy_from`], gives it one;
/// a failed one takes it away again. Clones are handles on the same buffer, which goes with the last of them;
/// executions that run keep it.
#[derive(Clone, Debug)]
pub struct Buffer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Arc<Connection>,
    allocated: Allocated,
}

impl Buffer {
    pub(crate) fn new(connection: &Arc<Connection>, allocated: Allocated) -> Buffer {
        Buffer {
            inner: Arc::new(Inner {
                connection: Arc::clone(connection),
                allocated,
            }),
        }
    }

    /// What names the buffer in a request in the HAL's form.
    #[must_use]
    pub fn token(&self) -> u32 {
        self.inner.allocated.token
    }

    pub(crate) fn is_of(&self, connection: &Arc<Connection>) -> bool {
        Arc::ptr_eq(&self.inner.connection, connection)
    }

    /// Whether it died with its worker.
    #[cfg(feature = "runtime")]
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.connection.link().ended_with().is_some()
    }

    /// HAL `copyTo`: copies the buffer's value into a memory of the same size.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the sizes differ, `GENERAL_FAILURE` if the buffer has no value.
    pub fn copy_to(&self, memory: &Memory) -> Result<()> {
        let memory = memory.handle_on(&self.inner.connection)?;
        self.inner.call(Call::CopyTo {
            buffer: self.inner.allocated.buffer,
            memory,
        })
    }

    /// HAL `copyFrom`: copies a memory of the same size into the buffer. Dimensions may be left empty where
    /// the buffer's own are fully known.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the sizes differ or the dimensions do not fit the buffer's own. The buffer then
    /// has no value.
    pub fn copy_from(&self, memory: &Memory, dimensions: &[u32]) -> Result<()> {
        let memory = memory.handle_on(&self.inner.connection)?;
        let dimensions = dimensions.to_vec();
        self.inner.call(Call::CopyFrom {
            buffer: self.inner.allocated.buffer,
            memory,
            dimensions,
        })
    }
}

impl Inner {
    fn call(&self, call: Call) -> Result<()> {
        let link = self.connection.link();
        let name = call.name();
        match link.call(call, &[])? {
            (Reply::Done, _) => Ok(()),
            (other, _) => Err(link.misplaced(name, &other)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection
            .link()
            .release(Object::Buffer(self.allocated.buffer));
    }
}
