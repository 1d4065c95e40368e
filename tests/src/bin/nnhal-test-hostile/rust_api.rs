//! A client in Rust: calls of all kinds in a random order. What they return does not matter, only that they
//! do.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};

use nnhal_client::runtime::{CompilationOptions, OutputBuffer, RunInput, RunOutput, Runtime, RuntimeOptions};
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Burst, BurstOptions, Clock, Deadline, Device, DevicesOptions,
    ExecuteOptions, Fence, FencedExecution, Input, Memory, Model, ModelBuilder, MonotonicClock,
    OperationType, Output, PrepareOptions, PreparedModel, RegisteredRequest, Request, Result, TensorType,
    WaitFor,
};
use nnhal_conformance::generator::choices::Random;
use nnhal_tests::hostile_driver::DEVICE;

use crate::cases::LIMIT;

/// Calls of one case.
const STEPS: u32 = 16;

/// `output = input + input`, four floats.
pub(crate) fn double_model() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.finish().expect("a model")
}

fn options(directory: &Path) -> DevicesOptions {
    DevicesOptions::new()
        .runtime_dir(directory)
        .connect_timeout(LIMIT)
        .call_timeout(LIMIT)
        .work_timeout(LIMIT)
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), LIMIT)
}

/// Runs one case against the driver in this directory.
pub(crate) fn run(seed: u64, directory: &Path) {
    // Other numbers than the driver's.
    let mut random = Random::new(!seed);
    let _ = if random.below(4) == 0 {
        by_runtime(&mut random, directory)
    } else {
        by_client(&mut random, directory).ok()
    };
}

struct Client {
    device: Device,
    model: Model,
    prepared: PreparedModel,
    memory: Memory,
    request: Request,
    bursts: Vec<Burst>,
    registered: Option<RegisteredRequest>,
    buffer: Option<Buffer>,
    fenced: Vec<FencedExecution>,
}

fn by_client(random: &mut Random, directory: &Path) -> Result<()> {
    let devices = options(directory).open()?;
    let device = devices.device(DEVICE)?;
    let model = double_model();
    let memory = Memory::new(32)?;
    let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
    let mut client = Client {
        prepared: device.prepare(&model, &PrepareOptions::new())?,
        device,
        model,
        memory,
        request,
        bursts: Vec::new(),
        registered: None,
        buffer: None,
        fenced: Vec::new(),
    };
    for _ in 0..STEPS {
        // Errors are what is expected.
        let _ = client.step(random);
        if client.device.ended().is_some() {
            break;
        }
    }
    Ok(())
}

