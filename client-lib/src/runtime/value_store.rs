//! Room for a value, in a device or shared, and which value it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal_hal::{OperandType, Shape, TypeLayouts};

use super::device::RuntimeDevice;
use super::result::RuntimeResult;
use crate::buffer::Buffer;
use crate::memory::Memory;

/// Room for a value, in a device or shared, and which value it has. Clones are the same room.
#[derive(Clone, Debug)]
pub(super) struct ValueStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    description: Description,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    backing: Backing,
    /// The dimensions of its value, if it has one.
    value: Option<Vec<u32>>,
    /// A copy of its value, where that came from this process: for a device that dies.
    kept: Option<Memory>,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(super) enum Backing {
    /// In memory that every device can reach.
    Shared(Memory),
    /// In a device.
    Device { buffer: Buffer, device: RuntimeDevice },
}

/// Which values there is room for.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) operand_type: OperandType,
    pub(super) layouts: TypeLayouts,
    /// As far as they are known.
    pub(super) dimensions: Shape,
}

impl ValueStore {
    pub(super) fn new(description: Description, backing: Backing) -> ValueStore {
        ValueStore {
            inner: Arc::new(Inner {
                description,
                state: Mutex::new(State {
                    backing,
                    value: None,
                    kept: None,
                }),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn operand_type(&self) -> OperandType {
        self.inner.description.operand_type
    }

    pub(super) fn layouts(&self) -> &TypeLayouts {
        &self.inner.description.layouts
    }

    /// The dimensions that it is for; 0 where they are left open.
    pub(super) fn described(&self) -> &Shape {
        &self.inner.description.dimensions
    }

    /// The dimensions of its value, if it has one.
    pub(super) fn value(&self) -> Option<Vec<u32>> {
        self.state().value.clone()
    }

    /// The dimensions of its value, or else what is known of them.
    pub(super) fn dimensions(&self) -> Vec<u32> {
        self.value().unwrap_or_else(|| self.described().dims().to_vec())
    }

    /// Bytes of its value, or of what it is for; `None` while a dimension is not known.
    pub(super) fn byte_size(&self) -> Option<u64> {
        let shape = Shape::new(&self.dimensions()).ok()?;
        let bytes = self.layouts().byte_size(self.operand_type(), &shape);
        bytes.map(|bytes| bytes as u64)
    }

    pub(super) fn backing(&self) -> Backing {
        self.state().backing.clone()
    }

    /// Whether the bytes died with a device's worker.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.state().backing, Backing::Device { buffer, .. } if buffer.is_lost())
    }

    /// The dimensions of its value, if it has one, and a copy of it, where that came from this process.
    pub(super) fn value_and_copy(&self) -> (Option<Vec<u32>>, Option<Memory>) {
        let state = self.state();
        (state.value.clone(), state.kept.clone())
    }

    /// Copies the bytes out, whatever they are.
    pub(super) fn fetch(&self, memory: &Memory) -> RuntimeResult<()> {
        let backing = self.backing();
        match backing {
            Backing::Shared(shared) => copy(&shared, memory),
            Backing::Device { buffer, .. } => Ok(buffer.copy_to(memory)?),
        }
    }

    /// Copies bytes in. What is known of the value stays as it is.
    pub(super) fn write(&self, memory: &Memory, dimensions: &[u32]) -> RuntimeResult<()> {
        write(&self.backing(), memory, dimensions)
    }

    /// After an execution that wrote it.
    pub(super) fn written(&self, dimensions: Vec<u32>) {
        let mut state = self.state();
        state.value = Some(dimensions);
        state.kept = None;
    }

    /// After this process wrote it, which keeps a copy.
    pub(super) fn given(&self, dimensions: Vec<u32>, kept: Memory) {
        let mut state = self.state();
        state.value = Some(dimensions);
        state.kept = Some(kept);
    }

    /// It has no value any more.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.value = None;
        state.kept = None;
    }

    /// Goes on elsewhere: with this value, dimensions and bytes, if there is one.
    pub(super) fn move_to(&self, backing: Backing, given: Option<(Vec<u32>, Memory)>) -> RuntimeResult<()> {
        if let Some((value, kept)) = &given {
            write(&backing, kept, value)?;
        }
        let mut state = self.state();
        state.backing = backing;
        (state.value, state.kept) = given.unzip();
        Ok(())
    }
}

fn write(backing: &Backing, memory: &Memory, dimensions: &[u32]) -> RuntimeResult<()> {
    match backing {
        Backing::Shared(shared) => copy(memory, shared),
        Backing::Device { buffer, .. } => Ok(buffer.copy_from(memory, dimensions)?),
    }
}

fn copy(from: &Memory, to: &Memory) -> RuntimeResult<()> {
    let mut bytes = vec![0; usize::try_from(from.size()).unwrap_or(usize::MAX)];
    from.read_at(0, &mut bytes)?;
    Ok(to.write_at(0, &bytes)?)
}

/// Shared memory of its own with the same bytes.
pub(super) fn copy_of(memory: &Memory) -> RuntimeResult<Memory> {
    let copied = Memory::new(memory.size())?;
    copy(memory, &copied)?;
    Ok(copied)
}
