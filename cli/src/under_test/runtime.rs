//! The runtime above the drivers, as the conformance procedures see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nnhal::wire::ExecutionResult;
use nnhal_client::runtime::{
    Compilation, CompilationOptions, Finished, OperationFilter, OutputBuffer, OwnValues, RegisteredRun,
    RunBurst, RunEvent, RunInput, RunOutput, Runtime, RuntimeDevice, RuntimeError, RuntimeOptions,
    RuntimeResult,
};
use nnhal_client::{Deadline, DevicesOptions, ExecuteOptions, Memory, Model};
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as ConformancePreparedModel,
};
use nnhal_hal::{
    DeviceInfo, Failure, MeasureTiming, OperationSupport, OutputShape, Request, RequestArgument, Timing,
};

use crate::arguments::MemoryKind;

/// How the runtime is used.
#[derive(Clone)]
pub(crate) struct RuntimeSetting {
    /// Where to look for drivers.
    pub(crate) devices: DevicesOptions,
    /// The only device of a driver that operations go to, if it is named.
    pub(crate) device: Option<String>,
    /// Whether the operations are given to two devices in turn.
    pub(crate) is_split: bool,
    pub(crate) forms: Vec<Form>,
    /// Where the arguments are: in shared memory, or in this process's own.
    pub(crate) memory: MemoryKind,
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
        let least = if setting.is_split { 2 } else { 1 };
        if devices.len() < least {
            return Err(format!(
                "{} devices were found, {least} are needed",
                devices.len()
            ));
        }
        let devices = match &setting.device {
            Some(name) => {
                let named = devices.into_iter().filter(|device| device.name() == name);
                let named: Vec<RuntimeDevice> = named.collect();
                if named.is_empty() {
                    return Err(format!("the runtime has no device {name} of a driver"));
                }
                named
            }
            None => devices,
        };
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
        // Only a model of which some operation is nothing for drivers, such as control flow of unknown size,
        // runs as without the filter. Any other failure is one.
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
            memory: self.setting.memory,
        }))
    }
}

/// A compiled model.
pub(crate) struct CompilationUnderTest {
    compilation: Compilation,
    burst: Option<RunBurst>,
    memory: MemoryKind,
}

impl CompilationUnderTest {
    fn run(&mut self, call: &ExecutionCall<'_>, outputs: &mut [u8]) -> Result<Finished, Failed> {
        match self.memory {
            MemoryKind::Own => self.run_in_own_memory(call, outputs),
            MemoryKind::Shared | MemoryKind::Device => self.run_in_shared_memory(call, outputs),
        }
    }

