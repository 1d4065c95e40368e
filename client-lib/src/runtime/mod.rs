//! The runtime above the drivers: what the NNAPI framework does.
//!
//! A [`Runtime`] knows the devices of all drivers and the CPU in this process. It compiles a model for them
//! ([`Runtime::compile`]): each operation goes to the device that says it is best at it, neighbouring
//! operations of one device become a step, and what one step computes for another lies in memory between
//! them. Where a driver fails, the CPU in this process takes its place, if the rules of the NDK allow it.
//! [`Compilation::explain`] tells what went where, and why not elsewhere.
//!
//! ```no_run
//! use nnhal_client::runtime::{CompilationOptions, RunInput, RunOutput, Runtime};
//! use nnhal_client::{ExecuteOptions, Model};
//!
//! # fn example(model: &Model) -> Result<(), nnhal_client::runtime::RuntimeError> {
//! let runtime = Runtime::open()?;
//! let compilation = runtime.compile(model, &CompilationOptions::new())?;
//! let mut sum = [0_u8; 16];
//! compilation.execute(
//!     &[RunInput::bytes(&[0; 16])],
//!     &mut [RunOutput::bytes(&mut sum)],
//!     &ExecuteOptions::new(),
//! )?;
//! # Ok(())
//! # }
//! ```

mod arguments;
mod assignment;
mod burst;
mod caching;
mod compilation;
mod computed;
mod control_flow;
mod cpu;
mod deadline;
mod device;
mod device_memory;
mod devices;
mod direct;
mod event;
mod execution;
mod explanation;
mod extension_registry;
mod fenced;
mod fenced_end;
mod options;
mod partition;
mod plan;
mod request_builder;
mod result;
mod roles;
mod run;
mod shapes;
mod started;
mod step;
mod step_model;
mod value_store;

pub use crate::values::OwnValues;
pub use arguments::{OutputBuffer, RunInput, RunOutput};
pub use burst::{RegisteredRun, RunBurst};
pub use compilation::Compilation;
pub use computed::Finished;
pub use device::{CPU_DEVICE, RUNTIME_FEATURE_LEVEL, RuntimeDevice};
pub use device_memory::DeviceMemory;
pub use devices::{Runtime, RuntimeOptions};
pub use event::RunEvent;
pub use explanation::{Answer, Explanation, OperationExplanation, StepExplanation};
pub use extension_registry::ExtensionRegistry;
pub use nnhal_hal::validate::Direction;
pub use options::{CompilationOptions, OperationFilter, Partitioning, Recovery};
pub use result::{ResultCode, RuntimeError, RuntimeResult};
pub use roles::MemoryRole;
