//! Executions that are computed again and again with the same arguments, as streaming programs do.

use nnhal_client::Memory as SharedMemory;

use crate::compilation::Compilation;
use crate::error::{CallError, Result};
use crate::execution::{Arguments, Execution};
use crate::library::{OwnedBurst, OwnedExecution, OwnedMemory};

/// A burst.
#[derive(Debug)]
pub struct Burst {
    owned: OwnedBurst,
}

impl Burst {
    /// A burst of a compilation.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn new(compilation: &Compilation) -> Result<Burst> {
        Ok(Burst {
            owned: compilation.new_burst()?,
        })
    }
}

/// An execution of a model with one input and one output, that is computed again and again.
#[derive(Debug)]
pub struct ReusableExecution {
    // Freed before what it reads and writes.
    execution: Execution,
    room: OutputBuffer,
}

#[derive(Debug)]
enum OutputBuffer {
    /// One memory, with the input before the output.
    Shared {
        memory: SharedMemory,
        _object: OwnedMemory,
        output_at: u64,
    },
    /// The library's pointers to them stay good, for neither is moved or grows.
    Own { input: Vec<u8>, output: Vec<u8> },
}

impl ReusableExecution {
    /// An execution that reads `input` and writes an output of `output_bytes`.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn new(
        compilation: &Compilation,
        arguments: Arguments,
        input: &[u8],
        output_bytes: usize,
    ) -> Result<ReusableExecution> {
        let execution = Execution::new(&compilation.owned)?;
        let OwnedExecution { library, object } = execution.owned;
        let functions = library.functions;
        library.checked((functions.Execution_setReusable)(object, true))?;
        let room = match arguments {
            Arguments::Memories => {
                let output_at = input.len().next_multiple_of(64);
                let (memory, shared) = OwnedMemory::with_room(library, output_at + output_bytes)?;
                memory
                    .write_at(0, input)
                    .map_err(|error| CallError::unmappable(error.to_string()))?;
                let set = functions.Execution_setInputFromMemory;
                library.checked(set(object, 0, std::ptr::null(), shared.object, 0, input.len()))?;
                let set = functions.Execution_setOutputFromMemory;
                library.checked(set(
                    object,
                    0,
                    std::ptr::null(),
                    shared.object,
                    output_at,
                    output_bytes,
                ))?;
                OutputBuffer::Shared {
                    memory,
                    _object: shared,
                    output_at: output_at as u64,
                }
            }
            Arguments::Own => {
                let input = input.to_vec();
                let mut output = vec![0; output_bytes];
                let set = functions.Execution_setInput;
                library.checked(set(
                    object,
                    0,
                    std::ptr::null(),
                    input.as_ptr().cast(),
                    input.len(),
                ))?;
                let set = functions.Execution_setOutput;
                let output_at = output.as_mut_ptr().cast();
                library.checked(set(object, 0, std::ptr::null(), output_at, output.len()))?;
                OutputBuffer::Own { input, output }
            }
        };
        Ok(ReusableExecution { execution, room })
    }

    /// Computes it by a burst of its compilation, and waits for the end.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn compute_by(&mut self, burst: &mut Burst) -> Result<()> {
        let OwnedExecution { library, object } = self.execution.owned;
        library.checked((library.functions.Execution_burstCompute)(
            object,
            burst.owned.object,
        ))
    }

    /// Computes it and waits for the end.
    ///
    /// # Errors
    /// What a function of the library fails with.
    pub fn compute(&mut self) -> Result<()> {
        let OwnedExecution { library, object } = self.execution.owned;
        library.checked((library.functions.Execution_compute)(object))
    }

    /// Changes the first bytes of the input, between two computations.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn change_input(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.room {
            OutputBuffer::Shared { memory, .. } => memory
                .write_at(0, bytes)
                .map_err(|error| CallError::unmappable(error.to_string())),
            OutputBuffer::Own { input, .. } => {
                let length = bytes.len().min(input.len());
                input[..length].copy_from_slice(&bytes[..length]);
                Ok(())
            }
        }
    }

    /// Copies the first bytes of the output.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn output(&self, bytes: &mut [u8]) -> Result<()> {
        match &self.room {
            OutputBuffer::Shared {
                memory, output_at, ..
            } => memory
                .read_at(*output_at, bytes)
                .map_err(|error| CallError::unmappable(error.to_string())),
            OutputBuffer::Own { output, .. } => {
                let length = bytes.len().min(output.len());
                bytes[..length].copy_from_slice(&output[..length]);
                Ok(())
            }
        }
    }
}
