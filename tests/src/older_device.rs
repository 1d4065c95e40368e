//! Devices in the form of HAL 1.0, 1.1 and 1.2 that compute with the reference kernels, for tests of what
//! serves such devices. Each checks what it is given as a driver of its version would.

use std::sync::Arc;
use std::time::Instant;

use nnhal_cpu::{Execution, KernelSet, NeverInterrupted, Program, RunOptions};
use nnhal_device::older::v1_2::Executed;
use nnhal_device::older::{
    self, ExecutionCallback, PreparedModelCallback, RequestMemories, v1_0, v1_1, v1_2,
};
use nnhal_device::{Device, DeviceOptions, Needs};
use nnhal_driver::{DeviceEntry, DeviceRegistry};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::versions::v1_0::{self as hal_1_0, ErrorStatus};
use nnhal_hal::versions::{v1_1 as hal_1_1, v1_2 as hal_1_2};
use nnhal_hal::{
    Capabilities, ConstantPools, DeviceType, ExecutionPreference, Failure, HalVersion, MeasureTiming, Model,
    OutputShape, PerformanceInfo, RequestArgument, Shape, Timing, loop_timeout,
};

/// The device of HAL 1.0.
pub const OF_1_0: &str = "test-of_1_0";
/// The device of HAL 1.1.
pub const OF_1_1: &str = "test-of_1_1";
/// The device of HAL 1.2.
pub const OF_1_2: &str = "test-of_1_2";

/// All three.
#[must_use]
pub fn registry() -> DeviceRegistry {
    let entry = |name, create| DeviceEntry {
        name,
        create,
        by_default: true,
        needs: Needs::NONE,
    };
    DeviceRegistry::new()
        .with(entry(OF_1_0, create_1_0))
        .with(entry(OF_1_1, create_1_1))
        .with(entry(OF_1_2, create_1_2))
}

fn create_1_0(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    older::serve_v1_0(OF_1_0, Arc::new(Reference(HalVersion::V1_0)))
}

fn create_1_1(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    older::serve_v1_1(OF_1_1, Arc::new(Reference(HalVersion::V1_1)))
}

fn create_1_2(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    older::serve_v1_2(OF_1_2, Arc::new(Reference(HalVersion::V1_2)))
}

/// The figures of all three: floats, then the rest.
pub const FIGURES: hal_1_0::Capabilities = hal_1_0::Capabilities {
    float32_performance: PerformanceInfo {
        exec_time: 2.0,
        power_usage: 3.0,
    },
    quantized8_performance: PerformanceInfo {
        exec_time: 4.0,
        power_usage: 5.0,
    },
};

/// A device of this version.
#[derive(Clone, Copy, Debug)]
struct Reference(HalVersion);

impl Reference {
    /// The model, if it is a valid one of this device's version.
    fn check(self, model: Model, pools: &dyn ConstantPools) -> Result<ValidModel, ErrorStatus> {
        let model = ValidModel::new(Arc::new(model), pools, &[]).map_err(|_| ErrorStatus::InvalidArgument)?;
        if model.version() > self.0 {
            return Err(ErrorStatus::InvalidArgument);
        }
        Ok(model)
    }

    fn supported(self, model: Model, pools: &dyn ConstantPools) -> Result<Vec<bool>, ErrorStatus> {
        let model = self.check(model, pools)?;
        let operations = model.model().main.operations.iter();
        Ok(operations
            .map(|operation| Program::refusal(operation.operation_type).is_none())
            .collect())
    }

    fn prepare(self, model: Model, pools: &dyn ConstantPools) -> Result<Prepared, ErrorStatus> {
        let model = Arc::new(self.check(model, pools)?);
        let program = Program::with_kernels(model, pools, KernelSet::Reference);
        Ok(Prepared {
            version: self.0,
            program: Arc::new(program.map_err(|_| ErrorStatus::GeneralFailure)?),
        })
    }

    /// Tells the callback, from a thread of its own as a driver may, in the form of 1.0.
    fn launch(self, model: Model, pools: &dyn ConstantPools, callback: PreparedModelCallback) -> ErrorStatus {
        match self.prepare(model, pools) {
            Ok(prepared) => {
                std::thread::spawn(move || callback.notify(Ok(Arc::new(prepared))));
                ErrorStatus::None
            }
            Err(status) => {
                callback.notify(Err(status));
                status
            }
        }
    }
}

impl v1_0::Device for Reference {
    fn capabilities(&self) -> Result<hal_1_0::Capabilities, ErrorStatus> {
        Ok(FIGURES)
    }

    fn supported_operations(
        &self,
        model: &hal_1_0::Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus> {
        self.supported(model.clone().into(), pools)
    }

    fn prepare_model(
        &self,
        model: &hal_1_0::Model,
        pools: &dyn ConstantPools,
        callback: PreparedModelCallback,
    ) -> ErrorStatus {
        self.launch(model.clone().into(), pools, callback)
    }
}

impl v1_1::Device for Reference {
    fn capabilities_1_1(&self) -> Result<hal_1_1::Capabilities, ErrorStatus> {
        Ok(FIGURES.into())
    }

