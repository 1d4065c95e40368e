//! `nnhal-empty`: a device that answers every call and computes nothing, for tests of everything around a
//! device.
//!
//! It claims to support every operation; outputs are zeros, and must have dimensions that the model or the
//! first input's dimensions give. Options make it fail in the ways that devices do:
//!
//! | option | meaning |
//! |---|---|
//! | `fault` | `none`; `hang`: never comes back and asks for no checkpoint; `loop`: goes on until a checkpoint ends it; `abort`, `segfault`, `overflow` (of the stack), `panic`, `exit`: ends the process so; `fail`: `GENERAL_FAILURE` |
//! | `after` | how many executions of the worker go well before the fault; 0 by default |
//! | `prepare` | the same faults, for preparing a model; none by default |
//! | `create` | `none`; `hang`: its worker never gets ready |
//! | `ask` | `none`; `abort`: ends the process when it is asked what it supports |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceType, Failure, HalVersion, NumberOfCacheFiles,
    OperandType, OperationSupport, PerformanceInfo, Shape,
};

use nnhal_device::{Control, Device, DeviceOptions, Execution, InputSource, PrepareOptions, PreparedModel};

/// The device's name.
pub const NAME: &str = "nnhal-empty";

/// Makes the device.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for an option or a value that there is not.
pub fn create(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    let mut device = EmptyDevice {
        info: info(),
        prepare: Fault::None,
        ask: Fault::None,
        faults: Arc::default(),
    };
    let mut faults = Faults::default();
    for (key, value) in &options.values {
        match key.as_str() {
            "fault" => faults.fault = Fault::parse(value)?,
            "prepare" => device.prepare = Fault::parse(value)?,
            "create" => match value.as_str() {
                "none" => {}
                "hang" => loop {
                    std::thread::park();
                },
                other => {
                    return Err(Failure::invalid_argument(format!(
                        "option \"create\" of {NAME} is \"none\" or \"hang\", not {other:?}"
                    )));
                }
            },
            "ask" => {
                device.ask = Fault::parse(value)?;
                if !matches!(device.ask, Fault::None | Fault::Abort) {
                    return Err(Failure::invalid_argument(format!(
                        "option \"ask\" of {NAME} is \"none\" or \"abort\", not {value:?}"
                    )));
                }
            }
            "after" => {
                faults.after = value.parse().map_err(|_| {
                    Failure::invalid_argument(format!(
                        "option \"after\" of {NAME} must be a number, not {value:?}"
                    ))
                })?;
            }
            _ => {
                return Err(Failure::invalid_argument(format!(
                    "device {NAME} has no option {key:?}"
                )));
            }
        }
    }
    device.faults = Arc::new(faults);
    Ok(Arc::new(device))
}

fn info() -> DeviceInfo {
    DeviceInfo {
        name: NAME.to_owned(),
        version: format!("empty {}", env!("CARGO_PKG_VERSION")),
        device_type: DeviceType::Other,
        hal_version: HalVersion::V1_3,
        capabilities: Capabilities::uniform(PerformanceInfo::REFERENCE, [OperandType::TENSOR_FLOAT32]),
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    }
}

/// A way to fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    Hang,
    Loop,
    Abort,
    Segfault,
    Overflow,
    Panic,
    Exit,
    Fail,
}

impl Fault {
    fn parse(name: &str) -> Result<Fault, Failure> {
        Ok(match name {
            "none" => Fault::None,
            "hang" => Fault::Hang,
            "loop" => Fault::Loop,
            "abort" => Fault::Abort,
            "segfault" => Fault::Segfault,
            "overflow" => Fault::Overflow,
            "panic" => Fault::Panic,
            "exit" => Fault::Exit,
            "fail" => Fault::Fail,
            other => {
                return Err(Failure::invalid_argument(format!(
                    "device {NAME} has no fault {other:?}"
                )));
            }
        })
    }

    fn happen(self, control: &Control<'_>) -> Result<(), Failure> {
        match self {
            Fault::None => Ok(()),
            Fault::Hang => loop {
                std::thread::park();
            },
            Fault::Loop => loop {
                control.checkpoint()?;
                std::thread::yield_now();
            },
            Fault::Abort => std::process::abort(),
            Fault::Segfault => nnhal_os::process::fault(),
            Fault::Overflow => {
                std::hint::black_box(recurse(0));
                Ok(())
            }
            Fault::Panic => panic!("the empty device was told to panic"),
            // A code that shells give what was killed by SIGBUS.
            Fault::Exit => std::process::exit(135),
            Fault::Fail => Err(Failure::general("the empty device was told to fail")),
        }
    }
}

