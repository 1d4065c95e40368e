//! The steps of a client's life, and what it has after each.

use std::path::PathBuf;
use std::time::Duration;

use nnhal::wire::directory;
use nnhal::wire::handshake::{self, VERSIONS};
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Burst, BurstOptions, Clock, CompilationCache, Deadline, Device, Devices,
    DevicesOptions, ExecuteOptions, Fence, Input, Memory, Model, ModelBuilder, MonotonicClock, OperationType,
    Output, PrepareOptions, PreparedModel, RegisteredRequest, Request, TensorType, WaitFor,
};
use nnhal_os::socket::Connection;

/// Values that the model takes and gives. Its weights are large enough to be shared by workers.
const SIZE: usize = 264;

/// How often a step executes, so that a kill meets one in its middle.
pub(crate) const TIMES: usize = 10;

/// What the cache may hold: a few models.
const CACHE_BYTES: u64 = 2 << 20;

/// The longest that any call may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// What came of a step: why it failed, if it did.
type Outcome = Result<(), String>;

/// A step's name, and what is done.
pub(crate) type Step = (&'static str, fn(&mut Session) -> Outcome);

/// All steps in their order. `reload` and `drain` are what others do to the driver at these points.
pub(crate) const STEPS: [Step; 18] = [
    ("connect", Session::connect),
    ("hello", Session::hello),
    ("open", Session::open),
    ("prepare", Session::prepare),
    ("cache", Session::cache),
    ("allocate", Session::allocate),
    ("open burst", Session::open_burst),
    ("execute", Session::execute),
    ("start", Session::start),
    ("fenced", Session::fenced),
    ("wait for fence", Session::wait_for_fence),
    ("copy", Session::copy),
    ("run by burst", Session::run_by_burst),
    ("register", Session::register),
    ("fire", Session::fire),
    ("reload", Session::execute),
    ("drain", Session::fire),
    ("after drain", Session::fire),
];

/// What a client has.
pub(crate) struct Session {
    runtime_dir: PathBuf,
    device_name: String,
    cache_dir: PathBuf,
    /// How often a step executes.
    times: usize,
    /// A connection that is made by hand.
    connection: Option<Connection>,
    registered: Option<RegisteredRequest>,
    burst: Option<Burst>,
    buffer: Option<Buffer>,
    prepared: Option<PreparedModel>,
    device: Option<Device>,
    memory: Option<Memory>,
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn limit() -> Deadline {
    Deadline::after(MonotonicClock.now(), LIMIT)
}

fn options() -> ExecuteOptions {
    ExecuteOptions::new().wait_at_most(LIMIT)
}

/// A fully connected layer: each output is the sum of all inputs plus `bias`.
fn layer(bias: f32) -> Result<Model, String> {
    let size = SIZE as u32;
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1, size]));
    let filter = model.constant(TensorType::float32(&[size, size]), &vec![1.0_f32; SIZE * SIZE]);
    let bias = model.constant(TensorType::float32(&[size]), &[bias; SIZE]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(TensorType::float32(&[1, size]));
    let inputs = [x, filter, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[y]);
    model.finish().map_err(text)
}

/// The bias of the model that most steps execute.
const BIAS: f32 = 0.5;

/// Where the outputs begin in the memory of a request, in bytes.
const OUTPUTS: u64 = 4 * SIZE as u64;

impl Session {
    pub(crate) fn new(runtime_dir: PathBuf, device_name: &str, cache_dir: PathBuf, times: usize) -> Session {
        Session {
            runtime_dir,
            device_name: device_name.to_owned(),
            cache_dir,
            times,
            connection: None,
            registered: None,
            burst: None,
            buffer: None,
            prepared: None,
            device: None,
            memory: None,
        }
    }

    /// The worker's process.
    pub(crate) fn worker(&self) -> Option<u32> {
        self.device.as_ref().map(|device| device.worker().pid)
    }