    fn supported_operations_1_1(
        &self,
        model: &hal_1_1::Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus> {
        self.supported(model.clone().into(), pools)
    }

    fn prepare_model_1_1(
        &self,
        model: &hal_1_1::Model,
        pools: &dyn ConstantPools,
        _: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> ErrorStatus {
        self.launch(model.clone().into(), pools, callback)
    }
}

impl v1_2::Device for Reference {
    fn version_string(&self) -> Result<String, ErrorStatus> {
        Ok("older reference".to_owned())
    }

    fn device_type(&self) -> Result<DeviceType, ErrorStatus> {
        Ok(DeviceType::Cpu)
    }

    fn capabilities_1_2(&self) -> Result<hal_1_2::Capabilities, ErrorStatus> {
        Ok(Capabilities::from(FIGURES).to_v1_2().value)
    }

    fn supported_operations_1_2(
        &self,
        model: &hal_1_2::Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus> {
        self.supported(model.clone().into(), pools)
    }

    fn prepare_model_1_2(
        &self,
        model: &hal_1_2::Model,
        pools: &dyn ConstantPools,
        _: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> ErrorStatus {
        match self.prepare(model.clone().into(), pools) {
            Ok(prepared) => {
                callback.notify_1_2(Ok(Arc::new(prepared)));
                ErrorStatus::None
            }
            Err(status) => {
                callback.notify_1_2(Err(status));
                status
            }
        }
    }
}

/// A prepared model of a device of this version.
#[derive(Clone, Debug)]
struct Prepared {
    version: HalVersion,
    program: Arc<Program>,
}

impl Prepared {
    fn run(&self, request: &hal_1_0::Request, memories: &RequestMemories) -> Result<Executed, ErrorStatus> {
        let mut execution = Execution::new(Arc::clone(&self.program));
        for (index, argument) in request.inputs.iter().enumerate() {
            feed(&mut execution, index, argument, memories)?;
        }
        let options = RunOptions {
            interrupt: &NeverInterrupted,
            loop_timeout: loop_timeout::DEFAULT,
            ..RunOptions::default()
        };
        let started = Instant::now();
        execution.run(&options).map_err(|_| ErrorStatus::GeneralFailure)?;
        let on_device =
            u64::try_from(started.elapsed().as_micros()).map_err(|_| ErrorStatus::GeneralFailure)?;
        let mut output_shapes = Vec::new();
        for (index, argument) in request.outputs.iter().enumerate() {
            // A device of 1.0 or 1.1 must be given every dimension.
            if self.version < HalVersion::V1_2 && argument.dimensions.contains(&0) {
                return Err(ErrorStatus::InvalidArgument);
            }
            let (shape, bytes) = execution.output(index).ok_or(ErrorStatus::GeneralFailure)?;
            let is_sufficient = bytes.len() <= argument.location.length as usize;
            if is_sufficient {
                memories.write(argument.location, |room| {
                    room[..bytes.len()].copy_from_slice(bytes)
                })?;
            }
            output_shapes.push(OutputShape {
                dimensions: shape.dims().to_vec(),
                is_sufficient,
            });
        }
        let has_room = output_shapes.iter().all(|shape| shape.is_sufficient);
        Ok(Executed {
            status: if has_room {
                ErrorStatus::None
            } else {
                ErrorStatus::OutputInsufficientSize
            },
            output_shapes,
            timing: Timing {
                time_on_device_us: on_device,
                time_in_driver_us: on_device,
            },
        })
    }
}

fn feed(
    execution: &mut Execution,
    index: usize,
    argument: &RequestArgument,
    memories: &RequestMemories,
) -> Result<(), ErrorStatus> {
    let invalid = |_| ErrorStatus::InvalidArgument;
    if argument.has_no_value {
        return execution.omit_input(index).map_err(invalid);
    }
    let shape = Shape::new(&argument.dimensions).map_err(|_| ErrorStatus::InvalidArgument)?;
    let room = execution.input(index, &shape).map_err(invalid)?;
    let copied = memories.read(argument.location, |bytes| {
        (bytes.len() == room.len()).then(|| room.copy_from_slice(bytes))
    })?;
    copied.ok_or(ErrorStatus::InvalidArgument)
}

impl v1_0::PreparedModel for Prepared {
    fn execute(
        &self,
        request: &hal_1_0::Request,
        memories: &RequestMemories,
        callback: ExecutionCallback,
    ) -> ErrorStatus {
        let (prepared, request, memories) = (self.clone(), request.clone(), memories.clone());
        std::thread::spawn(move || {
            let status = prepared
                .run(&request, &memories)
                .map_or_else(|status| status, |done| done.status);
            callback.notify(status);
        });
        ErrorStatus::None
    }
}

impl v1_2::PreparedModel for Prepared {
    fn execute_1_2(
        &self,
        request: &hal_1_0::Request,
        memories: &RequestMemories,
        measure: MeasureTiming,
        callback: ExecutionCallback,
    ) -> ErrorStatus {
        let (prepared, request, memories) = (self.clone(), request.clone(), memories.clone());
        std::thread::spawn(move || {
            let Executed {
                status,
                output_shapes,
                timing,
            } = v1_2::PreparedModel::execute_synchronously(&prepared, &request, &memories, measure);
            callback.notify_1_2(status, output_shapes, timing);
        });
        ErrorStatus::None
    }

    fn execute_synchronously(
        &self,
        request: &hal_1_0::Request,
        memories: &RequestMemories,
        measure: MeasureTiming,
    ) -> Executed {
        let mut executed = self.run(request, memories).unwrap_or_else(Executed::failed);
        if measure == MeasureTiming::No || executed.status != ErrorStatus::None {
            executed.timing = Timing::NONE;
        }
        executed
    }
}
