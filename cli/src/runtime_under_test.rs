//! The runtime above the drivers, as the conformance procedures see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nnhal::hal::{DeviceInfo, MeasureTiming, OutputShape, RequestArgument, Timing};
use nnhal::wire::{ExecutionResult, Failure, OperationSupport};
use nnhal_client::runtime::{
    Compilation, CompilationOptions, Finished, OperationFilter, Room, RunBurst, RunInput, RunOutput, Runtime,
    RuntimeDevice, RuntimeOptions, RuntimeResult,
};
use nnhal_client::{Deadline, DevicesOptions, ExecuteOptions, Memory, Model};
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as ConformancePreparedModel,
};

/// How the runtime is used.
#[derive(Clone)]
pub(crate) struct RuntimeSetting {
    /// Where to look for drivers.
    pub(crate) devices: DevicesOptions,
    /// Whether the operations are given to two devices in turn.
    pub(crate) is_split: bool,
    pub(crate) forms: Vec<Form>,
    pub(crate) seen: Arc<Seen>,
}

/// What was seen of the ways that models took.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    compilations: AtomicUsize,
    divided: AtomicUsize,
    steps: AtomicUsize,
    on_cpu: AtomicUsize,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        write!(
            f,
            "{} compilations, {} of them in parts ({} parts), {} not dividable and on the CPU of this process",
            count(&self.compilations),
            count(&self.divided),
            count(&self.steps),
            count(&self.on_cpu)
        )
    }
}

impl Seen {
    fn note(&self, compilation: &Compilation) {
        let add = |counter: &AtomicUsize, number| counter.fetch_add(number, Ordering::Relaxed);
        let explanation = compilation.explain();
        add(&self.compilations, 1);
        if explanation.fallback.is_some() {
            add(&self.on_cpu, 1);
        } else if explanation.steps.len() > 1 {
            add(&self.divided, 1);
            add(&self.steps, explanation.steps.len());
        }
    }
}

/// The runtime. A driver's failure is the runtime's own here: it may not hide behind the CPU.
pub(crate) struct RuntimeUnderTest {
    runtime: Runtime,
    setting: RuntimeSetting,
    /// The drivers' devices that operations go to.
    devices: Vec<RuntimeDevice>,
}

impl RuntimeUnderTest {
    pub(crate) fn open(setting: &RuntimeSetting) -> Result<RuntimeUnderTest, String> {
        let options = RuntimeOptions::new().devices(setting.devices.clone());
        let runtime = Runtime::with(options).map_err(|error| error.to_string())?;
        let drivers = runtime.devices().iter().filter(|device| !device.is_cpu());
        let devices: Vec<RuntimeDevice> = drivers.cloned().collect();
        if devices.len() < 2 {
            return Err(format!("{} devices were found, two are needed", devices.len()));
        }
        Ok(RuntimeUnderTest {
            runtime,
            setting: setting.clone(),
            devices,
        })
    }

    fn options(&self) -> CompilationOptions {
        let names: Vec<String> = self
            .devices
            .iter()
            .map(|device| device.name().to_owned())
            .collect();
        let filter: OperationFilter = if self.setting.is_split {
            Arc::new(move |device: &DeviceInfo, index, _| device.name == names[index % names.len().min(2)])
        } else {
            Arc::new(move |device: &DeviceInfo, _, _| names.contains(&device.name))
        };
        CompilationOptions::new().filter(filter)
    }
}

impl Implementation for RuntimeUnderTest {
    type Prepared = CompilationUnderTest;

    fn forms(&self) -> &[Form] {
        &self.setting.forms
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        let model = shared(model)?;
        let answers = match self.runtime.supported_operations(&model, self.runtime.devices()) {
            Ok(answers) => answers,
            Err(error) => return Ok(Err(error.failure())),
        };
        let answers = answers.into_iter().map(|is_supported| {
            if is_supported {
                OperationSupport::Supported
            } else {
                OperationSupport::Unsupported {
                    reason: "no device can run it".to_owned(),
                }
            }
        });
        Ok(Ok(answers.collect()))
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<CompilationUnderTest> {
        let model = shared(model)?;
        // Only a model of which some operation is nothing for drivers, such as control flow of unknown size, runs as
        // without the filter. Any other failure is one.
        let supported = self.runtime.supported_operations(&model, &self.devices);
        let is_for_drivers =
            supported.is_ok_and(|supported| supported.into_iter().all(|is_supported| is_supported));
        let options = if is_for_drivers {
            self.options()
        } else {
            CompilationOptions::new()
        };
        let compiled = self.runtime.compile(&model, &options);
        let compilation = match compiled {
            Ok(compilation) => compilation,
            Err(error) => return Ok(Err(error.failure())),
        };
        self.setting.seen.note(&compilation);
        Ok(Ok(CompilationUnderTest {
            compilation,
            burst: None,
        }))
    }
}

/// A compiled model.
pub(crate) struct CompilationUnderTest {
    compilation: Compilation,
    burst: Option<RunBurst>,
}

impl CompilationUnderTest {
    fn run(&mut self, call: &ExecutionCall<'_>, outputs: &mut [u8]) -> RuntimeResult<Finished> {
        let options = options(call);
        let inputs: Vec<RunInput<'_>> = call
            .request
            .inputs
            .iter()
            .map(|argument| input(argument, call.inputs))
            .collect();
        match call.form {
            Form::Synchronous | Form::Burst => self.run_in_place(call, &inputs, outputs, &options),
            Form::Asynchronous | Form::Fenced => self.run_later(call, &inputs, outputs, &options),
        }
    }

