//! What the C API costs: round trips by `ANeuralNetworksExecution_burstCompute` and
//! `ANeuralNetworksExecution_compute` with reusable executions beside those of the Rust API's registered
//! burst, in interleaved rounds of one run.
//!
//! - `rust_cells` and `capi_buffers`: arguments in the caller's own memory; small ones travel in the ring's
//!   cells;
//! - `rust_memory` and `capi_memory`: arguments in memory that the driver maps, by a request that it knows;
//! - `capi_compute_buffers` and `capi_compute_memory`: the same arguments without a burst of the program.
//!
//! Each kind of arguments is a contest of its own, whose ratios are those to Rust's row. The bar is 1.3 for
//! bursts. The C API's rows call the shared library, which was opened by name.
//!
//! `cargo bench --bench capi -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::models::{self, ADDEND};
use nnhal_bench::program::{self, Options};
use nnhal_bench::rows::driver::{DriverRow, Way};
use nnhal_bench::{Contest, Contestant, Error, Passing, Report, Result, library};
use nnhal_capi_caller::{Arguments, Burst as LibraryBurst, Library, ReusableExecution};
use nnhal_client::{
    Burst, BurstOptions, Device, ExecuteOptions, Memory, PrepareOptions, RegisteredRequest, Request,
};

const ROUNDS: u32 = 9;
/// How many values an execution adds to: one cell's worth, and more than cells take.
const VALUES: [u32; 2] = [1, 4096];
const VALUE_BYTES: usize = 4;
/// Where an output begins behind an input.
const LINE: usize = 64;

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let Some(devices) = library::devices(&[])? else {
        return Ok(());
    };
    let device = devices.fastest()?;
    let library = library::open()?;
    let rounds = options.rounds.unwrap_or(ROUNDS);
    // Before the first contest, which keeps this process on one processor.
    let mut conditions = Conditions::of_this_machine(rounds);
    device.name().clone_into(&mut conditions.device);
    let mut reports = Vec::new();
    for values in VALUES {
        for arguments in [Arguments::Own, Arguments::Memories] {
            let report = contest(&device, library, (arguments, values), conditions.clone())?;
            program::print(&report)?;
            reports.push(report);
        }
    }
    program::write_json(&reports, options.json.as_deref())
}

/// The Rust API's row and the C API's beside it.
fn contest(
    device: &Device,
    library: Library,
    (arguments, values): (Arguments, u32),
    conditions: Conditions,
) -> Result<Report> {
    let mut contest = Contest::new(conditions.rounds);
    match arguments {
        Arguments::Own => contest.add(Named {
            row: DriverRow::new(device, (Way::BurstRegistered, Passing::OwnMemory), values)?,
            name: "rust_cells",
        })?,
        Arguments::Memories => contest.add(RegisteredRow::new(device, values)?)?,
    }
    for call in [Call::Burst, Call::Compute] {
        contest.add(LibraryRow::new(device, library, (arguments, call), values)?)?;
    }
    contest.run(conditions, |_| {})
}

/// Another row under a name of its own.
struct Named {
    row: DriverRow,
    name: &'static str,
}

impl Contestant for Named {
    fn name(&self) -> &'static str {
        self.name
    }

    fn payload_bytes(&self) -> u64 {
        self.row.payload_bytes()
    }

    fn arguments(&self) -> Option<Passing> {
        self.row.arguments()
    }

    fn others(&self) -> Vec<u32> {
        self.row.others()
    }

    fn begin(&mut self, trips: u32) -> Result<()> {
        self.row.begin(trips)
    }

    fn trip(&mut self) -> Result<()> {
        self.row.trip()
    }
}

/// A value that counts, exact in 32-bit floats.
#[derive(Debug, Default)]
struct Counter(u32);

impl Counter {
    fn next(&mut self) -> f32 {
        self.0 = (self.0 + 1) % 1_000_000;
        self.0 as f32
    }
}

/// The Rust API: a request that was registered, fired again and again.
struct RegisteredRow {
    worker: u32,
    burst: Burst,
    request: RegisteredRequest,
    memory: Memory,
    output_at: u64,
    values: u32,
    counter: Counter,
}

