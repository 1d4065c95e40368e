//! Making memory for arguments of compilations.

use nnhal_hal::validate::Direction;
use nnhal_hal::{OperandType, Shape, TypeLayouts};

use super::compilation::Compilation;
use super::device::RuntimeDevice;
use super::device_memory::{DeviceMemory, Role, allocate as allocate_on};
use super::devices::Runtime;
use super::result::{ResultCode, RuntimeError, RuntimeResult};
use super::step::{Prepared, Step};
use super::value_store::{Backing, Description, ValueStore};
use crate::memory::Memory;
use crate::tensor::TensorType;

/// An input or output of a compilation that a device memory will be used for.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRole<'a> {
    /// The compilation.
    pub compilation: &'a Compilation,
    /// Index of the input or output.
    pub index: usize,
    /// Which of the two.
    pub direction: Direction,
    /// How often it will be used so, above 0 and at most 1.
    pub frequency: f32,
}

impl<'a> MemoryRole<'a> {
    /// The type of the input or output.
    fn ty(&self) -> RuntimeResult<&'a TensorType> {
        let types = match self.direction {
            Direction::Input => self.compilation.inputs(),
            Direction::Output => self.compilation.outputs(),
        };
        types.get(self.index).ok_or_else(|| {
            RuntimeError::bad_data(format!(
                "a role is {} {}, the model has {}",
                self.direction,
                self.index,
                types.len()
            ))
        })
    }
}

