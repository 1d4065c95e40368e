//! The memory of one input or output.

use crate::error::Error;
use crate::functions::{self, Functions, Pointer, READ, TensorType, WRITE};
use crate::owned::{Owned, checked};

/// A buffer that the library has made for a tensor, in this process's memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    functions: &'static Functions,
    /// The tensor's number in the model file.
    tensor: u32,
    bytes: usize,
    buffer: Owned,
}

impl Buffer {
    /// A buffer as the compiled model requires it.
    pub(crate) fn new(
        functions: &'static Functions,
        environment: Pointer,
        tensor: u32,
        ty: &TensorType,
        requirements: Pointer,
    ) -> Result<Buffer, Error> {
        let buffer = Owned::new(
            "LiteRtCreateManagedTensorBufferFromRequirements",
            functions.DestroyTensorBuffer,
            |place| {
                (functions.CreateManagedTensorBufferFromRequirements)(environment, ty, requirements, place)
            },
        )?;
        let mut bytes = 0;
        checked(
            "LiteRtGetTensorBufferPackedSize",
            (functions.GetTensorBufferPackedSize)(buffer.pointer(), &raw mut bytes),
        )?;
        Ok(Buffer {
            functions,
            tensor,
            bytes,
            buffer,
        })
    }

    /// The tensor's number in the model file.
    pub(crate) fn tensor(&self) -> u32 {
        self.tensor
    }

    /// How many bytes its values have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The buffer, for calls as long as this lives.
    pub(crate) fn pointer(&self) -> Pointer {
        self.buffer.pointer()
    }

    /// Writes its values.
    ///
    /// # Panics
    /// If they are not as many bytes as it has.
    pub(crate) fn write(&self, values: &[u8]) -> Result<(), Error> {
        assert_eq!(values.len(), self.bytes, "a buffer is written whole");
        self.locked(WRITE, |place| functions::write(place, values))
    }

    /// Its values.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        self.locked(READ, |place| functions::read(place, self.bytes))
    }

    fn locked<T>(
        &self,
        mode: std::ffi::c_int,
        job: impl FnOnce(*mut std::ffi::c_void) -> T,
    ) -> Result<T, Error> {
        let mut place = std::ptr::null_mut();
        checked(
            "LiteRtLockTensorBuffer",
            (self.functions.LockTensorBuffer)(self.pointer(), &raw mut place, mode),
        )?;
        if place.is_null() {
            return Err(Error::Null("LiteRtLockTensorBuffer"));
        }
        let result = job(place);
        checked(
            "LiteRtUnlockTensorBuffer",
            (self.functions.UnlockTensorBuffer)(self.pointer()),
        )?;
        Ok(result)
    }
}
