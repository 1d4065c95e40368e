//! The CPU of this process as a device: the reference kernels, without a driver.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_cpu::{Execution, ExecutionError, Interrupt, Interrupted, KernelSet, Program, RunOptions};
use nnhal_hal::validate::{ArgumentPlan, ValidModel, ValidRequest};
use nnhal_hal::{
    ErrorStatus, Extension, MeasureTiming, Model as HalModel, Operation, OutputShape, RequestPool, Shape,
    Timing, loop_timeout,
};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch};

use super::control_flow::all_referenced;
use super::result::{RuntimeError, RuntimeResult};
use crate::execution::{Completed, ExecuteOptions};
use crate::memory::Memory;
use crate::model::Model;
use crate::request::Request;
use crate::trace;

/// How many executions that are not running keep their memory.
const KEPT_EXECUTIONS: usize = 4;

/// A model made ready to run in this process.
#[derive(Debug)]
pub(super) struct CpuProgram {
    program: Arc<Program>,
    spare: Mutex<Vec<Execution>>,
}

/// Checks a model by the rules that drivers check it by.
///
/// # Errors
/// The rule that it breaks; a memory with constants cannot be read.
pub(super) fn validate(model: &Model, extensions: &[Extension]) -> RuntimeResult<ValidModel> {
    let pools = pools(model)?;
    tracing::debug!(
        target: tags::MODEL,
        operations = model.hal().main.operations.len(),
        operands = model.hal().main.operands.len(),
        "a model is checked"
    );
    ValidModel::new(model.shared_hal(), &pools, extensions)
        .map_err(|error| RuntimeError::bad_data(error.to_string()))
}

/// The bytes of a model's pools: in place where nobody can change them, else copied.
fn pools(model: &Model) -> RuntimeResult<Vec<Cow<'_, [u8]>>> {
    let pools = model.pools().iter().map(Memory::constant_bytes);
    Ok(pools.collect::<crate::error::Result<_>>()?)
}

/// Why an operation of the main graph cannot run here, everything inside its subgraphs included.
pub(super) fn refusal(model: &HalModel, operation: &Operation) -> Option<String> {
    if let Some(reason) = Program::refusal(operation.operation_type) {
        return Some(reason);
    }
    for index in all_referenced(model, &model.main, operation) {
        for (at, operation) in model.referenced[index].operations.iter().enumerate() {
            if let Some(reason) = Program::refusal(operation.operation_type) {
                return Some(format!("operation {at} of referenced graph {index}: {reason}"));
            }
        }
    }
    None
}

impl CpuProgram {
    /// Makes a model ready that was found valid.
    pub(super) fn new(
        model: &Model,
        valid: Arc<ValidModel>,
        deadline: Deadline,
    ) -> RuntimeResult<CpuProgram> {
        let interrupt = DeadlineInterrupt { deadline };
        tracing::debug!(
            target: tags::CPUEXE,
            operations = valid.model().main.operations.len(),
            "a model is made ready for the CPU of this process"
        );
        let program = Program::with_interrupt(valid, &pools(model)?, KernelSet::Reference, &interrupt)
            .map_err(|error| RuntimeError::with_status(error.status(), error.to_string()))?;
        Ok(CpuProgram {
            program: Arc::new(program),
            spare: Mutex::default(),
        })
    }

    /// Checks a model and makes it ready.
    pub(super) fn of_model(model: &Model, extensions: &[Extension]) -> RuntimeResult<CpuProgram> {
        CpuProgram::new(model, Arc::new(validate(model, extensions)?), Deadline::NONE)
    }

    /// Executes a request whose pools are all memories, and waits for the end.
    pub(super) fn execute(&self, request: &Request, options: &ExecuteOptions) -> RuntimeResult<Completed> {
        let called = Stopwatch::start();
        let _runs = trace::span(SpanKind::Run, 0);
        let hal = request.checked()?;
        let plan = ValidRequest::new(self.program.model(), hal)
            .map_err(|error| RuntimeError::bad_data(error.to_string()))?;
        let memories = MemoriesByPool::of(request);
        let mut execution = self.take();
        let result = run(&mut execution, &plan, &memories, options);
        self.give_back(execution);
        let (output_shapes, computing) = result?;
        Ok(Completed {
            output_shapes,
            timing: match options.measure {
                MeasureTiming::No => Timing::NONE,
                MeasureTiming::Yes => Timing {
                    time_on_device_us: microseconds(computing),
                    time_in_driver_us: microseconds(called.elapsed()),
                },
            },
        })
    }

    fn take(&self) -> Execution {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = spare.pop();
        kept.unwrap_or_else(|| Execution::new(Arc::clone(&self.program)))
    }

    fn give_back(&self, execution: Execution) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < KEPT_EXECUTIONS {
            spare.push(execution);
        }
    }
}

/// The memories of a request by the index of their pools.
struct MemoriesByPool<'a>(Vec<Option<&'a Memory>>);

