//! What passing arguments costs, by how they are passed and by size: ADD of a constant by burst, from 64
//! bytes to 16 MiB.
//!
//! - `in_process`: the same model without a driver; what the others have beyond it is what passing costs;
//! - `own_memory`: `Burst::run`, from and to memory of the application: one copy more on each side than
//! - `shared_memory`: a registered request whose arguments the application keeps in a memory that both sides
//!   have mapped and touched before (pooled and pre-faulted);
//! - `sealed_input`: registered requests whose inputs are in sealed memories, which nobody writes any more
//!   and the driver reads where they are, and whose outputs are as before; two of them take turns;
//! - `new_memory`: the same in a memory that is made for each execution, as of an application that pools
//!   nothing;
//! - `device_buffers`: a registered request from a device buffer to another: nothing is passed, nothing is
//!   copied.
//!
//! The time includes writing the input and reading the output where the application does so. Ways take turns
//! in each round; p50 is the median over the rounds. Nothing is pinned.
//!
//! `cargo bench --bench payloads -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nnhal_bench::conditions::Conditions;
use nnhal_bench::passing::{BufferPair, Passing};
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::rows::InProcess;
use nnhal_bench::samples::{median, quantile};
use nnhal_bench::{Contestant, Error, Result, models};
use nnhal_client::{
    Burst, BurstOptions, Device, ExecuteOptions, Input, Memory, Output, PrepareOptions, RegisteredRequest,
    Request,
};
use serde::Serialize;

const ROUNDS: u32 = 7;
/// 64 bytes and its multiples by four, up to 16 MiB.
const SIZES: [u32; 10] = [
    64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
];
const VALUE_BYTES: u32 = 4;
/// How long a way is measured in a round, unless it takes longer for the fewest times.
const WINDOW: Duration = Duration::from_millis(20);
const FEWEST: usize = 5;
const WAYS: [&str; 6] = [
    "in_process",
    Passing::OwnMemory.name(),
    Passing::SharedMemory.name(),
    "sealed_input",
    "new_memory",
    Passing::DeviceBuffers.name(),
];

