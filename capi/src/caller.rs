//! The interface as Rust calls it, for tests of the interface as a whole: models, compilations and executions of the
//! HAL's own form, brought through the exported functions and through nothing else.

use std::ffi::{c_int, c_void};

use nnhal::hal::{
    self, ErrorStatus, ExtraParams, Operand, OperandLifeTime, OutputShape, Request, RequestArgument,
    Subgraph, Timing,
};
use nnhal_client::Memory as SharedMemory;
use nnhal_client::runtime::RuntimeOptions;

use crate::codes::ResultCode;
use crate::ffi::{Handle, In, Out};
use crate::types::*;
use crate::{exports, last_error, process};

/// A function of the interface that has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// What it returned.
    pub code: c_int,
    /// What [`exports::nnhal_last_error`] said.
    pub text: String,
    /// The shapes of the outputs of an execution, where it tells them all the same.
    pub output_shapes: Vec<OutputShape>,
}

impl CallError {
    /// The HAL's status for the code.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        let statuses = ErrorStatus::ALL.into_iter();
        let mut same = statuses.filter(|status| ResultCode::of_status(*status) as c_int == self.code);
        same.next().unwrap_or(ErrorStatus::GeneralFailure)
    }
}

type Result<T> = std::result::Result<T, CallError>;

fn checked(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(CallError {
        code,
        text: last_error::text(),
        output_shapes: Vec::new(),
    })
}

/// What a function writes where it is told to.
fn made<T>(make: impl FnOnce(Out<Handle<T>>) -> c_int) -> Result<Handle<T>> {
    let mut handle = Handle::with_address(0);
    checked(make(Out::of(&mut handle)))?;
    Ok(handle)
}

/// Where the library looks for devices. Only before its first use.
///
/// # Errors
/// The runtime cannot be set up, or is already.
pub fn open_with(options: RuntimeOptions) -> std::result::Result<(), String> {
    process::open_with(options).map_err(|failure| failure.text)
}

/// The devices, by name.
///
/// # Errors
/// What a function of the interface fails with.
pub fn device_names() -> Result<Vec<String>> {
    let mut count = 0;
    checked(exports::ANeuralNetworks_getDeviceCount(Out::of(&mut count)))?;
    (0..count).map(|index| Ok(device(index)?.1)).collect()
}

fn device(index: u32) -> Result<(Handle<ANeuralNetworksDevice>, String)> {
    let device = made(|place| exports::ANeuralNetworks_getDevice(index, place))?;
    let mut name = std::ptr::null();
    checked(exports::ANeuralNetworksDevice_getName(
        device.as_const(),
        Out::of(&mut name),
    ))?;
    let name = In::of_pointer(name).text("name").map_err(|failure| CallError {
        code: failure.number(),
        text: failure.text,
        output_shapes: Vec::new(),
    })?;
    Ok((device, name.to_string_lossy().into_owned()))
}

fn device_named(name: &str) -> Result<Handle<ANeuralNetworksDevice>> {
    let mut index = 0;
    loop {
        let (device, its_name) = device(index)?;
        if its_name == name {
            return Ok(device);
        }
        index += 1;
    }
}

macro_rules! freed {
    ($($owner:ident = $free:ident;)*) => {$(
        impl Drop for $owner {
            fn drop(&mut self) {
                exports::$free(self.handle);
            }
        }
    )*};
}

freed! {
    Model = ANeuralNetworksModel_free;
    Memory = ANeuralNetworksMemory_free;
    Compilation = ANeuralNetworksCompilation_free;
    Execution = ANeuralNetworksExecution_free;
    Event = ANeuralNetworksEvent_free;
    Burst = ANeuralNetworksBurst_free;
}

#[derive(Debug)]
struct Memory {
    handle: Handle<ANeuralNetworksMemory>,
}

impl Memory {
    fn new(memory: &SharedMemory, is_writable: bool) -> Result<Memory> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let fd = memory.as_fd().as_raw_fd();
        let protection = if is_writable { 3 } else { 1 };
        let size = memory.size() as usize;
        let handle =
            made(|place| exports::ANeuralNetworksMemory_createFromFd(size, protection, fd, 0, place))?;
        Ok(Memory { handle })
    }
}

/// A model that was built and finished through the interface.
#[derive(Debug)]
pub struct Model {
    handle: Handle<ANeuralNetworksModel>,
}

impl Model {
    /// Builds and finishes it, and those inside it. `pools` are the memories of its pools.
    ///
    /// # Errors
    /// What a function of the interface fails with.
    pub fn new(model: &hal::Model, pools: &[SharedMemory]) -> Result<Model> {
        let pools = pools.iter().map(|pool| Memory::new(pool, false));
        let pools = pools.collect::<Result<Vec<_>>>()?;
        Model::of_graph(model, &model.main, &pools)
    }

