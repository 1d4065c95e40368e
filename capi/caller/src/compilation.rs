//! Compilations.

use nnhal::hal::{self, Operand, OutputShape, Request, Timing};

use crate::error::{CallError, Result};
use crate::execution::{Computation, Execution, ExecutionSettings};
use crate::library::{OwnedBurst, OwnedCompilation, OwnedEvent, OwnedMemory, OwnedModel};
use crate::model::Model;

/// A model that was compiled through the library.
#[derive(Debug)]
pub struct Compilation {
    pub(crate) owned: OwnedCompilation,
    /// Made with the first execution that uses one.
    burst: Option<OwnedBurst>,
    pub(crate) inputs: Vec<Operand>,
    pub(crate) outputs: Vec<Operand>,
}

impl Compilation {
    /// Compiles a model, whose form in the HAL is `hal`, for one named device or for all together.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn new(model: &Model, hal: &hal::Model, device: Option<&str>) -> Result<Compilation> {
        let OwnedModel { library, object } = model.owned;
        let functions = library.functions;
        let object = match device {
            Some(name) => {
                let devices = [library.device_named(name)?];
                let create = functions.Compilation_createForDevices;
                library.made(|place| create(object, devices.as_ptr(), 1, place))?
            }
            None => library.made(|place| (functions.Compilation_create)(object, place))?,
        };
        let operands = |indexes: &[u32]| {
            let operands = indexes
                .iter()
                .map(|index| hal.main.operands[*index as usize].clone());
            operands.collect()
        };
        let compilation = Compilation {
            owned: OwnedCompilation { library, object },
            burst: None,
            inputs: operands(&hal.main.input_indexes),
            outputs: operands(&hal.main.output_indexes),
        };
        library.checked((functions.Compilation_finish)(object))?;
        Ok(compilation)
    }

    /// Executes a request of two pools, one with the inputs and one for the outputs.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn execute(
        &mut self,
        request: &Request,
        settings: &ExecutionSettings,
        inputs: &[u8],
        outputs: &mut [u8],
    ) -> Result<(Vec<OutputShape>, Timing)> {
        let library = self.owned.library;
        let execution = Execution::new(self)?;
        execution.apply(settings)?;
        for (index, (argument, operand)) in request.inputs.iter().zip(&self.inputs).enumerate() {
            execution.set_input(index as i32, argument, operand, inputs)?;
        }
        let shared = match settings.computation {
            Computation::Fenced => Some(OwnedMemory::with_room(library, outputs.len())?),
            _ => None,
        };
        for (index, (argument, operand)) in request.outputs.iter().zip(&self.outputs).enumerate() {
            let memory = shared.as_ref().map(|(_, memory)| memory);
            execution.set_output(index as i32, argument, operand, (memory, &mut *outputs))?;
        }
        let outcome = self.compute(&execution, settings.computation);
        if let Some((memory, _)) = &shared {
            memory
                .read_at(0, outputs)
                .map_err(|error| CallError::unmappable(error.to_string()))?;
        }
        let output_shapes = execution.shapes(request.outputs.len());
        if let Err(error) = outcome {
            return Err(CallError {
                output_shapes,
                ..error
            });
        }
        let timing = if settings.is_measured {
            execution.timing()?
        } else {
            Timing::NONE
        };
        Ok((output_shapes, timing))
    }

    /// Computes and waits for the end.
    fn compute(&mut self, execution: &Execution, computation: Computation) -> Result<()> {
        let library = self.owned.library;
        let functions = library.functions;
        let execution = execution.owned.object;
        let ended = |event: Result<_>| {
            let event = OwnedEvent {
                library,
                object: event?,
            };
            library.checked((functions.Event_wait)(event.object))
        };
        match computation {
            Computation::Synchronous => library.checked((functions.Execution_compute)(execution)),
            Computation::Burst => {
                let burst = self.burst()?;
                library.checked((functions.Execution_burstCompute)(execution, burst))
            }
            Computation::Asynchronous => {
                ended(library.made(|place| (functions.Execution_startCompute)(execution, place)))
            }
            Computation::Fenced => {
                let start = functions.Execution_startComputeWithDependencies;
                ended(library.made(|place| start(execution, std::ptr::null(), 0, 0, place)))
            }
        }
    }

    fn burst(&mut self) -> Result<crate::functions::Pointer> {
        let burst = match self.burst.take() {
            Some(burst) => burst,
            None => self.new_burst()?,
        };
        Ok(self.burst.insert(burst).object)
    }

    pub(crate) fn new_burst(&self) -> Result<OwnedBurst> {
        let OwnedCompilation { library, object } = self.owned;
        let object = library.made(|place| (library.functions.Burst_create)(object, place))?;
        Ok(OwnedBurst { library, object })
    }
}