    fn run_in_own_memory(
        &mut self,
        call: &ExecutionCall<'_>,
        outputs: &mut [u8],
    ) -> Result<Finished, Failed> {
        let options = options(call);
        let mut values = Values::new(call.request, call.inputs);
        let finished = match call.form {
            Form::Synchronous => {
                values.lend(|inputs, rooms| Ok(self.compilation.execute(inputs, rooms, &options)?))
            }
            Form::Burst => self.run_by_burst(&mut values, &options),
            Form::Asynchronous | Form::Fenced => {
                let rooms: Vec<OutputBuffer> = call
                    .request
                    .outputs
                    .iter()
                    .map(|argument| OutputBuffer::Bytes {
                        length: argument.location.length as usize,
                        dimensions: argument.dimensions.clone(),
                    })
                    .collect();
                let event = self.start(call.form, &values.inputs(), &rooms, &options)?;
                let finished = event.wait(Deadline::NONE)?;
                for (index, room) in values.outputs.iter_mut().enumerate() {
                    event.output(index, room)?;
                }
                Ok(finished)
            }
        };
        for (argument, bytes) in call.request.outputs.iter().zip(&values.outputs) {
            let start = argument.location.offset as usize;
            if let Some(room) = outputs.get_mut(start..start + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        }
        finished
    }

    fn run_in_shared_memory(
        &mut self,
        call: &ExecutionCall<'_>,
        outputs: &mut [u8],
    ) -> Result<Finished, Failed> {
        let options = options(call);
        let input = Memory::new(call.inputs.len().max(1) as u64)?;
        input.write_at(0, call.inputs)?;
        let output = Memory::new(outputs.len().max(1) as u64)?;
        let mut values = SharedValues {
            request: call.request,
            input,
            output,
        };
        let finished = match call.form {
            Form::Synchronous => {
                values.lend(|inputs, rooms| Ok(self.compilation.execute(inputs, rooms, &options)?))
            }
            Form::Burst => self.run_by_burst(&mut values, &options),
            Form::Asynchronous | Form::Fenced => {
                let event = self.start(call.form, &values.inputs(), &values.rooms(), &options)?;
                Ok(event.wait(Deadline::NONE)?)
            }
        };
        values.output.read_at(0, outputs)?;
        finished
    }

    fn start(
        &self,
        form: Form,
        inputs: &[RunInput<'_>],
        rooms: &[OutputBuffer],
        options: &ExecuteOptions,
    ) -> Result<RunEvent, Failed> {
        Ok(match form {
            Form::Fenced => self.compilation.execute_fenced(inputs, rooms, &[], options)?,
            _ => self.compilation.start(inputs, rooms, options)?,
        })
    }

    /// Executes three times with the same arguments, as reusable executions do: a burst may take another way
    /// each time. The outputs are those of the last; the first that fails is the end.
    fn run_by_burst(&mut self, values: &mut impl Lend, options: &ExecuteOptions) -> Result<Finished, Failed> {
        let burst = match self.burst.take() {
            Some(burst) => burst,
            None => self.compilation.burst()?,
        };
        let burst = self.burst.insert(burst);
        let mut finished = values.lend(|inputs, rooms| burst.execute(inputs, rooms, options))?;
        let mut registered = None;
        for _ in 0..2 {
            values.clear()?;
            let first = finished.output_shapes.clone();
            if registered.is_none() && finished.fallback.is_none() {
                registered = values.lend(|inputs, rooms| burst.register(inputs, rooms))?;
            }
            let again = registered.as_ref();
            let again = again.and_then(|known| values.fire((burst, known), options, &mut finished));
            match again {
                Some(result) => result?,
                None => finished = values.lend(|inputs, rooms| burst.execute(inputs, rooms, options))?,
            }
            if finished.output_shapes != first {
                return Err(Failed::OtherShapes {
                    first,
                    again: finished.output_shapes,
                });
            }
        }
        Ok(finished)
    }
}

/// Why an execution gave nothing.
enum Failed {
    /// The runtime says so.
    Refused(RuntimeError),
    /// A burst reports other shapes for the same arguments.
    OtherShapes {
        first: Arc<[OutputShape]>,
        again: Arc<[OutputShape]>,
    },
}

impl From<RuntimeError> for Failed {
    fn from(error: RuntimeError) -> Failed {
        Failed::Refused(error)
    }
}

impl From<nnhal_client::Error> for Failed {
    fn from(error: nnhal_client::Error) -> Failed {
        Failed::Refused(error.into())
    }
}

/// Arguments of an execution, wherever they are.
trait Lend {
    /// Executes with them.
    fn lend<T>(&mut self, execute: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>]) -> T) -> T;

    /// Executes them as they are registered.
    fn fire(
        &mut self,
        by: (&mut RunBurst, &RegisteredRun),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>>;

    /// Sets the outputs to zeros.
    fn clear(&mut self) -> RuntimeResult<()>;
}

/// Arguments in this process's own memory.
struct Values<'a> {
    request: &'a Request,
    pool: &'a [u8],
    outputs: Vec<Vec<u8>>,
}

impl<'a> Values<'a> {
    fn new(request: &'a Request, pool: &'a [u8]) -> Values<'a> {
        let outputs = request.outputs.iter();
        Values {
            request,
            pool,
            outputs: outputs
                .map(|argument| vec![0; argument.location.length as usize])
                .collect(),
        }
    }

    fn inputs(&self) -> Vec<RunInput<'a>> {
        let inputs = self.request.inputs.iter();
        inputs.map(|argument| own_input(argument, self.pool)).collect()
    }
}

