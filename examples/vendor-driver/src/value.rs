//! Values of operands.

use nnhal_device::hal::{ErrorStatus, Failure, Shape};

/// An operand's value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    shape: Shape,
    bytes: Vec<u8>,
}

impl Value {
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the value this shape and room for `size` bytes. Allocates nothing if it had as much before.
    pub(crate) fn resize(&mut self, shape: Shape, size: usize) -> Result<&mut [u8], Failure> {
        let more = size.saturating_sub(self.bytes.len());
        self.bytes.try_reserve_exact(more).map_err(|_| {
            Failure::new(
                ErrorStatus::ResourceExhaustedTransient,
                format!("{size} bytes of memory cannot be had for a value"),
            )
        })?;
        self.bytes.resize(size, 0);
        self.shape = shape;
        Ok(&mut self.bytes)
    }
}