/// The figures of a size.
#[derive(Debug, Serialize)]
struct Row {
    payload_bytes: u32,
    /// By way, in nanoseconds.
    p50_ns: [f64; WAYS.len()],
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    ways: [&'static str; WAYS.len()],
    rows: Vec<Row>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}, kernel {}, load before {}, device {}, {} rounds; p50\n",
            self.conditions.cpu,
            self.conditions.kernel,
            self.conditions.load_before,
            self.conditions.device,
            self.conditions.rounds
        )?;
        write!(f, "{:>10}", "bytes")?;
        for way in self.ways {
            write!(f, " {way:>15}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:>10}", row.payload_bytes)?;
            for nanos in row.p50_ns {
                write!(f, " {:>15}", duration(nanos))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(rounds, device.name());
    let rows = SIZES
        .into_iter()
        .map(|bytes| measure_size(&device, bytes, rounds));
    let report = Report {
        rows: rows.collect::<Result<_>>()?,
        conditions,
        ways: WAYS,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

fn measure_size(device: &Device, bytes: u32, rounds: u32) -> Result<Row> {
    let mut payload = Payload::new(device, bytes)?;
    let mut medians = [const { Vec::new() }; WAYS.len()];
    for _ in 0..rounds {
        let [in_process, own, shared, sealed, new, buffers] = &mut medians;
        in_process.push(p50(|| payload.in_process.trip())?);
        own.push(p50(|| payload.in_own_memory())?);
        shared.push(p50(|| payload.in_shared_memory())?);
        sealed.push(p50(|| payload.with_sealed_input())?);
        new.push(p50(|| payload.in_new_memory())?);
        buffers.push(p50(|| payload.between_buffers())?);
    }
    Ok(Row {
        payload_bytes: bytes,
        p50_ns: medians.map(|rounds| median(&rounds)),
    })
}

/// The median time of `each`, done for a while.
fn p50(mut each: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut nanos = Vec::new();
    let begun = Instant::now();
    while nanos.len() < FEWEST || begun.elapsed() < WINDOW {
        let start = Instant::now();
        each()?;
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    Ok(quantile(&mut nanos, 0.5) as f64)
}

/// Arguments of one size, passed in every way.
struct Payload {
    in_process: InProcess,
    burst: Burst,
    memory: Memory,
    in_memory: RegisteredRequest,
    /// With what is expected of each.
    sealed: [(RegisteredRequest, f32); 2],
    buffers: BufferPair,
    in_buffers: RegisteredRequest,
    input: Vec<f32>,
    output: Vec<f32>,
    count: u32,
}

impl Payload {
    fn new(device: &Device, bytes: u32) -> Result<Payload> {
        let values = bytes / VALUE_BYTES;
        let prepared = device.prepare(&models::add(values)?, &PrepareOptions::new())?;
        let mut burst = prepared.burst(&BurstOptions::new())?;
        let size = u64::from(bytes);
        let memory = Memory::new(2 * size)?;
        let in_memory = burst.register(&request(&memory))?;
        let sealed = [1.0_f32, 2.0].map(|value| {
            let input = Memory::sealed(&[&f32::to_ne_bytes(value).repeat(values as usize)])?;
            let request = Request::new()
                .input(&input, 0..size)
                .output(&memory, size..2 * size);
            Ok((burst.register(&request)?, value + models::ADDEND))
        });
        let [first, second]: [Result<_>; 2] = sealed;
        let sealed = [first?, second?];
        let buffers = BufferPair::new(device, &prepared, size)?;
        let in_buffers = burst.register(buffers.request())?;
        let mut payload = Payload {
            in_process: InProcess::new(values)?,
            memory,
            in_memory,
            sealed,
            in_buffers,
            buffers,
            burst,
            input: vec![0.0; values as usize],
            output: vec![0.0; values as usize],
            count: 0,
        };
        payload.expect_sum_in_buffer()?;
        Ok(payload)
    }

    /// What is between buffers is never seen while it is measured.
    fn expect_sum_in_buffer(&mut self) -> Result<()> {
        let expected = self.next_input();
        self.buffers.set(&self.input)?;
        self.between_buffers()?;
        self.buffers.get(&mut self.output)?;
        check(self.output.last(), expected)
    }

    fn next_input(&mut self) -> f32 {
        // Exact in float32.
        self.count = (self.count + 1) % 1_000_000;
        let value = self.count as f32;
        if let Some(last) = self.input.last_mut() {
            *last = value;
        }
        value + models::ADDEND
    }

    fn in_own_memory(&mut self) -> Result<()> {
        let expected = self.next_input();
        self.burst.run(
            &[Input::from(&self.input)],
            &mut [Output::from(&mut self.output)],
            &ExecuteOptions::new(),
        )?;
        check(self.output.last(), expected)
    }

    fn in_shared_memory(&mut self) -> Result<()> {
        let expected = self.next_input();
        self.memory.write(0, &self.input)?;
        self.burst.fire(&self.in_memory, &ExecuteOptions::new())?;
        let output = self
            .memory
            .read::<f32>(self.memory.size() / 2, self.input.len())?;
        check(output.last(), expected)
    }

    fn with_sealed_input(&mut self) -> Result<()> {
        self.sealed.swap(0, 1);
        let (request, expected) = &self.sealed[0];
        self.burst.fire(request, &ExecuteOptions::new())?;
        let output = self
            .memory
            .read::<f32>(self.memory.size() / 2, self.input.len())?;
        check(output.last(), *expected)
    }

    fn in_new_memory(&mut self) -> Result<()> {
        let expected = self.next_input();
        let memory = Memory::new(self.memory.size())?;
        memory.write(0, &self.input)?;
        self.burst.execute(&request(&memory), &ExecuteOptions::new())?;
        let output = memory.read::<f32>(memory.size() / 2, self.input.len())?;
        check(output.last(), expected)
    }

    fn between_buffers(&mut self) -> Result<()> {
        self.burst.fire(&self.in_buffers, &ExecuteOptions::new())?;
        Ok(())
    }
}

/// Input in the first half of a memory, output in the second.
fn request(memory: &Memory) -> Request {
    let (half, whole) = (memory.size() / 2, memory.size());
    Request::new().input(memory, 0..half).output(memory, half..whole)
}

fn check(found: Option<&f32>, expected: f32) -> Result<()> {
    if found == Some(&expected) {
        Ok(())
    } else {
        Err(Error::wrong_answer("payloads"))
    }
}
