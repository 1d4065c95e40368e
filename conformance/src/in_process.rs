//! The executor as a library: validation, request checks and execution in this process, nothing in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nnhal::wire::ExecutionResult;
use nnhal_cpu::{Execution, KernelSet, NeverInterrupted, Program, RunOptions};
use nnhal_hal::validate::{ArgumentPlan, ValidModel, ValidRequest};
use nnhal_hal::{
    ErrorStatus, Failure, MeasureTiming, Model, OperationSupport, OperationType, OutputShape, Request, Shape,
    SubgraphIndex, Timing, ops,
};

use crate::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools, PreparedModel,
};

/// The executor of `nnhal-cpu`.
#[derive(Clone, Copy, Debug)]
pub struct InProcess {
    kernels: KernelSet,
}

impl InProcess {
    /// The executor with these kernels.
    #[must_use]
    pub fn new(kernels: KernelSet) -> InProcess {
        InProcess { kernels }
    }
}

impl Default for InProcess {
    fn default() -> InProcess {
        InProcess::new(KernelSet::Reference)
    }
}

impl Implementation for InProcess {
    type Prepared = InProcessModel;

    fn forms(&self) -> &[Form] {
        &[Form::Synchronous, Form::Fenced]
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        if let Err(failure) = validate(model) {
            return Ok(Err(failure));
        }
        let model = &model.model;
        let answers = model.main.operations.iter().map(|operation| {
            let operation = operation.operation_type;
            let reason = refusal(operation).or_else(|| {
                operation
                    .is_control_flow()
                    .then(|| refusal_in_referenced(model))
                    .flatten()
            });
            match reason {
                None => OperationSupport::Supported,
                Some(reason) => OperationSupport::Unsupported { reason },
            }
        });
        Ok(Ok(answers.collect()))
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<InProcessModel> {
        Ok(prepare(model, self.kernels))
    }
}

/// Why an operation cannot be run, or `None` if it can.
fn refusal(operation: OperationType) -> Option<String> {
    Program::refusal(operation).or_else(|| {
        let known = operation.is_control_flow() || ops::entry(operation).is_some();
        (!known).then(|| format!("the operation table has no entry for {operation}"))
    })
}

fn refusal_in_referenced(model: &Model) -> Option<String> {
    let graphs = model.subgraphs().filter(|(at, _)| *at != SubgraphIndex::Main);
    for (at, graph) in graphs {
        for (index, operation) in graph.operations.iter().enumerate() {
            let kind = operation.operation_type;
            if let Some(reason) = refusal(kind) {
                return Some(format!("operation {index} ({kind}) of the {at}: {reason}"));
            }
        }
    }
    None
}

fn validate(model: &ModelWithPools) -> Result<ValidModel, Failure> {
    ValidModel::new(Arc::clone(&model.model), &*model.pools, &[])
        .map_err(|error| Failure::invalid_argument(error.to_string()))
}

fn prepare(model: &ModelWithPools, kernels: KernelSet) -> Result<InProcessModel, Failure> {
    let pools = &*model.pools;
    let valid = validate(model)?;
    let program = Program::with_kernels(Arc::new(valid), pools, kernels)
        .map_err(|error| Failure::new(error.status(), error.to_string()))?;
    Ok(InProcessModel {
        execution: Execution::new(Arc::new(program)),
    })
}

/// A model ready to run in this process.
#[derive(Debug)]
pub struct InProcessModel {
    execution: Execution,
}

impl PreparedModel for InProcessModel {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        // What is not written must not look like a result.
        let mut outputs = vec![0xA5; call.outputs];
        let result = match self.run(call, &mut outputs) {
            Ok(result) => result,
            Err(failure) => ExecutionResult::failed(failure),
        };
        Ok(ExecutionAnswer { result, outputs })
    }
}

