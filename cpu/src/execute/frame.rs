//! The values of a run, and the memory that they have.

use nnhal_hal::{MAX_RANK, Operand, Shape, Subgraph};
use nnhal_os::buffer::{AlignedBuffer, OutOfMemory};

use crate::kernel::{KernelError, Value, allocate};
use crate::plan::memory::smallest_that_holds;
use crate::scratch::Scratch;

/// The values of one graph while it runs.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// By operand.
    pub(super) values: Vec<Value>,
    /// By operation: the frames of the subgraphs that it runs, made when first needed.
    pub(super) children: Vec<Option<Box<[Frame; 2]>>>,
}

/// What frames share.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) free: Vec<AlignedBuffer>,
    pub(super) outputs: Vec<Value>,
    pub(super) shapes: Vec<Shape>,
    pub(super) scratch: Scratch,
}

impl Frame {
    pub(super) fn new(graph: &Subgraph) -> Frame {
        Frame {
            values: graph.operands.iter().map(|_| Value::default()).collect(),
            children: graph.operations.iter().map(|_| None).collect(),
        }
    }
}

impl Memory {
    /// Gives an empty buffer memory from the pool: the smallest one that holds `bytes`, else the largest
    /// there is.
    pub(super) fn reuse(&mut self, buffer: &mut AlignedBuffer, bytes: usize) {
        if buffer.capacity() >= bytes || self.free.is_empty() {
            return;
        }
        if let Some(at) = smallest_that_holds(bytes, self.free.iter().map(AlignedBuffer::capacity)) {
            let taken = self.free.swap_remove(at);
            let given_up = std::mem::replace(buffer, taken);
            self.give_back(given_up);
        }
    }

    pub(super) fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.capacity() > 0 {
            self.free.push(buffer);
        }
    }
}

/// Copies an operand's value, shape included, from one frame's operand to another's.
pub(super) fn copy_value(
    from: Option<(Shape, &[u8])>,
    to: &mut Value,
    operand: &Operand,
) -> Result<(), KernelError> {
    let Some((shape, bytes)) = from else {
        to.present = false;
        return Ok(());
    };
    debug_assert!(shape.rank() <= MAX_RANK);
    allocate(to, operand, shape)?;
    let target = to.buffer.bytes_mut();
    if target.len() != bytes.len() {
        return Err(OutOfMemory { bytes: bytes.len() }.into());
    }
    target.copy_from_slice(bytes);
    Ok(())
}
