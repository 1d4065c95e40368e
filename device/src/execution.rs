//! Models that are ready to run, and the memory of their runs.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use nnhal_hal::{Failure, Shape};

use super::memory::host_memory;
use super::{Compiled, Control, DeviceMemory, InputSource, QueuedExecution};

/// A model made ready to run.
pub trait PreparedModel: Send + Sync + Debug {
    /// Memory for one run at a time. Executions of one prepared model are independent of each other.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory.
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure>;

    /// What to keep of it in a compilation cache beside the model, and to share with other workers that
    /// prepare the same model; `None` to prepare the model and all of its constants anew each time.
    fn compiled(&self) -> Option<Compiled<'_>> {
        None
    }
}

/// The memory of one run at a time, used again and again: set every input, run, read the outputs.
pub trait Execution: Send + Debug {
    /// Gives input `index` its dimensions, and takes its value from `source`: exactly as many bytes as an
    /// input of these dimensions has. A device copies them, or reads them in place where the source permits
    /// it: during [`Execution::run`], or until the fence of a queued execution. One that copies large inputs
    /// by several threads, for which it asks `control` for processors, has what another process has just
    /// written in the caches of those that need it.
    ///
    /// # Errors
    ///
    /// Those of [`InputSource::read`]; `RESOURCE_EXHAUSTED_*` without memory; `INVALID_ARGUMENT` if the
    /// device cannot take these dimensions.
    fn set_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        control: &Control<'_>,
    ) -> Result<(), Failure>;

    /// Leaves the optional input `index` out.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if the device needs it.
    fn omit_input(&mut self, index: usize) -> Result<(), Failure>;

    /// Gives input `index` its dimensions and takes its value from a device buffer: in place, if the device
    /// can.
    ///
    /// The memory came from [`Execution::take_output`] of this device's executions, of this or another model,
    /// or from [`crate::Device::upload`], and has exactly as many bytes as the input.
    ///
    /// # Errors
    ///
    /// As [`Execution::set_input`].
    fn bind_input(
        &mut self,
        index: usize,
        shape: Shape,
        memory: &Arc<dyn DeviceMemory>,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        self.set_input(index, &shape, memory, control)
    }

    /// Lets go of all memory that inputs are read from in place, as a run does when it ends: there will be
    /// none.
    fn unbind_inputs(&mut self) {}

    /// Takes output `index` of a run that succeeded as the content of a device buffer: without copying, if
    /// the device can. The output cannot be read by [`Execution::output`] afterwards.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory, `GENERAL_FAILURE` if there is no such output.
    fn take_output(&mut self, index: usize) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let (_, bytes) = self
            .output(index)
            .ok_or_else(|| Failure::general(format!("there is no output {index}")))?;
        let mut memory = host_memory(bytes.len())?;
        memory.bytes_mut().copy_from_slice(bytes);
        Ok(Arc::new(memory))
    }

    /// Takes memory that was the content of a device buffer and that nobody reads any more, for the next run
    /// to use.
    fn recycle(&mut self, memory: Arc<dyn DeviceMemory>) {
        drop(memory);
    }

    /// Hears what model and request say of the dimensions of output `index`, before the inputs of each run
    /// are given: 0 where they leave an extent open, rank 0 also where they leave the rank open. For devices
    /// that cannot find dimensions by themselves. Not to wait for anything, since others may be computing; a
    /// run need not follow.
    fn expect_output(&mut self, index: usize, shape: &Shape) {
        let _ = (index, shape);
    }

    /// This execution as one that is queued, for a device that computes by itself: the driver never calls
    /// [`Execution::run`] then. The answer is the same each time.
    fn queued(&mut self) -> Option<&mut dyn QueuedExecution> {
        None
    }

    /// Computes all outputs on the thread that calls. Returns how long the hardware was busy, if it can tell;
    /// the driver takes the time of the call otherwise.
    ///
    /// # Errors
    ///
    /// The outputs are undefined then.
    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let _ = control;
        Err(Failure::general(
            "the device neither computes nor queues this execution",
        ))
    }

    /// Dimensions and bytes of output `index` after a run that succeeded. Small models are computed about as
    /// fast as this is asked, so it should look up what is there and no more.
    fn output(&self, index: usize) -> Option<(&Shape, &[u8])>;

    /// Takes what memory the first run is known to need, before there are inputs, on the thread that will run
    /// it.
    fn reserve_memory(&mut self) {}

    /// Gives back what the next run can allocate again. May come before any run.
    fn release_memory(&mut self);
}
