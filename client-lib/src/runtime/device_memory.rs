//! Memory for arguments of compilations, in a device or shared.

use std::sync::Arc;

use nnhal_hal::validate::Direction;
use nnhal_hal::{BufferDesc, BufferRole, Shape};

use super::compilation::Compilation;
use super::device::RuntimeDevice;
use super::result::{ResultCode, RuntimeError, RuntimeResult, once_more_if_lost};
use super::value_store::{Backing, ValueStore, copy_of};
use crate::buffer::Buffer;
use crate::memory::Memory;
use crate::prepared_model::PreparedModel;

/// Memory for inputs and outputs of compilations, in a device if one has it. Made by
/// [`super::Runtime::allocate`]. Clones are the same memory.
///
/// It starts without a value. A successful execution that writes it, or a copy, gives it one; a failed one
/// takes it away.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    roles: Vec<Role>,
    store: ValueStore,
}

/// An input or output of a compilation.
pub(super) type Role = (Compilation, usize, Direction);

impl DeviceMemory {
    pub(super) fn new(roles: Vec<Role>, store: ValueStore) -> DeviceMemory {
        DeviceMemory {
            inner: Arc::new(Inner { roles, store }),
        }
    }

    /// Where its value is.
    pub(super) fn store(&self) -> &ValueStore {
        &self.inner.store
    }

    /// The dimensions of its value, or else what is known of them.
    #[must_use]
    pub fn dimensions(&self) -> Vec<u32> {
        self.store().dimensions()
    }

    /// The dimensions that its roles and the application say it is for; 0 where they leave them open.
    #[must_use]
    pub fn described_dimensions(&self) -> &[u32] {
        self.store().described().dims()
    }

    /// Bytes of its value, or of what it is for; `None` while a dimension is not known.
    #[must_use]
    pub fn byte_size(&self) -> Option<u64> {
        self.store().byte_size()
    }

    /// Whether it was allocated for this input or output of the compilation.
    #[must_use]
    pub fn has_role(&self, compilation: &Compilation, index: usize, direction: Direction) -> bool {
        let role = |(known, at, side): &Role| known == compilation && *at == index && *side == direction;
        self.inner.roles.iter().any(role)
    }

    /// Whether it has a value.
    #[must_use]
    pub fn is_initialised(&self) -> bool {
        self.store().value().is_some()
    }

    /// Whether the bytes are in a device rather than in shared memory.
    #[must_use]
    pub fn is_in_device(&self) -> bool {
        matches!(self.store().backing(), Backing::Device { .. })
    }

    /// Copies its value into a memory of the same size.
    ///
    /// # Errors
    /// [`ResultCode::BadData`] if it has no value or the sizes differ.
    pub fn copy_to(&self, memory: &Memory) -> RuntimeResult<()> {
        if !self.is_initialised() {
            return Err(RuntimeError::bad_data("the device memory has no value to copy"));
        }
        self.expect_size(memory)?;
        match self.store().fetch(memory) {
            Err(error) if self.may_recover(&error) => {
                self.recover(true)?;
                self.store().fetch(memory)
            }
            fetched => fetched,
        }
    }

    /// Copies a memory of the same size here. Dimensions may be left empty where they are known.
    ///
    /// # Errors
    /// [`ResultCode::BadData`] if the dimensions contradict what is known, or the sizes differ. After any
    /// error there is no value.
    pub fn copy_from(&self, memory: &Memory, dimensions: &[u32]) -> RuntimeResult<()> {
        self.try_copy_from(memory, dimensions)
            .inspect_err(|_| self.store().forget())
    }

    fn try_copy_from(&self, memory: &Memory, dimensions: &[u32]) -> RuntimeResult<()> {
        let given = Shape::new(dimensions).map_err(|error| RuntimeError::bad_data(error.to_string()))?;
        let store = self.store();
        let shape = store.described().combine(&given).ok_or_else(|| {
            RuntimeError::bad_data(format!(
                "a value with dimensions {dimensions:?} does not fit a device memory for {:?}",
                store.described()
            ))
        })?;
        let size = store.layouts().byte_size(store.operand_type(), &shape);
        if size.is_some_and(|size| size as u64 != memory.size()) {
            return Err(RuntimeError::bad_data(format!(
                "a memory of {} bytes is copied to a device memory for {} of dimensions {shape:?}, which takes {}",
                memory.size(),
                store.operand_type(),
                size.unwrap_or_default()
            )));
        }
        let kept = copy_of(memory)?;
        // Nothing is known of it while it is written.
        store.forget();
        match store.write(memory, shape.dims()) {
            Err(error) if self.may_recover(&error) => {
                self.recover(false)?;
                store.write(memory, shape.dims())?;
            }
            written => written?,
        }
        store.given(shape.dims().to_vec(), kept);
        Ok(())
    }

    /// Copies the value of another device memory here.
    ///
    /// # Errors
    /// [`ResultCode::BadData`] if the other has no value, or one that does not fit. After any error there is
    /// no value. Copying a memory to itself does nothing.
    pub fn copy_from_device(&self, other: &DeviceMemory) -> RuntimeResult<()> {
        if Arc::ptr_eq(&self.inner, &other.inner) {
            return Ok(());
        }
        self.try_copy_from_device(other)
            .inspect_err(|_| self.store().forget())
    }

