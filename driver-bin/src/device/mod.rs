//! What a vendor implements to put a device behind a driver.
//!
//! # The contract
//!
//! A vendor implements three traits: [`Device`], which answers questions and prepares models; [`PreparedModel`], which
//! holds what preparing produced; and [`Execution`], which holds the memory of one run at a time. Everything else
//! (the protocol, processes, memories, bursts, fences, deadlines, priorities, quotas) is the driver library's.
//!
//! - **What a device sees is valid.** Models and requests have passed [`nnhal_hal::validate`] before a device is asked:
//!   structure, types, signatures and locations hold, and constants are in memory that no other process can change.
//!   A device does not check again. Operands of an extension's types have dimensions and sizes as
//!   [`DeviceInfo::extensions`] says. What validation cannot know, because it depends on values (an axis, an index into
//!   a table) or on an extension (the signatures of its operations, the parameters of its types), is the device's to
//!   check, without panicking.
//! - **What a device touches is private.** Inputs are copied from the client's memory into memory that the execution
//!   provides ([`Execution::input`]), once, by the driver; outputs are copied from there. A device never sees a
//!   pointer to memory that another process can write.
//! - **Each client has a process of its own**, and in it each device an object of its own. A device that crashes or
//!   hangs ends that client's worker and nothing else. Global state, files and threads are per worker; workers run
//!   under a jail that is entered before the first client is known, after the devices have been created.
//! - **Threads.** A device is called from several threads at once. One `Execution` is used by one thread at a time,
//!   not always the same. A device that computes an execution with threads of its own asks [`Control::cores`] for
//!   processors, uses one thread for models of preference `LOW_POWER`, and ends the threads in
//!   [`Execution::release_memory`]. So does one whose threads fill large inputs ([`Execution::fill_input`]).
//! - **Long work asks [`Control::checkpoint`]** between operations. It returns an error when the work shall end
//!   (deadline, cancellation, end of the session), and blocks while work of higher priority goes first. Work that
//!   does not ask for longer than the watchdog's limit is taken for hung, and the worker is ended.
//! - **No allocation in steady state.** Once an execution has run with certain shapes, running it again with the same
//!   shapes should not allocate: bursts rely on it for their latency.
//! - **Device buffers** ([`DeviceMemory`]) are written once and then only read, by any number of executions at once: a
//!   buffer that the client writes again gets new memory. So a device can hand what one execution computed to the next
//!   without copying, and without locking; the driver gives memory back to an execution when nobody reads it any more
//!   ([`Execution::recycle`]).
//! - **Compilation caches.** A device that asks for cache files need not do anything else: what is kept is the model with
//!   its constants, which is prepared again. One that takes its time to prepare gives [`PreparedModel::compiled`] and
//!   takes it back in [`Device::restore`].
//! - **Weights in memory once.** What [`PreparedModel::compiled`] gives is also what clients of the same user share: the
//!   driver library puts it into memory that all their workers map, and has [`Device::restore`] make the model ready from
//!   there. A device that leaves it where it is keeps no copy of its own.
//! - **Memory between runs.** The driver calls [`Execution::release_memory`] on executions that have not run for a
//!   while.
//! - **Failures** are a HAL status and a text that tells a person what was wrong, where, and what would be right.

mod compiled;
mod control;
pub mod cpu;
mod cpu_performance;
pub mod empty;
mod memory;
pub mod older;
mod registry;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nnhal::wire::{Failure, OperationSupport};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{ConstantPools, DeviceInfo, DeviceStatus, ExecutionPreference, Priority, Shape};
use nnhal_os::shm::SealedBytes;

pub use compiled::Compiled;
pub use control::{Control, Interruption};
pub use memory::{DeviceMemory, HostMemory, exhaustion};
pub use nnhal_cpu::{AlignedSlice, Cores};
pub use registry::{CreateDevice, DeviceEntry, DeviceOptions, DeviceRegistry};

/// A device.
pub trait Device: Send + Sync + Debug {
    /// What the device says of itself: the same at every call, and from start to start.
    fn info(&self) -> &DeviceInfo;

    /// Whether it can take work now.
    fn status(&self) -> DeviceStatus {
        DeviceStatus::Available
    }

    /// For each operation of the main graph whether the device can run it. `Supported` promises that
    /// [`Device::prepare`] will not fail because of it; IF and WHILE are supported only if everything inside their
    /// subgraphs is.
    fn supported_operations(&self, model: &ValidModel, pools: &dyn ConstantPools) -> Vec<OperationSupport>;

    /// Makes a model ready to run. `pools` is valid during the call only: what executions need of it is copied.
    ///
    /// # Errors
    ///
    /// `MISSED_DEADLINE_*` if a checkpoint says so, `RESOURCE_EXHAUSTED_*` without memory, `GENERAL_FAILURE` for anything
    /// else. Models with operations that the device does not support are refused before.
    fn prepare(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure>;

    /// Makes a model ready to run from the compiled form that one of its prepared models gave: to a compilation cache, or to
    /// be shared with other workers; then `pools` lacks nothing, and the bytes are those that this device has just given. In
    /// a cache it is kept with the device's name and version and given back only to a device with the same, so the version
    /// names everything that the form depends on: its layout, the processor's instructions. Nothing but its length and the
    /// constants' absence has to be checked for right results; but a client can make such files by itself, so no bytes may
    /// do more harm than compute something wrong. `pools` lacks what the form replaces, and is valid during the call only.
    ///
    /// # Errors
    ///
    /// As [`Device::prepare`]; `GENERAL_FAILURE` also if the form is not that of this model.
    fn restore(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        compiled: AlignedSlice,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        let _ = (model, pools, compiled, options);
        Err(Failure::general(format!(
            "device {} has no compiled form of models",
            self.info().name
        )))
    }

    /// Makes device memory that holds what `fill` writes, `size` bytes.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory, or what `fill` fails with.
    fn upload(
        &self,
        size: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Failure>,
    ) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let mut memory = HostMemory::zeroed(size)?;
        fill(memory.bytes_mut())?;
        Ok(Arc::new(memory))
    }
}