/// Goes deeper than any stack.
fn recurse(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 512]);
    if depth == u64::MAX {
        room[0]
    } else {
        recurse(depth + 1).wrapping_add(room[1])
    }
}

/// When to fail, and how.
#[derive(Debug, Default)]
struct Faults {
    fault: Fault,
    after: u64,
    executions: AtomicU64,
}

impl Faults {
    fn next(&self) -> Fault {
        let number = self.executions.fetch_add(1, Ordering::Relaxed);
        if number >= self.after {
            self.fault
        } else {
            Fault::None
        }
    }
}

#[derive(Debug)]
struct EmptyDevice {
    info: DeviceInfo,
    prepare: Fault,
    ask: Fault,
    faults: Arc<Faults>,
}

impl Device for EmptyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supported_operations(&self, model: &ValidModel, _: &dyn ConstantPools) -> Vec<OperationSupport> {
        if self.ask == Fault::Abort {
            std::process::abort();
        }
        vec![OperationSupport::Supported; model.model().main.operations.len()]
    }

    fn prepare(
        &self,
        model: Arc<ValidModel>,
        _: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        self.prepare.happen(options.control)?;
        Ok(Arc::new(EmptyModel {
            model,
            faults: Arc::clone(&self.faults),
        }))
    }
}

#[derive(Clone, Debug)]
struct EmptyModel {
    model: Arc<ValidModel>,
    faults: Arc<Faults>,
}

impl PreparedModel for EmptyModel {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        let main = &self.model.model().main;
        Ok(Box::new(EmptyExecution {
            inputs: vec![(Shape::SCALAR, Vec::new()); main.input_indexes.len()],
            outputs: vec![(Shape::SCALAR, Vec::new()); main.output_indexes.len()],
            model: self.clone(),
        }))
    }
}

#[derive(Debug)]
struct EmptyExecution {
    model: EmptyModel,
    inputs: Vec<(Shape, Vec<u8>)>,
    outputs: Vec<(Shape, Vec<u8>)>,
}

impl Execution for EmptyExecution {
    fn set_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        _: &Control<'_>,
    ) -> Result<(), Failure> {
        let main = &self.model.model.model().main;
        let operand = main
            .input_indexes
            .get(index)
            .and_then(|&at| main.operands.get(at as usize));
        let (operand, input) = operand
            .zip(self.inputs.get_mut(index))
            .ok_or_else(no_such_argument)?;
        let size = shape
            .byte_size(operand.operand_type.element_size())
            .map_err(|error| Failure::invalid_argument(error.to_string()))?;
        input.0 = *shape;
        input.1.resize(size, 0);
        source.read(0, &mut input.1)
    }

    fn omit_input(&mut self, index: usize) -> Result<(), Failure> {
        let input = self.inputs.get_mut(index).ok_or_else(no_such_argument)?;
        input.0 = Shape::SCALAR;
        Ok(())
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        control.checkpoint()?;
        self.model.faults.next().happen(control)?;
        let main = &self.model.model.model().main;
        let first = self.inputs.first().map(|input| input.0);
        for (&at, output) in main.output_indexes.iter().zip(&mut self.outputs) {
            let Some(operand) = main.operands.get(at as usize) else {
                continue;
            };
            let declared = Shape::new(&operand.dimensions).unwrap_or_default();
            let is_known = |shape: &Shape| {
                shape.is_fully_specified() && (shape.rank() > 0 || operand.operand_type.is_scalar())
            };
            let shape = Some(declared)
                .filter(is_known)
                .or_else(|| first.and_then(|first| declared.combine(&first)).filter(is_known))
                .ok_or_else(|| Failure::general("the empty device cannot tell an output's dimensions"))?;
            let size = shape
                .byte_size(operand.operand_type.element_size())
                .map_err(|error| Failure::general(error.to_string()))?;
            output.0 = shape;
            output.1.clear();
            output.1.resize(size, 0);
        }
        Ok(None)
    }

    fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        self.outputs
            .get(index)
            .map(|(shape, bytes)| (shape, bytes.as_slice()))
    }

    fn release_memory(&mut self) {
        for (_, bytes) in self.inputs.iter_mut().chain(&mut self.outputs) {
            *bytes = Vec::new();
        }
    }
}

fn no_such_argument() -> Failure {
    Failure::invalid_argument("the model has no such argument")
}