    fn of_graph(model: &hal::Model, graph: &Subgraph, pools: &[Memory]) -> Result<Model> {
        let built = Model {
            handle: made(|place| exports::ANeuralNetworksModel_create(place))?,
        };
        for (index, operand) in graph.operands.iter().enumerate() {
            built.add_operand(index as i32, operand)?;
            built.set_value(model, index as i32, operand, pools)?;
        }
        for operation in &graph.operations {
            checked(exports::ANeuralNetworksModel_addOperation(
                built.handle,
                operation.operation_type.0.cast_signed(),
                operation.inputs.len() as u32,
                In::of_list(&operation.inputs),
                operation.outputs.len() as u32,
                In::of_list(&operation.outputs),
            ))?;
        }
        checked(exports::ANeuralNetworksModel_identifyInputsAndOutputs(
            built.handle,
            graph.input_indexes.len() as u32,
            In::of_list(&graph.input_indexes),
            graph.output_indexes.len() as u32,
            In::of_list(&graph.output_indexes),
        ))?;
        checked(exports::ANeuralNetworksModel_relaxComputationFloat32toFloat16(
            built.handle,
            model.relax_computation_float32_to_float16,
        ))?;
        checked(exports::ANeuralNetworksModel_finish(built.handle))?;
        Ok(built)
    }

    fn add_operand(&self, index: i32, operand: &Operand) -> Result<()> {
        let ty = type_of(operand, &operand.dimensions);
        checked(exports::ANeuralNetworksModel_addOperand(self.handle, In::of(&ty)))?;
        let ExtraParams::ChannelQuant(channels) = &operand.extra_params else {
            return Ok(());
        };
        let params = ANeuralNetworksSymmPerChannelQuantParams {
            channelDim: channels.channel_dim,
            scaleCount: channels.scales.len() as u32,
            scales: In::of_list(&channels.scales),
        };
        checked(exports::ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
            self.handle,
            index,
            In::of(&params),
        ))
    }

    /// The bytes of constants stay with `model`, which outlives the building.
    fn set_value(&self, model: &hal::Model, index: i32, operand: &Operand, pools: &[Memory]) -> Result<()> {
        let (offset, length) = (operand.location.offset as usize, operand.location.length as usize);
        checked(match operand.lifetime {
            OperandLifeTime::NoValue => {
                exports::ANeuralNetworksModel_setOperandValue(self.handle, index, In::null(), 0)
            }
            OperandLifeTime::ConstantCopy => {
                let bytes = &model.operand_values[offset..offset + length];
                exports::ANeuralNetworksModel_setOperandValue(
                    self.handle,
                    index,
                    In::<c_void>::of_bytes(bytes),
                    length,
                )
            }
            OperandLifeTime::ConstantReference => {
                let pool = &pools[operand.location.pool_index as usize];
                exports::ANeuralNetworksModel_setOperandValueFromMemory(
                    self.handle,
                    index,
                    pool.handle.as_const(),
                    offset,
                    length,
                )
            }
            OperandLifeTime::Subgraph => {
                let inner = Model::of_graph(model, &model.referenced[offset], pools)?;
                exports::ANeuralNetworksModel_setOperandValueFromModel(
                    self.handle,
                    index,
                    inner.handle.as_const(),
                )
            }
            OperandLifeTime::TemporaryVariable
            | OperandLifeTime::SubgraphInput
            | OperandLifeTime::SubgraphOutput => 0,
        })
    }

    /// Which of `operations` operations any of these devices can run.
    ///
    /// # Errors
    /// What a function of the interface fails with.
    pub fn supported_operations(&self, operations: usize, devices: &[&str]) -> Result<Vec<bool>> {
        let devices = devices.iter().map(|name| Ok(device_named(name)?.as_const()));
        let devices = devices.collect::<Result<Vec<_>>>()?;
        let mut supported = vec![false; operations];
        checked(exports::ANeuralNetworksModel_getSupportedOperationsForDevices(
            self.handle.as_const(),
            In::of_list(&devices),
            devices.len() as u32,
            Out::of_list(&mut supported),
        ))?;
        Ok(supported)
    }
}

fn type_of(operand: &Operand, dimensions: &[u32]) -> ANeuralNetworksOperandType {
    ANeuralNetworksOperandType {
        r#type: operand.operand_type.0.cast_signed(),
        dimensionCount: dimensions.len() as u32,
        dimensions: if dimensions.is_empty() {
            In::null()
        } else {
            In::of_list(dimensions)
        },
        scale: operand.scale,
        zeroPoint: operand.zero_point,
    }
}

