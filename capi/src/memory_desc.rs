//! Descriptions of device memory: for which inputs and outputs of which compilations it shall be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal_client::TensorType;
use nnhal_client::runtime::{Direction, MemoryRole};
use nnhal_hal::{Operand, Shape};

use crate::compilation::Compilation;
use crate::memory::Memory;
use crate::process;
use crate::result::{Failure, Outcome};

/// What is behind an `ANeuralNetworksMemoryDesc`.
#[derive(Debug, Default)]
pub(crate) struct MemoryDesc {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    roles: Vec<Role>,
    dimensions: Shape,
    /// What all roles are.
    operand: Option<Operand>,
    is_finished: bool,
}

#[derive(Debug)]
struct Role {
    compilation: Arc<Compilation>,
    index: u32,
    direction: Direction,
    frequency: f32,
}

impl MemoryDesc {
    pub(crate) fn add_role(
        &self,
        compilation: &Arc<Compilation>,
        direction: Direction,
        index: u32,
        frequency: f32,
    ) -> Outcome {
        let mut state = self.lock();
        state.expect_open()?;
        let role = format!("{direction} {index}");
        let finished = compilation
            .finished()
            .map_err(|failure| Failure::bad_data(failure.text))?;
        let types = match direction {
            Direction::Input => finished.inputs(),
            Direction::Output => finished.outputs(),
        };
        let ty = types.get(index as usize).ok_or_else(|| {
            Failure::bad_data(format!("there is no {role}, the compilation has {}", types.len()))
        })?;
        if !(frequency > 0.0 && frequency <= 1.0) {
            return Err(Failure::bad_data(format!(
                "the frequency is {frequency}, must be above 0 and at most 1"
            )));
        }
        let is_known = state.roles.iter().any(|known| {
            Arc::ptr_eq(&known.compilation, compilation)
                && known.index == index
                && known.direction == direction
        });
        if is_known {
            return Err(Failure::bad_data(format!("the description has {role} already")));
        }
        state.agree(ty, &role)?;
        state.roles.push(Role {
            compilation: Arc::clone(compilation),
            index,
            direction,
            frequency,
        });
        Ok(())
    }

    pub(crate) fn set_dimensions(&self, dimensions: &[u32]) -> Outcome {
        let mut state = self.lock();
        state.expect_open()?;
        let shape = Shape::new(dimensions).map_err(|error| Failure::bad_data(error.to_string()))?;
        let is_scalar = state
            .operand
            .as_ref()
            .is_some_and(|operand| operand.operand_type.is_scalar());
        if is_scalar && shape.rank() > 0 {
            return Err(Failure::bad_data(format!(
                "the roles are scalars, which have no dimensions; not {dimensions:?}"
            )));
        }
        state.dimensions = state.dimensions.combine(&shape).ok_or_else(|| {
            Failure::bad_data(format!(
                "dimensions {dimensions:?} contradict {:?}, which the roles or an earlier call have set",
                state.dimensions
            ))
        })?;
        Ok(())
    }

    pub(crate) fn finish(&self) -> Outcome {
        let mut state = self.lock();
        state.expect_open()?;
        if state.roles.is_empty() {
            return Err(Failure::bad_data(
                "the description has no role; add one with ANeuralNetworksMemoryDesc_addInputRole or \
                 ANeuralNetworksMemoryDesc_addOutputRole",
            ));
        }
        state.is_finished = true;
        Ok(())
    }

    /// Memory as described.
    pub(crate) fn allocate(&self) -> Outcome<Memory> {
        let state = self.lock();
        if !state.is_finished {
            return Err(Failure::bad_state(
                "the description is not finished; call ANeuralNetworksMemoryDesc_finish first",
            ));
        }
        let compilations = state
            .roles
            .iter()
            .map(|role| role.compilation.finished())
            .collect::<Outcome<Vec<_>>>()?;
        let roles: Vec<MemoryRole<'_>> = state
            .roles
            .iter()
            .zip(&compilations)
            .map(|(role, compilation)| MemoryRole {
                compilation,
                index: role.index as usize,
                direction: role.direction,
                frequency: role.frequency,
            })
            .collect();
        let memory = process::runtime()?.allocate(&roles, state.dimensions.dims())?;
        Ok(Memory::Device(memory))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn expect_open(&self) -> Outcome {
        if self.is_finished {
            return Err(Failure::bad_state(
                "the description is finished and cannot be changed any more",
            ));
        }
        Ok(())
    }

    /// Takes what one more role says of the memory, which must not contradict the others.
    fn agree(&mut self, ty: &TensorType, role: &str) -> Outcome {
        let operand = Operand::from(ty.clone());
        if let Some(known) = &self.operand {
            let is_same = known.operand_type == operand.operand_type
                && known.scale == operand.scale
                && known.zero_point == operand.zero_point
                && known.extra_params == operand.extra_params;
            if !is_same {
                return Err(Failure::bad_data(format!(
                    "{role} is {} with scale {} and zero point {}, the other roles are {} with scale {} and zero \
                     point {}; type and quantisation must be the same",
                    operand.operand_type,
                    operand.scale,
                    operand.zero_point,
                    known.operand_type,
                    known.scale,
                    known.zero_point
                )));
            }
        }
        let shape = Shape::new(&operand.dimensions).map_err(|error| Failure::bad_data(error.to_string()))?;
        if operand.operand_type.is_scalar() && self.dimensions.rank() > 0 {
            return Err(Failure::bad_data(format!(
                "{role} is a scalar, the description has dimensions {:?}",
                self.dimensions
            )));
        }
        self.dimensions = self.dimensions.combine(&shape).ok_or_else(|| {
            Failure::bad_data(format!(
                "{role} has dimensions {shape:?}, the description {:?}",
                self.dimensions
            ))
        })?;
        self.operand.get_or_insert(operand);
        Ok(())
    }
}