    fn connect(&mut self) -> Outcome {
        let path = directory::socket_path(&self.runtime_dir, &self.device_name);
        self.connection = Some(Connection::connect(&path, limit()).map_err(text)?);
        Ok(())
    }

    fn hello(&mut self) -> Outcome {
        let Some(connection) = self.connection.take() else {
            return Ok(());
        };
        connection
            .send(&handshake::hello(VERSIONS), &[], limit())
            .map_err(text)?;
        let mut inbox = nnhal::wire::Inbox::new();
        let (answer, _) = inbox.receive_bytes(&connection, limit()).map_err(text)?;
        handshake::read_answer(answer, VERSIONS).map_err(text)?;
        Ok(())
    }

    fn open(&mut self) -> Outcome {
        let devices: Devices = DevicesOptions::new()
            .runtime_dir(&self.runtime_dir)
            .connect_timeout(LIMIT)
            .open()
            .map_err(text)?;
        self.device = Some(devices.device(&self.device_name).map_err(text)?);
        Ok(())
    }

    fn prepare(&mut self) -> Outcome {
        let Some(device) = &self.device else { return Ok(()) };
        let options = PrepareOptions::new().wait_at_most(LIMIT);
        self.prepared = Some(device.prepare(&layer(BIAS)?, &options).map_err(text)?);
        self.memory = Some(Memory::new(2 * OUTPUTS).map_err(text)?);
        Ok(())
    }

    /// Writes a model of its own to the cache, then reads it from there.
    fn cache(&mut self) -> Outcome {
        let Some(device) = &self.device else { return Ok(()) };
        let cache = CompilationCache::open(&self.cache_dir, CACHE_BYTES).map_err(text)?;
        let options = PrepareOptions::new().wait_at_most(LIMIT);
        let bias = (std::process::id() % 1000) as f32;
        let model = layer(bias)?;
        for _ in 0..2 {
            let prepared = cache.prepare(device, &model, &options).map_err(text)?;
            run(&prepared, 2.0, bias)?;
        }
        Ok(())
    }

    fn allocate(&mut self) -> Outcome {
        let (Some(device), Some(prepared)) = (&self.device, &self.prepared) else {
            return Ok(());
        };
        let role = BufferRole {
            model_index: 0,
            io_index: 0,
            frequency: 1.0,
        };
        let buffer = device.allocate(&BufferDesc::default(), &[prepared], &[], &[role]);
        self.buffer = Some(buffer.map_err(text)?);
        Ok(())
    }

    fn open_burst(&mut self) -> Outcome {
        let Some(prepared) = &self.prepared else {
            return Ok(());
        };
        self.burst = Some(prepared.burst(&BurstOptions::new()).map_err(text)?);
        Ok(())
    }

    /// By request in shared memory, then by values in this process's own.
    fn execute(&mut self) -> Outcome {
        self.by_request(|prepared, request| prepared.execute(request, &options()).map(drop).map_err(text))?;
        match &self.prepared {
            Some(prepared) => run(prepared, 3.0, BIAS),
            None => Ok(()),
        }
    }

    fn start(&mut self) -> Outcome {
        self.by_request(|prepared, request| {
            let mut launched = prepared.start(request, &options()).map_err(text)?;
            launched.wait(limit()).map(drop).map_err(text)
        })
    }

    fn fenced(&mut self) -> Outcome {
        self.by_request(|prepared, request| {
            let launched = prepared.execute_fenced(request, &[], &options()).map_err(text)?;
            launched.wait(limit()).map(drop).map_err(text)
        })
    }

    /// Behind a fence that is signalled when the execution waits for it.
    fn wait_for_fence(&mut self) -> Outcome {
        self.by_request(|prepared, request| {
            let (gate, closed) = Fence::create().map_err(text)?;
            let wait_for = [WaitFor::Fence(&closed)];
            let launched = prepared
                .execute_fenced(request, &wait_for, &options())
                .map_err(text)?;
            gate.signal().map_err(text)?;
            launched.wait(limit()).map(drop).map_err(text)
        })
    }