/// How an execution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// `ANeuralNetworksExecution_compute`.
    Synchronous,
    /// `ANeuralNetworksExecution_startCompute`.
    Asynchronous,
    /// `ANeuralNetworksExecution_burstCompute`.
    Burst,
    /// `ANeuralNetworksExecution_startComputeWithDependencies`, with outputs in shared memory.
    Fenced,
}

/// What an execution is to do beside computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionSettings {
    /// How it is computed.
    pub computation: Computation,
    /// Whether it is measured, which only compilations for one named device can be.
    pub is_measured: bool,
    /// The longest that a loop may take, in nanoseconds.
    pub loop_timeout: Option<u64>,
}

#[derive(Debug)]
struct Burst {
    handle: Handle<ANeuralNetworksBurst>,
}

#[derive(Debug)]
struct Execution {
    handle: Handle<ANeuralNetworksExecution>,
}

#[derive(Debug)]
struct Event {
    handle: Handle<ANeuralNetworksEvent>,
}

/// A model that was compiled through the interface.
#[derive(Debug)]
pub struct Compilation {
    handle: Handle<ANeuralNetworksCompilation>,
    burst: Option<Burst>,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
}

impl Compilation {
    /// Compiles a model, whose form in the HAL is `hal`, for one named device or for all together.
    ///
    /// # Errors
    /// What a function of the interface fails with.
    pub fn new(model: &Model, hal: &hal::Model, device: Option<&str>) -> Result<Compilation> {
        let handle = match device {
            Some(name) => {
                let devices = [device_named(name)?.as_const()];
                made(|place| {
                    exports::ANeuralNetworksCompilation_createForDevices(
                        model.handle,
                        In::of_list(&devices),
                        1,
                        place,
                    )
                })?
            }
            None => made(|place| exports::ANeuralNetworksCompilation_create(model.handle, place))?,
        };
        let operands = |indexes: &[u32]| {
            let operands = indexes
                .iter()
                .map(|index| hal.main.operands[*index as usize].clone());
            operands.collect()
        };
        let compilation = Compilation {
            handle,
            burst: None,
            inputs: operands(&hal.main.input_indexes),
            outputs: operands(&hal.main.output_indexes),
        };
        checked(exports::ANeuralNetworksCompilation_finish(compilation.handle))?;
        Ok(compilation)
    }

    /// Executes a request of two pools, one with the inputs and one for the outputs.
    ///
    /// # Errors
    /// What a function of the interface fails with.
    pub fn execute(
        &mut self,
        request: &Request,
        settings: &ExecutionSettings,
        inputs: &[u8],
        outputs: &mut [u8],
    ) -> Result<(Vec<OutputShape>, Timing)> {
        let execution = Execution {
            handle: made(|place| exports::ANeuralNetworksExecution_create(self.handle, place))?,
        };
        if settings.is_measured {
            checked(exports::ANeuralNetworksExecution_setMeasureTiming(
                execution.handle,
                true,
            ))?;
        }
        if let Some(timeout) = settings.loop_timeout {
            checked(exports::ANeuralNetworksExecution_setLoopTimeout(
                execution.handle,
                timeout,
            ))?;
        }
        for (index, (argument, operand)) in request.inputs.iter().zip(&self.inputs).enumerate() {
            execution.set_input(index as i32, argument, operand, inputs)?;
        }
        let shared = match settings.computation {
            Computation::Fenced => Some(shared_room(outputs.len())?),
            _ => None,
        };
        for (index, (argument, operand)) in request.outputs.iter().zip(&self.outputs).enumerate() {
            let memory = shared.as_ref().map(|(_, memory)| memory);
            execution.set_output(index as i32, argument, operand, (memory, &mut *outputs))?;
        }
        let code = self.compute(&execution, settings.computation)?;
        if let Some((memory, _)) = &shared {
            memory.read_at(0, outputs).map_err(|error| CallError {
                code: ResultCode::ANEURALNETWORKS_UNMAPPABLE as c_int,
                text: error.to_string(),
                output_shapes: Vec::new(),
            })?;
        }
        let text = last_error::text();
        let output_shapes = execution.shapes(request.outputs.len());
        if code != 0 {
            return Err(CallError {
                code,
                text,
                output_shapes,
            });
        }
        let timing = if settings.is_measured {
            execution.timing()?
        } else {
            Timing::NONE
        };
        Ok((output_shapes, timing))
    }

