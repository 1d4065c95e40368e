//! The devices: what they say of themselves, what they support, and preparing models.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use nnhal_device::hal::validate::ValidModel;
use nnhal_device::hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceType, Failure, HalVersion, NumberOfCacheFiles,
    OperandType, Operation, OperationSupport, PerformanceInfo,
};
use nnhal_device::{Device, DeviceOptions, Need, Needs, PrepareOptions, PreparedModel};

use crate::execution::Prepared;
use crate::program::{Program, Step};
use crate::queue::Queue;
use crate::unit::{Kernel, Refusal, Unit, View, declared};
use crate::value::Value;
use crate::{arithmetic, extension, fibonacci};

/// The device that has the extension.
pub const FIBONACCI: &str = "example-fibonacci";
/// The device that supports few operations.
pub const ARITHMETIC: &str = "example-arithmetic";
/// The device that stands in front of the other two.
pub const EVERYTHING: &str = "example-everything";
/// The device that computes by itself.
pub const QUEUE: &str = "example-queue";

/// The node of the hardware behind [`ARITHMETIC`]: every machine has this one, and it takes any program.
const NODE: &str = "/dev/null";

/// What [`ARITHMETIC`] needs while it serves a client. The jail of its workers lets it open this node, and
/// nothing else.
pub(crate) const NEEDS: Needs = Needs {
    files: &[Need {
        what: NODE,
        reason: "a channel to the hardware for each prepared model",
    }],
    ..Needs::NONE
};

/// Makes [`FIBONACCI`].
pub(crate) fn create_fibonacci(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    create(FIBONACCI, DeviceType::Accelerator, &[fibonacci::compile], options)
}

/// Makes [`ARITHMETIC`].
pub(crate) fn create_arithmetic(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    create(
        ARITHMETIC,
        DeviceType::Accelerator,
        &[arithmetic::compile],
        options,
    )
}

/// Makes [`EVERYTHING`].
pub(crate) fn create_everything(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    let units: &'static [Unit] = &[fibonacci::compile, arithmetic::compile];
    create(EVERYTHING, DeviceType::Other, units, options)
}

/// Makes [`QUEUE`]. Its option `latency_us` is how many microseconds the hardware takes for an operation.
pub(crate) fn create_queue(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    let mut latency = Duration::ZERO;
    for (key, value) in &options.values {
        if key != "latency_us" {
            return Err(no_option(QUEUE, key));
        }
        latency = value.parse().map(Duration::from_micros).map_err(|_| {
            Failure::invalid_argument(format!(
                "option \"latency_us\" of {QUEUE} must be a number, not {value:?}"
            ))
        })?;
    }
    Ok(Arc::new(VendorDevice {
        info: info(QUEUE, DeviceType::Accelerator, false),
        units: &[arithmetic::compile],
        node: None,
        queue: Some(Arc::new(Queue::new(latency))),
    }))
}

fn create(
    name: &'static str,
    device_type: DeviceType,
    units: &'static [Unit],
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, Failure> {
    if let Some(key) = options.values.keys().next() {
        return Err(no_option(name, key));
    }
    let has_extension = name != ARITHMETIC;
    Ok(Arc::new(VendorDevice {
        info: info(name, device_type, has_extension),
        units,
        node: (name == ARITHMETIC).then_some(NODE),
        queue: None,
    }))
}

fn no_option(name: &str, key: &str) -> Failure {
    Failure::invalid_argument(format!("device {name} has no option {key:?}"))
}

fn info(name: &str, device_type: DeviceType, has_extension: bool) -> DeviceInfo {
    DeviceInfo {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device_type,
        hal_version: HalVersion::V1_3,
        capabilities: Capabilities::uniform(PerformanceInfo::REFERENCE, [OperandType::TENSOR_FLOAT32]),
        extensions: if has_extension {
            vec![extension::definition()]
        } else {
            Vec::new()
        },
        cache_files: NumberOfCacheFiles::default(),
    }
}

#[derive(Debug)]
struct VendorDevice {
    info: DeviceInfo,
    units: &'static [Unit],
    /// Where the hardware is reached, if there is any.
    node: Option<&'static str>,
    /// What computes, if that is not the thread that asks.
    queue: Option<Arc<Queue>>,
}

impl VendorDevice {
    /// Opens a channel to the hardware, for one prepared model.
    fn channel(&self) -> Result<Option<File>, Failure> {
        let open = |node| {
            let opened = File::options().write(true).open(node);
            opened.map_err(|error| {
                Failure::general(format!("the hardware at {node} cannot be reached: {error}"))
            })
        };
        self.node.map(open).transpose()
    }

    /// The kernel of the first unit that can run the operation, or why none can.
    fn compile(&self, view: &View<'_>, operation: &Operation) -> Result<Box<dyn Kernel>, String> {
        let mut reason = None;
        for unit in self.units {
            match unit(view, operation) {
                Ok(kernel) => return Ok(kernel),
                Err(Refusal::Unknown) => {}
                Err(Refusal::Unsupported(why)) => reason = Some(why),
            }
        }
        Err(reason.unwrap_or_else(|| format!("{} does not have this operation", self.info.name)))
    }
}

impl Device for VendorDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supported_operations(&self, model: &ValidModel, pools: &dyn ConstantPools) -> Vec<OperationSupport> {
        let view = View { model, pools };
        let operations = model.model().main.operations.iter();
        operations
            .map(|operation| match self.compile(&view, operation) {
                Ok(_) => OperationSupport::Supported,
                Err(reason) => OperationSupport::Unsupported { reason },
            })
            .collect()
    }

    fn prepare(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        let view = View { model: &model, pools };
        let main = &model.model().main;
        let channel = self.channel()?;
        let mut steps = Vec::with_capacity(main.operations.len());
        for operation in &main.operations {
            options.control.checkpoint()?;
            let indexes = |operands: &[u32]| operands.iter().map(|&operand| operand as usize).collect();
            let kernel = self.compile(&view, operation).map_err(Failure::general)?;
            steps.push(Step {
                kernel,
                inputs: indexes(&operation.inputs),
                output: operation.outputs[0] as usize,
            });
        }
        let mut constants = vec![Value::default(); main.operands.len()];
        for (operand, value) in main.operands.iter().zip(&mut constants) {
            if let Some(bytes) = model.model().constant_bytes(operand, pools) {
                value
                    .resize(declared(operand), bytes.len())?
                    .copy_from_slice(bytes);
            }
        }
        if let Some(queue) = &self.queue {
            queue.start()?;
        }
        Ok(Arc::new(Prepared {
            program: Arc::new(Program {
                steps,
                constants,
                model: Arc::clone(&model),
                _channel: channel,
            }),
            queue: self.queue.clone(),
        }))
    }
}