impl RegisteredRow {
    fn new(device: &Device, values: u32) -> Result<RegisteredRow> {
        let prepared = device.prepare(&models::add(values)?, &PrepareOptions::new())?;
        let mut burst = prepared.burst(&BurstOptions::new())?;
        let bytes = values as usize * VALUE_BYTES;
        let output_at = bytes.next_multiple_of(LINE);
        let memory = Memory::new((output_at + bytes) as u64)?;
        let request = Request::new()
            .input(&memory, 0..bytes as u64)
            .output(&memory, output_at as u64..(output_at + bytes) as u64);
        Ok(RegisteredRow {
            worker: device.worker().pid,
            request: burst.register(&request)?,
            burst,
            memory,
            output_at: output_at as u64,
            values,
            counter: Counter::default(),
        })
    }
}

impl Contestant for RegisteredRow {
    fn name(&self) -> &'static str {
        "rust_memory"
    }

    fn payload_bytes(&self) -> u64 {
        u64::from(self.values) * VALUE_BYTES as u64
    }

    fn arguments(&self) -> Option<Passing> {
        Some(Passing::SharedMemory)
    }

    fn others(&self) -> Vec<u32> {
        vec![self.worker]
    }

    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn trip(&mut self) -> Result<()> {
        let value = self.counter.next();
        self.memory.write_at(0, &value.to_ne_bytes())?;
        self.burst.fire(&self.request, &ExecuteOptions::new())?;
        let mut sum = [0; VALUE_BYTES];
        self.memory.read_at(self.output_at, &mut sum)?;
        expect_sum("rust_memory", sum, value)
    }
}

/// How the C API computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Burst,
    Compute,
}

/// The C API: a reusable execution, computed again and again.
struct LibraryRow {
    workers: Vec<u32>,
    /// Of [`Call::Burst`] alone.
    burst: Option<LibraryBurst>,
    execution: ReusableExecution,
    arguments: Arguments,
    values: u32,
    counter: Counter,
}

impl LibraryRow {
    fn new(
        device: &Device,
        library: Library,
        (arguments, call): (Arguments, Call),
        values: u32,
    ) -> Result<LibraryRow> {
        let compilation = library::compile(library, &models::add(values)?, device.name())?;
        let bytes = values as usize * VALUE_BYTES;
        let made = || {
            let execution = ReusableExecution::new(&compilation, arguments, &vec![0; bytes], bytes)?;
            let burst = match call {
                Call::Burst => Some(LibraryBurst::new(&compilation)?),
                Call::Compute => None,
            };
            Ok((burst, execution))
        };
        let (burst, execution) = made().map_err(called)?;
        Ok(LibraryRow {
            // The library does not tell which of them serves it.
            workers: library::workers(device.supervisor().pid),
            burst,
            execution,
            arguments,
            values,
            counter: Counter::default(),
        })
    }
}

impl Contestant for LibraryRow {
    fn name(&self) -> &'static str {
        match (&self.burst, self.arguments) {
            (Some(_), Arguments::Own) => "capi_buffers",
            (Some(_), Arguments::Memories) => "capi_memory",
            (None, Arguments::Own) => "capi_compute_buffers",
            (None, Arguments::Memories) => "capi_compute_memory",
        }
    }

    fn payload_bytes(&self) -> u64 {
        u64::from(self.values) * VALUE_BYTES as u64
    }

    fn arguments(&self) -> Option<Passing> {
        Some(match self.arguments {
            Arguments::Own => Passing::by_run(self.values as usize * VALUE_BYTES),
            Arguments::Memories => Passing::SharedMemory,
        })
    }

    fn others(&self) -> Vec<u32> {
        self.workers.clone()
    }

    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn trip(&mut self) -> Result<()> {
        let value = self.counter.next();
        self.execution
            .change_input(&value.to_ne_bytes())
            .map_err(called)?;
        match &mut self.burst {
            Some(burst) => self.execution.compute_by(burst),
            None => self.execution.compute(),
        }
        .map_err(called)?;
        let mut sum = [0; VALUE_BYTES];
        self.execution.output(&mut sum).map_err(called)?;
        expect_sum(self.name(), sum, value)
    }
}

fn called(error: nnhal_capi_caller::CallError) -> Error {
    Error::row("the C API")(error)
}

fn expect_sum(name: &'static str, sum: [u8; VALUE_BYTES], value: f32) -> Result<()> {
    if f32::from_ne_bytes(sum) == value + ADDEND {
        Ok(())
    } else {
        Err(Error::wrong_answer(name))
    }
}