impl Lend for Values<'_> {
    fn lend<T>(&mut self, execute: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>]) -> T) -> T {
        let inputs = self.inputs();
        let mut rooms: Vec<RunOutput<'_>> = self
            .outputs
            .iter_mut()
            .zip(&self.request.outputs)
            .map(|(bytes, argument)| RunOutput::Bytes {
                bytes,
                dimensions: &argument.dimensions,
            })
            .collect();
        execute(&inputs, &mut rooms)
    }

    fn fire(
        &mut self,
        (burst, registered): (&mut RunBurst, &RegisteredRun),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>> {
        burst.fire(registered, self, options, finished)
    }

    fn clear(&mut self) -> RuntimeResult<()> {
        self.outputs.iter_mut().for_each(|bytes| bytes.fill(0));
        Ok(())
    }
}

impl OwnValues for Values<'_> {
    fn input(&self, index: usize) -> &[u8] {
        let argument = self.request.inputs.get(index);
        argument.map_or(&[], |argument| bytes_of(argument, self.pool))
    }

    fn output(&mut self, index: usize) -> &mut [u8] {
        self.outputs.get_mut(index).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Arguments in shared memory.
struct SharedValues<'a> {
    request: &'a Request,
    input: Memory,
    output: Memory,
}

impl SharedValues<'_> {
    fn inputs(&self) -> Vec<RunInput<'_>> {
        let inputs = self.request.inputs.iter();
        inputs
            .map(|argument| {
                if argument.has_no_value {
                    return RunInput::Omitted;
                }
                RunInput::Memory {
                    memory: &self.input,
                    offset: argument.location.offset.into(),
                    length: argument.location.length.into(),
                    dimensions: &argument.dimensions,
                }
            })
            .collect()
    }

    fn rooms(&self) -> Vec<OutputBuffer> {
        let outputs = self.request.outputs.iter();
        outputs
            .map(|argument| OutputBuffer::Memory {
                memory: self.output.clone(),
                offset: argument.location.offset.into(),
                length: argument.location.length.into(),
                dimensions: argument.dimensions.clone(),
            })
            .collect()
    }
}

impl Lend for SharedValues<'_> {
    fn lend<T>(&mut self, execute: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>]) -> T) -> T {
        let inputs = self.inputs();
        let outputs = self.request.outputs.iter();
        let mut rooms: Vec<RunOutput<'_>> = outputs
            .map(|argument| RunOutput::Memory {
                memory: &self.output,
                offset: argument.location.offset.into(),
                length: argument.location.length.into(),
                dimensions: &argument.dimensions,
            })
            .collect();
        execute(&inputs, &mut rooms)
    }

    fn fire(
        &mut self,
        (burst, registered): (&mut RunBurst, &RegisteredRun),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>> {
        burst.fire(registered, &mut (), options, finished)
    }

    fn clear(&mut self) -> RuntimeResult<()> {
        let zeros = vec![0; self.output.size() as usize];
        Ok(self.output.write_at(0, &zeros)?)
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
            Err(Failed::Refused(error)) => failed(error.failure(), error.output_shapes().to_vec()),
            Err(Failed::OtherShapes { first, again }) => {
                return Err(Breakdown(format!(
                    "an execution by burst reports {again:?}, the one before with the same arguments {first:?}"
                )));
            }
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

fn own_input<'a>(argument: &'a RequestArgument, pool: &'a [u8]) -> RunInput<'a> {
    if argument.has_no_value {
        return RunInput::Omitted;
    }
    RunInput::Bytes {
        bytes: bytes_of(argument, pool),
        dimensions: &argument.dimensions,
    }
}

fn bytes_of<'a>(argument: &RequestArgument, pool: &'a [u8]) -> &'a [u8] {
    let start = argument.location.offset as usize;
    pool.get(start..start + argument.location.length as usize)
        .unwrap_or_default()
}

/// The model with its pools in sealed memories.
fn shared(model: &ModelWithPools) -> Result<Model, Breakdown> {
    Model::with_pool_bytes((*model.model).clone(), model.pools.iter())
        .map_err(|error| Breakdown(error.to_string()))
}