    fn try_copy_from_device(&self, other: &DeviceMemory) -> RuntimeResult<()> {
        let size = other.byte_size().filter(|_| other.is_initialised());
        let size = size.ok_or_else(|| RuntimeError::bad_data("the device memory to be copied has no value"));
        let memory = Memory::new(size?)?;
        other.copy_to(&memory)?;
        self.copy_from(&memory, &other.dimensions())
    }

    fn expect_size(&self, memory: &Memory) -> RuntimeResult<()> {
        match self.byte_size() {
            Some(size) if size != memory.size() => Err(RuntimeError::bad_data(format!(
                "the device memory has {size} bytes, the memory it is copied to has {}",
                memory.size()
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a role that the memory was not allocated for.
    pub(super) fn expect_role(
        &self,
        compilation: &Compilation,
        index: usize,
        direction: Direction,
    ) -> RuntimeResult<()> {
        if self.has_role(compilation, index, direction) {
            return Ok(());
        }
        Err(RuntimeError::bad_data(format!(
            "{direction} {index} is in a device memory that was not allocated for it"
        )))
    }

    /// The dimensions of the value that input `index` reads.
    ///
    /// # Errors
    /// [`ResultCode::BadData`] for dimensions that the memory can never have; [`ResultCode::OpFailed`] if it
    /// has no value, or one of other dimensions.
    pub(super) fn readable_dimensions(&self, index: usize, given: &[u32]) -> RuntimeResult<Vec<u32>> {
        self.expect_described(Direction::Input, index, given)?;
        let value = self.store().value();
        let value = value.ok_or_else(|| {
            RuntimeError::failed(format!("input {index} is in a device memory without a value"))
        })?;
        let fits = Shape::new(&value)
            .ok()
            .zip(Shape::new(given).ok())
            .is_some_and(|(value, given)| value.combine(&given).is_some());
        if fits {
            return Ok(value);
        }
        Err(RuntimeError::failed(format!(
            "input {index} is given dimensions {given:?}, the value in its device memory has {value:?}"
        )))
    }

    /// Refuses dimensions of an argument that contradict what the memory is for.
    pub(super) fn expect_described(
        &self,
        direction: Direction,
        index: usize,
        given: &[u32],
    ) -> RuntimeResult<()> {
        let described = self.store().described();
        let given_shape = Shape::new(given).ok();
        if given_shape.is_some_and(|given| described.combine(&given).is_some()) {
            return Ok(());
        }
        Err(RuntimeError::bad_data(format!(
            "{direction} {index} is given dimensions {given:?}, its device memory is for {described:?}"
        )))
    }

    /// Whether the device is to be opened again after this error, as an application of the memory wants it.
    fn may_recover(&self, error: &RuntimeError) -> bool {
        let mut roles = self.inner.roles.iter();
        (error.is_connection_lost() || self.store().is_lost())
            && roles.any(|(compilation, ..)| compilation.policy().attempts > 0)
    }

    /// Opens the device again, and gets the memory back; its value as well if `is_needed`.
    fn recover(&self, is_needed: bool) -> RuntimeResult<()> {
        once_more_if_lost(|| {
            let mut roles = self.inner.roles.iter();
            roles.try_for_each(|(compilation, ..)| compilation.revive_steps())?;
            self.restore(is_needed)
        })
    }

    /// Gets the memory, and its value if `is_needed`, back after the device's worker has died.
    ///
    /// # Errors
    /// [`ResultCode::DeadObject`] if the value was computed there, and nobody has it any more.
    pub(super) fn restore(&self, is_needed: bool) -> RuntimeResult<()> {
        let store = self.store();
        let Backing::Device { buffer, device } = store.backing() else {
            return Ok(());
        };
        if !buffer.is_lost() {
            return Ok(());
        }
        let (value, kept) = store.value_and_copy();
        if is_needed && value.is_some() && kept.is_none() {
            store.forget();
            return Err(RuntimeError::new(
                ResultCode::DeadObject,
                format!(
                    "a device memory of {} had a value that an execution computed there; it died with the process, \
                     and the execution cannot be repeated without it",
                    device.name()
                ),
            ));
        }
        let buffer = allocate(&self.inner.roles, store.described(), &[], &device)?;
        store.move_to(Backing::Device { buffer, device }, value.zip(kept))
    }
}

/// Asks a device for memory in these roles, each of frequency 1 unless `frequencies` say otherwise.
pub(super) fn allocate(
    roles: &[Role],
    dimensions: &Shape,
    frequencies: &[f32],
    device: &RuntimeDevice,
) -> RuntimeResult<Buffer> {
    let mut models: Vec<PreparedModel> = Vec::new();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (index, (compilation, at, direction)) in roles.iter().enumerate() {
        for (model, io_index, side) in compilation.plan().prepared_roles(*at, *direction, device)? {
            models.push(model);
            let role = BufferRole {
                model_index: models.len() as u32 - 1,
                io_index: io_index as u32,
                frequency: frequencies.get(index).copied().unwrap_or(1.0),
            };
            match side {
                Direction::Input => inputs.push(role),
                Direction::Output => outputs.push(role),
            }
        }
    }
    let desc = BufferDesc {
        dimensions: dimensions.dims().to_vec(),
    };
    let models: Vec<&PreparedModel> = models.iter().collect();
    Ok(device.open()?.allocate(&desc, &models, &inputs, &outputs)?)
}
