//! Models that are ready to run, and the memory of their runs.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nnhal_hal::{Failure, Shape};
use nnhal_os::shm::SealedBytes;

use super::memory::host_memory;
use super::{Compiled, Control, DeviceMemory};

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

/// Copies bytes of an input from an offset on; see [`Execution::fill_input`].
pub type Fill<'f> = dyn Fn(u64, &mut [u8]) -> Result<(), Failure> + Sync + 'f;

/// The memory of one run at a time, used again and again: set every input, run, read the outputs.
pub trait Execution: Send + Debug {
    /// Gives input `index` its dimensions and returns its memory, exactly as many bytes as the input has, to
    /// be filled before [`Execution::run`]. The content is undefined until then.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory; `INVALID_ARGUMENT` if the device cannot take these dimensions.
    fn input(&mut self, index: usize, shape: &Shape) -> Result<&mut [u8], Failure>;

    /// The same for an input that has this very shape from the last run, if that can be told at once. Small
    /// models are computed about as fast as this is asked; where there is nothing to gain it need not be
    /// known.
    fn input_again(&mut self, index: usize, shape: &Shape) -> Option<&mut [u8]> {
        let _ = (index, shape);
        None
    }

    /// Fills the memory that [`Execution::input`] or [`Execution::input_again`] has just given for an input
    /// of this shape: each byte once, by `fill`, which copies as many bytes as it is given room for, from an
    /// offset in bytes on. Called in place of the driver's own copying for inputs of 64 KiB and more. A
    /// device that computes with several threads, for which it asks `control` for processors, may have each
    /// fill some of it: what another process has just written comes slowly, and is then in the cache of who
    /// needs it.
    ///
    /// # Errors
    ///
    /// As [`Execution::input`] and `fill`.
    fn fill_input(
        &mut self,
        index: usize,
        shape: &Shape,
        control: &Control<'_>,
        fill: &Fill<'_>,
    ) -> Result<(), Failure> {
        let _ = control;
        fill(0, self.input(index, shape)?)
    }

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
    /// As [`Execution::input`].
    fn bind_input(
        &mut self,
        index: usize,
        shape: Shape,
        memory: &Arc<dyn DeviceMemory>,
    ) -> Result<(), Failure> {
        memory.read(0, self.input(index, &shape)?)
    }

    /// Gives input `index` its dimensions and reads its value in place, from a part of memory that no process
    /// can change any more. Returns whether it does: a device need not, nor from where it cannot read it, nor
    /// with more or fewer bytes than the input has; nothing is changed then.
    fn bind_sealed(
        &mut self,
        index: usize,
        shape: &Shape,
        memory: &Arc<SealedBytes>,
        part: Range<usize>,
    ) -> bool {
        let _ = (index, shape, memory, part);
        false
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

    /// Computes all outputs. Returns how long the hardware was busy, if it can tell; the driver takes the
    /// time of the call otherwise.
    ///
    /// # Errors
    ///
    /// The outputs are undefined then.
    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure>;

    /// Dimensions and bytes of output `index` after a run that succeeded. Small models are computed about as
    /// fast as this is asked, so it should look up what is there and no more.
    fn output(&self, index: usize) -> Option<(&Shape, &[u8])>;

    /// Takes what memory the first run is known to need, before there are inputs, on the thread that will run
    /// it.
    fn reserve_memory(&mut self) {}

    /// Gives back what the next run can allocate again. May come before any run.
    fn release_memory(&mut self);
}