    /// Into a device buffer, and from there to a memory.
    fn copy(&mut self) -> Outcome {
        let (Some(buffer), Some(prepared)) = (&self.buffer, &self.prepared) else {
            return Ok(());
        };
        let memory = filled(4.0)?;
        let request = Request::new().input(&memory, 0..OUTPUTS).output_buffer(buffer);
        prepared.execute(&request, &options()).map_err(text)?;
        let held = Memory::new(OUTPUTS).map_err(text)?;
        buffer.copy_to(&held).map_err(text)?;
        check(&held.read::<f32>(0, SIZE).map_err(text)?, 4.0, BIAS)
    }

    fn run_by_burst(&mut self) -> Outcome {
        let Some(burst) = &mut self.burst else {
            return Ok(());
        };
        for time in 0..self.times {
            let input = time as f32;
            let mut output = [0.0_f32; SIZE];
            let inputs = [input; SIZE];
            let inputs = [Input::from(&inputs[..])];
            let mut outputs = [Output::from(&mut output[..])];
            burst.run(&inputs, &mut outputs, &options()).map_err(text)?;
            check(&output, input, BIAS)?;
        }
        Ok(())
    }

    fn register(&mut self) -> Outcome {
        let (Some(burst), Some(memory)) = (&mut self.burst, &self.memory) else {
            return Ok(());
        };
        let request = request(memory);
        self.registered = Some(burst.register(&request).map_err(text)?);
        Ok(())
    }

    fn fire(&mut self) -> Outcome {
        let (Some(burst), Some(memory), Some(registered)) = (&mut self.burst, &self.memory, &self.registered)
        else {
            return Ok(());
        };
        for time in 0..self.times {
            let input = time as f32;
            memory.write(0, &[input; SIZE]).map_err(text)?;
            burst.fire(registered, &options()).map_err(text)?;
            check(&memory.read::<f32>(OUTPUTS, SIZE).map_err(text)?, input, BIAS)?;
        }
        Ok(())
    }

    /// Executes several times in this way.
    fn by_request(&self, way: impl Fn(&PreparedModel, &Request) -> Outcome) -> Outcome {
        let Some(prepared) = &self.prepared else {
            return Ok(());
        };
        for time in 0..self.times {
            let input = time as f32;
            let memory = filled(input)?;
            way(prepared, &request(&memory))?;
            check(&memory.read::<f32>(OUTPUTS, SIZE).map_err(text)?, input, BIAS)?;
        }
        Ok(())
    }
}

/// A memory with inputs like this one, and room for outputs.
fn filled(input: f32) -> Result<Memory, String> {
    let memory = Memory::new(2 * OUTPUTS).map_err(text)?;
    memory.write(0, &[input; SIZE]).map_err(text)?;
    Ok(memory)
}

fn request(memory: &Memory) -> Request {
    Request::new()
        .input(memory, 0..OUTPUTS)
        .output(memory, OUTPUTS..2 * OUTPUTS)
}

fn run(prepared: &PreparedModel, input: f32, bias: f32) -> Outcome {
    let mut output = [0.0_f32; SIZE];
    let inputs = [input; SIZE];
    let inputs = [Input::from(&inputs[..])];
    let mut outputs = [Output::from(&mut output[..])];
    prepared.run(&inputs, &mut outputs, &options()).map_err(text)?;
    check(&output, input, bias)
}

/// A right status with a wrong result is what must never be.
fn check(outputs: &[f32], input: f32, bias: f32) -> Outcome {
    let right = input * SIZE as f32 + bias;
    let wrong = outputs.iter().find(|&&output| output != right);
    assert!(wrong.is_none(), "{wrong:?} instead of {right}");
    Ok(())
}