impl Runtime {
    /// Memory for these inputs and outputs of compilations: the device's own, if all of them are on one
    /// device that has some, or shared memory. The role of the NDK's `ANeuralNetworksMemory_createFromDesc`.
    ///
    /// # Errors
    /// [`super::ResultCode::BadData`] if the roles contradict each other or the dimensions; where there is no
    /// device memory, and the dimensions are not all known or a device was named explicitly, what the device
    /// answered, or [`super::ResultCode::OpFailed`].
    pub fn allocate(
        &self,
        memory_roles: &[MemoryRole<'_>],
        dimensions: &[u32],
    ) -> RuntimeResult<DeviceMemory> {
        allocate(memory_roles, dimensions)
    }
}

fn allocate(roles: &[MemoryRole<'_>], dimensions: &[u32]) -> RuntimeResult<DeviceMemory> {
    let (ty, shape) = check(roles, dimensions)?;
    let layouts = roles
        .first()
        .map(|role| role.compilation.layouts().clone())
        .unwrap_or_default();
    let backing = match on_live_device(roles, &shape) {
        Ok(backing) => backing,
        Err(refused) => {
            let is_explicit = roles
                .iter()
                .any(|role| role.compilation.is_explicit() && !role.compilation.is_on_cpu());
            match byte_size(&layouts, ty, &shape) {
                Some(size) if !is_explicit => Backing::Shared(Memory::new(size as u64)?),
                _ => return Err(refused),
            }
        }
    };
    let description = Description {
        operand_type: ty,
        layouts,
        dimensions: shape,
    };
    Ok(DeviceMemory::new(
        as_kept(roles),
        ValueStore::new(description, backing),
    ))
}

/// The roles as a device memory keeps them.
fn as_kept(roles: &[MemoryRole<'_>]) -> Vec<Role> {
    let roles = roles.iter();
    roles
        .map(|role| (role.compilation.clone(), role.index, role.direction))
        .collect()
}

fn byte_size(layouts: &TypeLayouts, ty: OperandType, shape: &Shape) -> Option<usize> {
    layouts.byte_size(ty, shape).filter(|size| *size > 0)
}

/// Memory of the one device that uses it in every role, which is opened again if it has died and the
/// application of a role wants that.
fn on_live_device(roles: &[MemoryRole<'_>], dimensions: &Shape) -> RuntimeResult<Backing> {
    let result = on_device(roles, dimensions);
    let mut compilations = roles.iter().map(|role| role.compilation);
    let is_lost = |error: &RuntimeError| {
        let mut steps = roles.iter().flat_map(|role| &role.compilation.plan().steps);
        error.is_connection_lost() || steps.any(Step::is_lost)
    };
    match result {
        Err(error) if is_lost(&error) => {
            if !compilations
                .clone()
                .any(|compilation| compilation.policy().attempts > 0)
            {
                return Err(RuntimeError::new(ResultCode::DeadObject, error.to_string()));
            }
            compilations.try_for_each(Compilation::revive_steps)?;
            on_device(roles, dimensions)
        }
        result => result,
    }
}

/// Memory of the one device that uses it in every role.
fn on_device(roles: &[MemoryRole<'_>], dimensions: &Shape) -> RuntimeResult<Backing> {
    let device = the_device(roles)?;
    let frequencies: Vec<f32> = roles.iter().map(|role| role.frequency).collect();
    let buffer = allocate_on(&as_kept(roles), dimensions, &frequencies, &device)?;
    Ok(Backing::Device { buffer, device })
}

fn the_device(roles: &[MemoryRole<'_>]) -> RuntimeResult<RuntimeDevice> {
    let mut found: Option<RuntimeDevice> = None;
    for role in roles {
        for (step, ..) in role.compilation.plan().arguments(role.index, role.direction) {
            if matches!(step.prepared(), Prepared::Cpu(_)) {
                return Err(RuntimeError::failed(
                    "the CPU of this process has no device memory; shared memory serves it",
                ));
            }
            match &found {
                Some(other) if *other != step.device => {
                    return Err(RuntimeError::failed(format!(
                        "the roles are on {} and on {}, and no memory belongs to two devices",
                        other.name(),
                        step.device.name()
                    )));
                }
                _ => found = Some(step.device.clone()),
            }
        }
    }
    found.ok_or_else(|| RuntimeError::failed("no device uses the memory in any role"))
}

/// The one type, and all that is known of the dimensions.
fn check(roles: &[MemoryRole<'_>], dimensions: &[u32]) -> RuntimeResult<(OperandType, Shape)> {
    let Some(first) = roles.first() else {
        return Err(RuntimeError::bad_data("a device memory needs at least one role"));
    };
    let ty = first.ty()?;
    let mut shape = Shape::new(dimensions).map_err(|error| RuntimeError::bad_data(error.to_string()))?;
    for (index, role) in roles.iter().enumerate() {
        let (direction, at) = (role.direction, role.index);
        let twice = roles[..index].iter().any(|earlier| {
            earlier.compilation == role.compilation && earlier.index == at && earlier.direction == direction
        });
        if twice {
            return Err(RuntimeError::bad_data(format!(
                "{direction} {at} is a role twice"
            )));
        }
        if !(role.frequency > 0.0 && role.frequency <= 1.0) {
            return Err(RuntimeError::bad_data(format!(
                "{direction} {at} is a role with frequency {}; it must be above 0 and at most 1",
                role.frequency
            )));
        }
        let other = role.ty()?;
        let is_same = other.operand_type() == ty.operand_type()
            && other.scale() == ty.scale()
            && other.zero_point() == ty.zero_point();
        if !is_same {
            return Err(RuntimeError::bad_data(format!(
                "{direction} {at} is {}, another role is {}, or their quantisation differs",
                other.operand_type(),
                ty.operand_type()
            )));
        }
        shape = combined(role, other, &shape)?;
    }
    Ok((ty.operand_type(), shape))
}

fn combined(role: &MemoryRole<'_>, ty: &TensorType, shape: &Shape) -> RuntimeResult<Shape> {
    let is_scalar = role.compilation.layouts().is_scalar(ty.operand_type());
    let declared = Shape::new(ty.dimensions()).unwrap_or_default();
    let combined = declared
        .combine(shape)
        .filter(|_| !is_scalar || shape.rank() == 0);
    combined.ok_or_else(|| {
        RuntimeError::bad_data(format!(
            "{} {} has dimensions {declared:?}, which contradict {shape:?}",
            role.direction, role.index
        ))
    })
}