/// How to prepare a model.
#[derive(Debug)]
pub struct PrepareOptions<'a> {
    /// What executions shall be good at.
    pub preference: ExecutionPreference,
    /// How executions rank among those of the same client. The driver orders them by itself; this is for devices
    /// whose hardware has priorities too.
    pub priority: Priority,
    /// To be asked between steps.
    pub control: &'a Control<'a>,
}

/// A model made ready to run.
pub trait PreparedModel: Send + Sync + Debug {
    /// Memory for one run at a time. Executions of one prepared model are independent of each other.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory.
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure>;

    /// What to keep of it in a compilation cache beside the model, and to share with other workers that prepare the same
    /// model; `None` to prepare the model and all of its constants anew each time.
    fn compiled(&self) -> Option<Compiled<'_>> {
        None
    }
}

/// Copies bytes of an input from an offset on; see [`Execution::fill_input`].
pub type Fill<'f> = dyn Fn(u64, &mut [u8]) -> Result<(), Failure> + Sync + 'f;

/// The memory of one run at a time, used again and again: set every input, run, read the outputs.
pub trait Execution: Send + Debug {
    /// Gives input `index` its dimensions and returns its memory, exactly as many bytes as the input has, to be
    /// filled before [`Execution::run`]. The content is undefined until then.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory; `INVALID_ARGUMENT` if the device cannot take these dimensions.
    fn input(&mut self, index: usize, shape: &Shape) -> Result<&mut [u8], Failure>;

    /// The same for an input that has this very shape from the last run, if that can be told at once. Small models are computed
    /// about as fast as this is asked; where there is nothing to gain it need not be known.
    fn input_again(&mut self, index: usize, shape: &Shape) -> Option<&mut [u8]> {
        let _ = (index, shape);
        None
    }

    /// Fills the memory that [`Execution::input`] or [`Execution::input_again`] has just given for an input of this shape:
    /// each byte once, by `fill`, which copies as many bytes as it is given room for, from an offset in bytes on. Called in
    /// place of the driver's own copying for inputs of 64 KiB and more. A device that computes with several threads, for
    /// which it asks `control` for processors, may have each fill some of it: what another process has just written comes
    /// slowly, and is then in the cache of who needs it.
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

    /// Gives input `index` its dimensions and takes its value from a device buffer: in place, if the device can.
    ///
    /// The memory came from [`Execution::take_output`] of this device's executions, of this or another model, or from
    /// [`Device::upload`], and has exactly as many bytes as the input.
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

    /// Gives input `index` its dimensions and reads its value in place, from a part of memory that no process can change any
    /// more. Returns whether it does: a device need not, nor from where it cannot read it, nor with more or fewer bytes than the
    /// input has; nothing is changed then.
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

    /// Lets go of all memory that inputs are read from in place, as a run does when it ends: there will be none.
    fn unbind_inputs(&mut self) {}

    /// Takes output `index` of a run that succeeded as the content of a device buffer: without copying, if the device
    /// can. The output cannot be read by [`Execution::output`] afterwards.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory, `GENERAL_FAILURE` if there is no such output.
    fn take_output(&mut self, index: usize) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let (_, bytes) = self
            .output(index)
            .ok_or_else(|| Failure::general(format!("there is no output {index}")))?;
        Ok(Arc::new(HostMemory::copy_of(bytes)?))
    }

    /// Takes memory that was the content of a device buffer and that nobody reads any more, for the next run to use.
    fn recycle(&mut self, memory: Arc<dyn DeviceMemory>) {
        drop(memory);
    }

    /// Hears what model and request say of the dimensions of output `index`, before the inputs of each run are given: 0 where
    /// they leave an extent open, rank 0 also where they leave the rank open. For devices that cannot find dimensions by
    /// themselves. Not to wait for anything, since others may be computing; a run need not follow.
    fn expect_output(&mut self, index: usize, shape: &Shape) {
        let _ = (index, shape);
    }

    /// Computes all outputs. Returns how long the hardware was busy, if it can tell; the driver takes the time of the
    /// call otherwise.
    ///
    /// # Errors
    ///
    /// The outputs are undefined then.
    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure>;

    /// Dimensions and bytes of output `index` after a run that succeeded. Small models are computed about as fast as this is
    /// asked, so it should look up what is there and no more.
    fn output(&self, index: usize) -> Option<(&Shape, &[u8])>;

    /// Takes what memory the first run is known to need, before there are inputs, on the thread that will run it.
    fn reserve_memory(&mut self) {}

    /// Gives back what the next run can allocate again. May come before any run.
    fn release_memory(&mut self);
}