impl InProcessModel {
    fn run(&mut self, call: &ExecutionCall<'_>, outputs: &mut [u8]) -> Result<ExecutionResult, Failure> {
        let called = Instant::now();
        let plan = self.check(call.request, call.form)?;
        self.feed(&plan, call.inputs)?;
        let options = RunOptions {
            interrupt: &NeverInterrupted,
            loop_timeout: call.loop_timeout.unwrap_or(nnhal_hal::loop_timeout::DEFAULT),
            ..RunOptions::default()
        };
        let started = Instant::now();
        self.execution
            .run(&options)
            .map_err(|error| Failure::new(error.status(), error.to_string()))?;
        let on_device = started.elapsed();
        let output_shapes = self.collect(&plan, outputs)?;
        if let Some(index) = output_shapes.iter().position(|shape| !shape.is_sufficient) {
            let detail = format!(
                "output {index} needs room for {:?}",
                output_shapes[index].dimensions
            );
            return Ok(ExecutionResult {
                outcome: Err(Failure::new(ErrorStatus::OutputInsufficientSize, detail)),
                output_shapes,
                timing: Timing::NONE,
            });
        }
        let timing = match call.measure {
            MeasureTiming::No => Timing::NONE,
            MeasureTiming::Yes => Timing {
                time_on_device_us: microseconds(on_device),
                time_in_driver_us: microseconds(called.elapsed()),
            },
        };
        let output_shapes = match call.form {
            Form::Fenced => Vec::new(),
            _ => output_shapes,
        };
        Ok(ExecutionResult {
            outcome: Ok(()),
            output_shapes,
            timing,
        })
    }

    fn check(&self, request: &Request, form: Form) -> Result<ValidRequest, Failure> {
        let model = self.execution.program().model();
        let invalid = |error: nnhal_hal::validate::RequestError| Failure::invalid_argument(error.to_string());
        let plan = ValidRequest::new(model, request).map_err(invalid)?;
        if form == Form::Fenced {
            plan.check_fenced(model).map_err(invalid)?;
        }
        Ok(plan)
    }

    fn feed(&mut self, plan: &ValidRequest, pool: &[u8]) -> Result<(), Failure> {
        for (index, argument) in plan.inputs().iter().enumerate() {
            let fed = match *argument {
                ArgumentPlan::Omitted => self.execution.omit_input(index),
                ArgumentPlan::Memory {
                    shape,
                    offset,
                    length,
                    ..
                } => {
                    let bytes = slice(pool, offset, length)?;
                    self.execution.input(index, &shape).map(|memory| {
                        let enough = memory.len().min(bytes.len());
                        memory[..enough].copy_from_slice(&bytes[..enough]);
                    })
                }
                ArgumentPlan::Token { token, .. } => {
                    return Err(Failure::invalid_argument(format!(
                        "there is no device buffer {token}"
                    )));
                }
            };
            fed.map_err(|error| Failure::new(error.status(), error.to_string()))?;
        }
        Ok(())
    }

    /// Copies out the outputs that fit and tells the shapes of all.
    fn collect(&self, plan: &ValidRequest, pool: &mut [u8]) -> Result<Vec<OutputShape>, Failure> {
        let mut shapes = Vec::new();
        for (index, argument) in plan.outputs().iter().enumerate() {
            let ArgumentPlan::Memory {
                shape: given,
                offset,
                length,
                ..
            } = *argument
            else {
                return Err(Failure::invalid_argument(format!("output {index} has no memory")));
            };
            let (shape, bytes) = self
                .execution
                .output(index)
                .ok_or_else(|| Failure::general(format!("output {index} was not computed")))?;
            if !agrees(&given, shape) {
                return Err(Failure::general(format!(
                    "output {index} has dimensions {shape:?}, the request gives {given:?}"
                )));
            }
            let is_sufficient = bytes.len() as u64 <= length;
            if is_sufficient {
                slice_mut(pool, offset, bytes.len() as u64)?.copy_from_slice(bytes);
            }
            shapes.push(OutputShape {
                dimensions: shape.dims().to_vec(),
                is_sufficient,
            });
        }
        Ok(shapes)
    }
}

fn agrees(given: &Shape, found: &Shape) -> bool {
    given.combine(found).is_some()
}

fn slice(pool: &[u8], offset: u64, length: u64) -> Result<&[u8], Failure> {
    pool.get(offset as usize..)
        .and_then(|rest| rest.get(..length as usize))
        .ok_or_else(|| Failure::invalid_argument("an argument is outside of its pool"))
}

fn slice_mut(pool: &mut [u8], offset: u64, length: u64) -> Result<&mut [u8], Failure> {
    pool.get_mut(offset as usize..)
        .and_then(|rest| rest.get_mut(..length as usize))
        .ok_or_else(|| Failure::invalid_argument("an argument is outside of its pool"))
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}