    /// Computes, and gives the code with which the computation ended.
    fn compute(&mut self, execution: &Execution, computation: Computation) -> Result<c_int> {
        Ok(match computation {
            Computation::Synchronous => exports::ANeuralNetworksExecution_compute(execution.handle),
            Computation::Burst => {
                let burst = match self.burst.take() {
                    Some(burst) => burst,
                    None => Burst {
                        handle: made(|place| exports::ANeuralNetworksBurst_create(self.handle, place))?,
                    },
                };
                let burst = self.burst.insert(burst);
                exports::ANeuralNetworksExecution_burstCompute(execution.handle, burst.handle)
            }
            Computation::Asynchronous => {
                let handle =
                    made(|place| exports::ANeuralNetworksExecution_startCompute(execution.handle, place))?;
                let event = Event { handle };
                exports::ANeuralNetworksEvent_wait(event.handle)
            }
            Computation::Fenced => {
                let handle = made(|place| {
                    exports::ANeuralNetworksExecution_startComputeWithDependencies(
                        execution.handle,
                        In::null(),
                        0,
                        0,
                        place,
                    )
                })?;
                let event = Event { handle };
                exports::ANeuralNetworksEvent_wait(event.handle)
            }
        })
    }
}

/// Memory for outputs, and the interface's handle on it.
fn shared_room(size: usize) -> Result<(SharedMemory, Memory)> {
    let memory = SharedMemory::new(size.max(1) as u64).map_err(|error| CallError {
        code: ResultCode::ANEURALNETWORKS_OUT_OF_MEMORY as c_int,
        text: error.to_string(),
        output_shapes: Vec::new(),
    })?;
    let handle = Memory::new(&memory, true)?;
    Ok((memory, handle))
}

impl Execution {
    fn set_input(
        &self,
        index: i32,
        argument: &RequestArgument,
        operand: &Operand,
        pool: &[u8],
    ) -> Result<()> {
        if argument.has_no_value {
            return checked(exports::ANeuralNetworksExecution_setInput(
                self.handle,
                index,
                In::null(),
                In::null(),
                0,
            ));
        }
        let start = argument.location.offset as usize;
        let bytes = &pool[start..start + argument.location.length as usize];
        let ty = type_of(operand, &argument.dimensions);
        checked(exports::ANeuralNetworksExecution_setInput(
            self.handle,
            index,
            type_if_any(&ty),
            In::<c_void>::of_bytes(bytes),
            bytes.len(),
        ))
    }

    /// The output goes into the memory, if there is one, else into `pool`, which the caller keeps until the end.
    fn set_output(
        &self,
        index: i32,
        argument: &RequestArgument,
        operand: &Operand,
        (memory, pool): (Option<&Memory>, &mut [u8]),
    ) -> Result<()> {
        let (start, length) = (
            argument.location.offset as usize,
            argument.location.length as usize,
        );
        let ty = type_of(operand, &argument.dimensions);
        checked(match memory {
            Some(memory) => exports::ANeuralNetworksExecution_setOutputFromMemory(
                self.handle,
                index,
                type_if_any(&ty),
                memory.handle.as_const(),
                start,
                length,
            ),
            None => exports::ANeuralNetworksExecution_setOutput(
                self.handle,
                index,
                type_if_any(&ty),
                Out::<c_void>::of_bytes(&mut pool[start..start + length]),
                length,
            ),
        })
    }

    /// The shapes of all outputs, if they are told.
    fn shapes(&self, outputs: usize) -> Vec<OutputShape> {
        const INSUFFICIENT: c_int = ResultCode::ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE as c_int;
        let shape = |index: usize| {
            let mut rank = 0;
            let place = Out::of(&mut rank);
            let code =
                exports::ANeuralNetworksExecution_getOutputOperandRank(self.handle, index as i32, place);
            if code != 0 && code != INSUFFICIENT {
                return None;
            }
            let mut dimensions = vec![0; rank as usize];
            if rank > 0 {
                let place = Out::of_list(&mut dimensions);
                let again = exports::ANeuralNetworksExecution_getOutputOperandDimensions(
                    self.handle,
                    index as i32,
                    place,
                );
                if again != code {
                    return None;
                }
            }
            Some(OutputShape {
                dimensions,
                is_sufficient: code == 0,
            })
        };
        (0..outputs)
            .map(shape)
            .collect::<Option<Vec<_>>>()
            .unwrap_or_default()
    }

    fn timing(&self) -> Result<Timing> {
        let duration = |code| {
            let mut nanoseconds = 0_u64;
            let place = Out::of(&mut nanoseconds);
            checked(exports::ANeuralNetworksExecution_getDuration(
                self.handle.as_const(),
                code,
                place,
            ))?;
            Ok(if nanoseconds == u64::MAX {
                u64::MAX
            } else {
                nanoseconds / 1000
            })
        };
        Ok(Timing {
            time_on_device_us: duration(0)?,
            time_in_driver_us: duration(1)?,
        })
    }
}

/// NULL for a type that says nothing beyond the model.
fn type_if_any(ty: &ANeuralNetworksOperandType) -> In<ANeuralNetworksOperandType> {
    if ty.dimensionCount == 0 {
        In::null()
    } else {
        In::of(ty)
    }
}
