//! Executions.

use std::ffi::c_int;

use nnhal_hal::{Operand, OutputShape, RequestArgument, Timing};

use crate::error::{INSUFFICIENT, Result};
use crate::functions::OperandType;
use crate::library::{OwnedCompilation, OwnedExecution, OwnedMemory};
use crate::model::type_of;

/// How an execution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// `ANeuralNetworksExecution_compute`.
    Synchronous,
    /// `ANeuralNetworksExecution_startCompute`.
    Asynchronous,
    /// `ANeuralNetworksExecution_burstCompute`.
    Burst,
    /// `ANeuralNetworksExecution_startComputeWithDependencies`.
    Fenced,
}

/// Where the arguments of an execution are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// In memories that drivers map.
    Memories,
    /// In the caller's own memory.
    Own,
}

/// What an execution is to do beside computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionSettings {
    /// How it is computed.
    pub computation: Computation,
    /// Where its arguments are.
    pub arguments: Arguments,
    /// Whether it is measured, which only compilations for one named device can be.
    pub is_measured: bool,
    /// The longest that a loop may take, in nanoseconds.
    pub loop_timeout: Option<u64>,
}

/// An execution, whose caller keeps what its arguments are in until it has ended.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) owned: OwnedExecution,
}

impl Execution {
    pub(crate) fn new(compilation: &OwnedCompilation) -> Result<Execution> {
        let OwnedCompilation { library, object } = *compilation;
        let object = library.made(|place| (library.functions.Execution_create)(object, place))?;
        Ok(Execution {
            owned: OwnedExecution { library, object },
        })
    }

    pub(crate) fn apply(&self, settings: &ExecutionSettings) -> Result<()> {
        let OwnedExecution { library, object } = self.owned;
        if settings.is_measured {
            library.checked((library.functions.Execution_setMeasureTiming)(object, true))?;
        }
        match settings.loop_timeout {
            Some(timeout) => library.checked((library.functions.Execution_setLoopTimeout)(object, timeout)),
            None => Ok(()),
        }
    }

    /// The input is in the memory, if there is one, else in `pool`.
    pub(crate) fn set_input(
        &self,
        index: i32,
        argument: &RequestArgument,
        operand: &Operand,
        (memory, pool): (Option<&OwnedMemory>, &[u8]),
    ) -> Result<()> {
        let OwnedExecution { library, object } = self.owned;
        let functions = library.functions;
        if argument.has_no_value {
            let set = functions.Execution_setInput;
            return library.checked(set(object, index, std::ptr::null(), std::ptr::null(), 0));
        }
        let (start, length) = range_of(argument);
        let ty = type_of(operand, &argument.dimensions);
        library.checked(match memory {
            Some(memory) => {
                let set = functions.Execution_setInputFromMemory;
                set(object, index, if_any(&ty), memory.object, start, length)
            }
            None => {
                let bytes_at = pool[start..start + length].as_ptr().cast();
                (functions.Execution_setInput)(object, index, if_any(&ty), bytes_at, length)
            }
        })
    }

    /// The output goes into the memory, if there is one, else into `pool`.
    pub(crate) fn set_output(
        &self,
        index: i32,
        argument: &RequestArgument,
        operand: &Operand,
        (memory, pool): (Option<&OwnedMemory>, &mut [u8]),
    ) -> Result<()> {
        let OwnedExecution { library, object } = self.owned;
        let functions = library.functions;
        let (start, length) = range_of(argument);
        let ty = type_of(operand, &argument.dimensions);
        library.checked(match memory {
            Some(memory) => {
                let set = functions.Execution_setOutputFromMemory;
                set(object, index, if_any(&ty), memory.object, start, length)
            }
            None => {
                let bytes_at = pool[start..start + length].as_mut_ptr().cast();
                (functions.Execution_setOutput)(object, index, if_any(&ty), bytes_at, length)
            }
        })
    }

    /// The shapes of all outputs, if they are told.
    pub(crate) fn shapes(&self, outputs: usize) -> Vec<OutputShape> {
        let shapes = (0..outputs).map(|index| self.shape(index as i32));
        shapes.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    fn shape(&self, index: i32) -> Option<OutputShape> {
        let OwnedExecution { library, object } = self.owned;
        let functions = library.functions;
        let mut rank = 0;
        let code = (functions.Execution_getOutputOperandRank)(object, index, &raw mut rank);
        if code != 0 && code != INSUFFICIENT {
            return None;
        }
        let mut dimensions = vec![0; rank as usize];
        if rank > 0 {
            let get = functions.Execution_getOutputOperandDimensions;
            if get(object, index, dimensions.as_mut_ptr()) != code {
                return None;
            }
        }
        Some(OutputShape {
            dimensions,
            is_sufficient: code == 0,
        })
    }

    pub(crate) fn timing(&self) -> Result<Timing> {
        const ON_HARDWARE: c_int = 0;
        const IN_DRIVER: c_int = 1;
        Ok(Timing {
            time_on_device_us: self.duration_us(ON_HARDWARE)?,
            time_in_driver_us: self.duration_us(IN_DRIVER)?,
        })
    }

    fn duration_us(&self, code: c_int) -> Result<u64> {
        let OwnedExecution { library, object } = self.owned;
        let mut nanoseconds = 0_u64;
        let get = library.functions.Execution_getDuration;
        library.checked(get(object, code, &raw mut nanoseconds))?;
        Ok(match nanoseconds {
            u64::MAX => u64::MAX,
            nanoseconds => nanoseconds / 1000,
        })
    }
}

/// NULL for a type that says nothing beyond the model.
pub(crate) fn if_any(ty: &OperandType) -> *const OperandType {
    if ty.dimension_count == 0 {
        std::ptr::null()
    } else {
        std::ptr::from_ref(ty)
    }
}

/// First byte and number of bytes of an argument in its pool.
fn range_of(argument: &RequestArgument) -> (usize, usize) {
    let location = argument.location;
    (location.offset as usize, location.length as usize)
}
