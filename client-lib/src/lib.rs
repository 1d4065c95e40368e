//! The application's side of nnhal: devices, models, executions, bursts and memories.
//!
//! A device runs in processes of its own. Opening one ([`Devices`], [`Device`]) gives this process a worker
//! that serves nobody else. A model is built ([`ModelBuilder`]) or loaded (`TfliteModel`), prepared
//! ([`Device::prepare`]) and executed. Values are in this process's own memory ([`PreparedModel::run`]), or,
//! with fewer copies, in memory that both processes share ([`Memory`], [`Request`], [`Arguments`]).
//! Executions are synchronous or by burst, both of which cost little more than the computing itself. Others
//! are asynchronous ([`PreparedModel::start`]), or behind fences.
//!
//! ```no_run
//! use nnhal_client::{Devices, ExecuteOptions, Input, ModelBuilder, OperationType, Output, PrepareOptions};
//! use nnhal_client::TensorType;
//!
//! let mut model = ModelBuilder::new();
//! let x = model.input(TensorType::float32(&[1, 4]));
//! let y = model.constant(TensorType::float32(&[4]), &[1.0_f32, 2.0, 3.0, 4.0]);
//! let no_activation = model.scalar(0_i32);
//! let sum = model.output(TensorType::float32(&[1, 4]));
//! model.operation(OperationType::ADD, &[x, y, no_activation], &[sum]);
//!
//! let device = Devices::open()?.fastest()?;
//! let prepared = device.prepare(&model.finish()?, &PrepareOptions::new())?;
//! let mut result = [0.0_f32; 4];
//! prepared.run(&[Input::from(&[1.0_f32; 4])], &mut [Output::from(&mut result)], &ExecuteOptions::new())?;
//! assert_eq!(result, [2.0, 3.0, 4.0, 5.0]);
//! # Ok::<(), nnhal_client::Error>(())
//! ```
//!
//! Two parts are there on demand. The feature `tflite` loads models of `.tflite` files; `runtime` is what
//! NNAPI's framework does above the drivers, and brings the reference kernels into the program, which take
//! minutes to compile.
//!
//! Every wait ends: with the answer, with the deadline that the caller gave, or with the process that was to
//! answer; then the [`Error`] says which process died and how. Handles that were made before a `fork()`
//! refuse to work in the child. A rule of the HAL that a model or request breaks is reported by the driver,
//! with the place and the reason.

#![forbid(unsafe_code)]

mod arguments;
mod buffer;
mod burst;
mod compilation_cache;
mod connection;
mod device;
mod devices;
mod devices_options;
mod driver_process;
mod drivers;
mod error;
mod execution;
mod executors;
mod extension_access;
mod fenced;
mod fenced_ring;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod kept_memory;
mod layout;
mod memory;
mod model;
mod model_builder;
pub mod older;
mod pending;
mod prepared_model;
mod private_directory;
mod private_driver;
mod request;
mod ring_execution;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "tflite")]
mod states;
mod synchronous;
mod tensor;
#[cfg(feature = "tflite")]
pub mod tflite;
mod timeouts;
mod trace;
mod trust;
mod values;
mod watch;

pub use arguments::Arguments;
pub use buffer::Buffer;
pub use burst::{Burst, BurstOptions, Completion, MAX_IN_FLIGHT, RegisteredRequest, Submission};
pub use compilation_cache::CompilationCache;
pub use device::{CacheFiles, Device, PrepareOptions};
pub use devices::Devices;
pub use devices_options::DevicesOptions;
pub use driver_process::{Death, Process, Role};
pub use error::{Error, ErrorKind, Remedy, Result};
pub use execution::{Completed, ExecuteOptions, execution_result};
pub use extension_access::{ALLOWLIST_VARIABLE, SYSTEM_ALLOWLIST};
pub use fenced::{FencedExecution, FencedTiming, WaitFor};
pub use memory::Memory;
pub use model::Model;
pub use model_builder::{ModelBuilder, OperandId};
pub use pending::{PendingExecution, PendingPrepare};
pub use prepared_model::PreparedModel;
pub use private_driver::DRIVER_VARIABLE;
pub use request::Request;
#[cfg(feature = "tflite")]
pub use states::{StatefulModel, StatefulOptions, States, StatesCopy};
pub use tensor::{Element, TensorType};
#[cfg(feature = "tflite")]
pub use tflite::TfliteModel;
pub use timeouts::{CALL_TIMEOUT_VARIABLE, WORK_TIMEOUT_VARIABLE};
pub use trace::{TRACE_VARIABLE, WorkerSpans, flush_trace};
pub use trust::{DRIVER_USERS_VARIABLE, Distrust};
pub use values::{Input, Output};
pub use watch::{DeviceChange, DeviceWatch};

pub use half::f16;
pub use nnhal::diag::trace::{Span, SpanKind};
pub use nnhal::fence::{Fence, FenceSource, FenceState};
pub use nnhal::fmq::WaitSettings;
pub use nnhal::wire::ExecutionResult;
pub use nnhal_hal::{
    BufferDesc, BufferRole, DeviceInfo, DeviceStatus, DeviceType, ErrorStatus, ExecutionPreference,
    Extension, ExtensionOperandTypeInformation, ExtraParams, Failure, HalVersion, MeasureTiming, OperandType,
    OperationSupport, OperationType, OutputShape, Priority, Timing, TypeLayout, TypeLayouts,
};
pub use nnhal_os::time::{Clock, Deadline, MonotonicClock};

#[cfg(all(doctest, feature = "tflite"))]
#[doc = include_str!("../../README.md")]
mod readme {}