impl Client {
    fn step(&mut self, random: &mut Random) -> Result<()> {
        let execute = ExecuteOptions::new().measure_timing();
        let values = [1.0_f32; 4];
        let mut result = [0.0_f32; 4];
        let inputs = [Input::from(&values)];
        let outputs = &mut [Output::from(&mut result)];
        // Bursts above all: they have the most states.
        match random.below(24) {
            0 => drop(self.device.status()?),
            1 => drop(self.device.supported_operations(&self.model)?),
            2 => self.prepared = self.device.prepare(&self.model, &PrepareOptions::new())?,
            3 => {
                let pending = self.device.start_preparing(&self.model, &PrepareOptions::new())?;
                pending.on_end(drop)?;
            }
            4 => drop(self.prepared.execute(&self.request, &execute)?),
            5 => drop(self.prepared.run(&inputs, outputs, &execute)?),
            6 => drop(
                self.prepared
                    .start(&self.request, &execute)?
                    .wait(Deadline::NONE)?,
            ),
            7 => {
                let mut pending = pin!(self.prepared.start(&self.request, &execute)?);
                let _ = pending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            8 => self.fenced(random)?,
            9 => {
                for fenced in self.fenced.drain(..) {
                    let _ = fenced.fence().map(|fence| fence.map(|fence| fence.wait(soon())));
                    fenced.wait(Deadline::NONE)?;
                }
            }
            10 => self.buffers()?,
            11 => {
                let mut spans = self.device.record_spans()?;
                spans.drain(drop);
            }
            12 => {
                // A memory of its own, which goes with it.
                let memory = Memory::new(64)?;
                let request = Request::new().input(&memory, 0..16).output(&memory, 32..48);
                self.prepared.execute(&request, &execute)?;
            }
            _ => self.burst(random)?,
        }
        Ok(())
    }

    fn fenced(&mut self, random: &mut Random) -> Result<()> {
        // More than one message takes.
        let many = if random.below(4) == 0 { 80 } else { 1 };
        let (source, fence) = Fence::create().expect("a fence");
        source.signal().expect("a fence");
        let mut wait_for = vec![WaitFor::Fence(&fence); many];
        wait_for.extend(self.fenced.iter().map(WaitFor::Execution));
        let fenced = self
            .prepared
            .execute_fenced(&self.request, &wait_for, &ExecuteOptions::new())?;
        self.fenced.push(fenced);
        Ok(())
    }

    fn buffers(&mut self) -> Result<()> {
        let role = BufferRole {
            model_index: 0,
            io_index: 0,
            frequency: 1.0,
        };
        let desc = BufferDesc::default();
        let buffer = self.device.allocate(&desc, &[&self.prepared], &[role], &[])?;
        let value = Memory::new(16)?;
        buffer.copy_from(&value, &[])?;
        buffer.copy_to(&value)?;
        let request = Request::new().input_buffer(&buffer).output(&self.memory, 16..32);
        self.buffer = Some(buffer);
        self.prepared.execute(&request, &ExecuteOptions::new())?;
        Ok(())
    }

    fn burst(&mut self, random: &mut Random) -> Result<()> {
        let execute = ExecuteOptions::new();
        let Some(burst) = self.bursts.last_mut() else {
            let options = BurstOptions::new().in_flight(1 + random.below(4));
            self.bursts.push(self.prepared.burst(&options)?);
            return Ok(());
        };
        let values = [1.0_f32; 4];
        let mut result = [0.0_f32; 4];
        for _ in 0..4 {
            let done = match (random.below(5), &self.registered) {
                (0, _) => burst.execute(&self.request, &execute).map(drop),
                (1, Some(registered)) => burst.fire(registered, &execute).map(drop),
                (2, Some(registered)) => burst.submit(registered, &execute).map(drop),
                (3, _) => burst.next_finished(&execute).map(drop),
                (1 | 2, None) => burst
                    .register(&self.request)
                    .map(|registered| self.registered = Some(registered)),
                _ => burst
                    .run(
                        &[Input::from(&values)],
                        &mut [Output::from(&mut result)],
                        &execute,
                    )
                    .map(drop),
            };
            if done.is_err() && random.below(2) == 0 {
                self.registered = None;
                self.bursts.clear();
                return done;
            }
        }
        Ok(())
    }
}

/// The same through the runtime, which divides, falls back and recovers.
fn by_runtime(random: &mut Random, directory: &Path) -> Option<()> {
    let runtime = Runtime::with(RuntimeOptions::new().devices(options(directory))).ok()?;
    let model = double_model();
    let caches = tempfile::tempdir().ok()?;
    let mut how = CompilationOptions::new();
    if random.below(2) == 0 {
        how = how.caching(caches.path(), [7; 32]);
    }
    if let Some(device) = runtime.device(DEVICE) {
        how = how.devices(std::slice::from_ref(device));
    }
    let compilation = runtime.compile(&model, &how).ok()?;
    let input: Vec<u8> = [1.0_f32; 4]
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let mut burst = compilation.burst().ok()?;
    for _ in 0..STEPS / 2 {
        let mut output = [0; 16];
        let inputs = [RunInput::bytes(&input)];
        let outputs = &mut [RunOutput::bytes(&mut output)];
        let execute = ExecuteOptions::new();
        match random.below(3) {
            0 => drop(compilation.execute(&inputs, outputs, &execute)),
            1 => drop(burst.execute(&inputs, outputs, &execute)),
            _ => {
                let outputs = [OutputBuffer::Bytes {
                    length: 16,
                    dimensions: Vec::new(),
                }];
                if let Ok(event) = compilation.execute_fenced(&inputs, &outputs, &[], &execute) {
                    let _ = event.wait(Deadline::NONE);
                }
            }
        }
    }
    Some(())
}
