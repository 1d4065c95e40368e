//! Compilations.

use nnhal_hal::{Operand, OutputShape, Request, Timing};

use crate::error::{CallError, Result};
use crate::execution::{Arguments, Computation, Execution, ExecutionSettings};
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
    pub fn new(model: &Model, hal: &nnhal_hal::Model, device: Option<&str>) -> Result<Compilation> {
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

    /// Executes a request of two pools, one with the inputs and one for the outputs. By burst, it is executed
    /// three times, and the outputs are those of the last.
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
        let functions = library.functions;
        let execution = Execution::new(&self.owned)?;
        execution.apply(settings)?;
        let memories = match settings.arguments {
            Arguments::Memories => Some([inputs.len(), outputs.len()].map(|size| {
                let memory = OwnedMemory::with_room(library, size)?;
                Ok::<_, CallError>(memory)
            })),
            Arguments::Own => None,
        };
        let memories = match memories {
            Some([inputs, outputs]) => Some((inputs?, outputs?)),
            None => None,
        };
        if let Some(((memory, _), _)) = &memories {
            memory.write_at(0, inputs).map_err(unmappable)?;
        }
        let input_memory = memories.as_ref().map(|((_, memory), _)| memory);
        for (index, (argument, operand)) in request.inputs.iter().zip(&self.inputs).enumerate() {
            execution.set_input(index as i32, argument, operand, (input_memory, inputs))?;
        }
        let output_memory = memories.as_ref().map(|(_, (_, memory))| memory);
        for (index, (argument, operand)) in request.outputs.iter().zip(&self.outputs).enumerate() {
            execution.set_output(index as i32, argument, operand, (output_memory, &mut *outputs))?;
        }
        // By burst, what comes again may take another way each time.
        let repetitions = match settings.computation {
            Computation::Burst => 2,
            _ => 0,
        };
        library.checked((functions.Execution_setReusable)(
            execution.owned.object,
            repetitions > 0,
        ))?;
        let mut outcome = self.compute(&execution, settings.computation);
        let mut output_shapes = execution.shapes(request.outputs.len());
        for _ in 0..repetitions {
            if outcome.is_err() {
                break;
            }
            match &memories {
                Some((_, (memory, _))) => memory.write_at(0, &vec![0; outputs.len()]).map_err(unmappable)?,
                None => outputs.fill(0),
            }
            outcome = self.compute(&execution, settings.computation);
            let first = std::mem::replace(&mut output_shapes, execution.shapes(request.outputs.len()));
            if outcome.is_ok() && output_shapes != first {
                return Err(CallError::failed(format!(
                    "a repeated execution reports the shapes {output_shapes:?}, the one before {first:?}"
                )));
            }
        }
        if let Some((_, (memory, _))) = &memories {
            memory.read_at(0, outputs).map_err(unmappable)?;
        }
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

fn unmappable(error: nnhal_client::Error) -> CallError {
    CallError::unmappable(error.to_string())
}