    fn run_in_place(
        &mut self,
        call: &ExecutionCall<'_>,
        inputs: &[RunInput<'_>],
        outputs: &mut [u8],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Finished> {
        let arguments = &call.request.outputs;
        let mut values: Vec<Vec<u8>> = arguments
            .iter()
            .map(|argument| vec![0; argument.location.length as usize])
            .collect();
        let mut rooms: Vec<RunOutput<'_>> = values
            .iter_mut()
            .zip(arguments)
            .map(|(bytes, argument)| RunOutput::Bytes {
                bytes,
                dimensions: &argument.dimensions,
            })
            .collect();
        let finished = match call.form {
            Form::Burst => {
                let burst = match self.burst.take() {
                    Some(burst) => burst,
                    None => self.compilation.burst()?,
                };
                self.burst.insert(burst).execute(inputs, &mut rooms, options)
            }
            _ => self.compilation.execute(inputs, &mut rooms, options),
        };
        for (argument, bytes) in arguments.iter().zip(&values) {
            let start = argument.location.offset as usize;
            if let Some(room) = outputs.get_mut(start..start + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        }
        finished
    }

    fn run_later(
        &self,
        call: &ExecutionCall<'_>,
        inputs: &[RunInput<'_>],
        outputs: &mut [u8],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Finished> {
        let memory = Memory::new(outputs.len() as u64)?;
        let rooms: Vec<Room> = call
            .request
            .outputs
            .iter()
            .map(|argument| Room::Memory {
                memory: memory.clone(),
                offset: argument.location.offset.into(),
                length: argument.location.length.into(),
                dimensions: argument.dimensions.clone(),
            })
            .collect();
        let event = match call.form {
            Form::Fenced => self.compilation.execute_fenced(inputs, &rooms, &[], options)?,
            _ => self.compilation.start(inputs, &rooms, options)?,
        };
        let finished = event.wait(Deadline::NONE)?;
        memory.read_at(0, outputs)?;
        Ok(finished)
    }
}

impl ConformancePreparedModel for CompilationUnderTest {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        let mut outputs = vec![0; call.outputs];
        let result = match self.run(call, &mut outputs) {
            Ok(Finished {
                fallback: Some(reason),
                ..
            }) => return Err(Breakdown(format!("the CPU of this process took over: {reason}"))),
            Ok(finished) => ExecutionResult {
                outcome: Ok(()),
                output_shapes: finished.output_shapes.to_vec(),
                timing: timing(call.measure, finished.timing),
            },
            Err(error) => failed(error.failure(), error.output_shapes().to_vec()),
        };
        Ok(ExecutionAnswer { result, outputs })
    }
}

fn timing(measure: MeasureTiming, timing: Timing) -> Timing {
    match measure {
        MeasureTiming::No => Timing::NONE,
        MeasureTiming::Yes => timing,
    }
}

fn failed(failure: Failure, output_shapes: Vec<OutputShape>) -> ExecutionResult {
    ExecutionResult {
        outcome: Err(failure),
        output_shapes,
        timing: Timing::NONE,
    }
}

fn options(call: &ExecutionCall<'_>) -> ExecuteOptions {
    let mut options = ExecuteOptions::new();
    if call.measure == MeasureTiming::Yes {
        options = options.measure_timing();
    }
    match call.loop_timeout {
        Some(timeout) => options.loop_timeout(timeout),
        None => options,
    }
}

fn input<'a>(argument: &'a RequestArgument, pool: &'a [u8]) -> RunInput<'a> {
    if argument.has_no_value {
        return RunInput::Omitted;
    }
    let start = argument.location.offset as usize;
    RunInput::Bytes {
        bytes: pool
            .get(start..start + argument.location.length as usize)
            .unwrap_or_default(),
        dimensions: &argument.dimensions,
    }
}

/// The model with its pools in sealed memories.
fn shared(model: &ModelWithPools) -> Result<Model, Breakdown> {
    Model::with_pool_bytes((*model.model).clone(), model.pools.iter())
        .map_err(|error| Breakdown(error.to_string()))
}