impl MemoriesByPool<'_> {
    fn of(request: &Request) -> MemoriesByPool<'_> {
        let mut memories = request.memories().iter();
        let pools = request.hal().pools.iter().map(|pool| match pool {
            RequestPool::Memory { .. } => memories.next(),
            RequestPool::Token(_) => None,
        });
        MemoriesByPool(pools.collect())
    }

    fn get(&self, pool: u32) -> RuntimeResult<&Memory> {
        let found = self.0.get(pool as usize).copied().flatten();
        found.ok_or_else(|| {
            RuntimeError::bad_data(format!("pool {pool} is no memory that this process can read"))
        })
    }
}

fn run(
    execution: &mut Execution,
    plan: &ValidRequest,
    memories: &MemoriesByPool<'_>,
    options: &ExecuteOptions,
) -> RuntimeResult<(Vec<OutputShape>, std::time::Duration)> {
    feed(execution, plan, memories)?;
    let interrupt = DeadlineInterrupt {
        deadline: options.deadline,
    };
    let started = Stopwatch::start();
    execution
        .run(&RunOptions {
            interrupt: &interrupt,
            loop_timeout: options.loop_timeout.map_or(loop_timeout::DEFAULT, |timeout| {
                timeout.min(loop_timeout::MAXIMUM)
            }),
            observer: trace::observer(),
            ..RunOptions::default()
        })
        .map_err(|error| execution_error(&error))?;
    let computing = started.elapsed();
    Ok((collect(execution, plan, memories)?, computing))
}

fn feed(execution: &mut Execution, plan: &ValidRequest, memories: &MemoriesByPool<'_>) -> RuntimeResult<()> {
    for (index, argument) in plan.inputs().iter().enumerate() {
        match *argument {
            ArgumentPlan::Omitted => {
                execution
                    .omit_input(index)
                    .map_err(|error| execution_error(&error))?;
            }
            ArgumentPlan::Memory {
                shape,
                pool,
                offset,
                length,
            } => {
                let memory = memories.get(pool)?;
                let bytes = execution
                    .input(index, &shape)
                    .map_err(|error| execution_error(&error))?;
                let exact = bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX));
                memory.read_at(offset, &mut bytes[..exact])?;
            }
            ArgumentPlan::Token { .. } => return Err(no_device_memory("input", index)),
        }
    }
    Ok(())
}

/// Copies out the outputs that fit, and tells the shapes of all.
fn collect(
    execution: &Execution,
    plan: &ValidRequest,
    memories: &MemoriesByPool<'_>,
) -> RuntimeResult<Vec<OutputShape>> {
    let mut shapes = Vec::with_capacity(plan.outputs().len());
    let mut short = None;
    for (index, argument) in plan.outputs().iter().enumerate() {
        let ArgumentPlan::Memory {
            shape: given,
            pool,
            offset,
            length,
        } = *argument
        else {
            return Err(no_device_memory("output", index));
        };
        let (shape, bytes) = execution
            .output(index)
            .ok_or_else(|| RuntimeError::failed(format!("output {index} was not computed")))?;
        expect_dimensions(index, &given, shape)?;
        let is_sufficient = bytes.len() as u64 <= length;
        if !is_sufficient {
            short.get_or_insert_with(|| {
                let dimensions = shape.dims();
                format!(
                    "output {index} has {length} bytes, its value with dimensions {dimensions:?} takes {}",
                    bytes.len()
                )
            });
        } else if !bytes.is_empty() {
            memories.get(pool)?.write_at(offset, bytes)?;
        }
        shapes.push(OutputShape {
            dimensions: shape.dims().to_vec(),
            is_sufficient,
        });
    }
    match short {
        None => Ok(shapes),
        Some(detail) => Err(RuntimeError::insufficient(detail, shapes)),
    }
}

fn expect_dimensions(index: usize, given: &Shape, found: &Shape) -> RuntimeResult<()> {
    if given.combine(found).is_some() {
        return Ok(());
    }
    Err(RuntimeError::failed(format!(
        "output {index} has dimensions {found:?}, the request gives {given:?}"
    )))
}

fn no_device_memory(direction: &str, index: usize) -> RuntimeError {
    RuntimeError::failed(format!(
        "{direction} {index} is in a device's own memory, which the CPU of this process cannot use"
    ))
}

fn execution_error(error: &ExecutionError) -> RuntimeError {
    let status = match error {
        ExecutionError::Interrupted(Interrupted::DeadlineMissed) => ErrorStatus::MissedDeadlineTransient,
        error => error.status(),
    };
    RuntimeError::with_status(status, error.to_string())
}

fn microseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}

/// Stops when a deadline has passed.
struct DeadlineInterrupt {
    deadline: Deadline,
}

impl Interrupt for DeadlineInterrupt {
    fn check(&self) -> Result<(), Interrupted> {
        if !self.deadline.is_none() && self.deadline.is_past(MonotonicClock.now()) {
            return Err(Interrupted::DeadlineMissed);
        }
        Ok(())
    }
}
