//! Three models, each of which reads what the one before has computed, in one worker: with what is between
//! them in device buffers, and in memories that the client shares.
//!
//! By device buffers a model's result becomes the next one's input where it is; by shared memory it is copied
//! out and in again. Each way is taken in three forms: `fenced`, three executions launched at once, each
//! waiting for the one before; `synchronous`, three calls; and `burst`, three bursts. The client writes the
//! first input and reads the last output in all of them.
//!
//! Ways take turns in each round. Printed: p50 and p99 of a pass through the pipeline, medians over the
//! rounds, and the ratio of the medians to shared memory by the same form.
//!
//! `cargo bench --bench pipeline -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{median, quantile};
use nnhal_bench::{Error, Result, models};
use nnhal_client::{
    Buffer, BufferDesc, BufferRole, Burst, BurstOptions, Clock, Deadline, Device, ExecuteOptions, Memory,
    MonotonicClock, PrepareOptions, PreparedModel, Request, WaitFor,
};
use serde::Serialize;

const ROUNDS: u32 = 15;
/// Values of each tensor, and passes in a round.
const SIZES: [(u32, u32); 3] = [(256, 400), (1 << 16, 200), (1 << 20, 30)];
const FORMS: [Form; 3] = [Form::Fenced, Form::Synchronous, Form::Burst];
const MEMORIES: [&str; 2] = ["shared", "device"];
/// How long a pass may take.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// How the models are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    Fenced,
    Synchronous,
    Burst,
}

/// One way, for one size.
#[derive(Debug, Serialize)]
struct Row {
    form: Form,
    memory: &'static str,
    tensor_bytes: u64,
    p50_ns: f64,
    p99_ns: f64,
    /// The median over rounds of the ratio of the round's medians, this row's to shared memory's.
    ratio_p50: f64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Row>,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(rounds, device.name());
    let mut rows = Vec::new();
    for (values, passes) in SIZES {
        rows.extend(measure_size(&device, values, passes, rounds)?);
    }
    let report = Report { conditions, rows };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

/// What a way has shown: p50 and p99 by round.
type Shown = Vec<(f64, f64)>;

/// The rows of tensors of one size.
fn measure_size(device: &Device, values: u32, passes: u32, rounds: u32) -> Result<Vec<Row>> {
    let mut pipelines = [
        Pipeline::new(device, values, false)?,
        Pipeline::new(device, values, true)?,
    ];
    let mut shown: [[Shown; 2]; 3] = Default::default();
    for _ in 0..rounds {
        for (form, shown) in FORMS.into_iter().zip(&mut shown) {
            for (pipeline, shown) in pipelines.iter_mut().zip(shown) {
                shown.push(pipeline.pass_often(form, passes)?);
            }
        }
    }
    let mut rows = Vec::new();
    for (form, shown) in FORMS.into_iter().zip(&shown) {
        for (memory, own) in MEMORIES.into_iter().zip(shown) {
            let of = |what: fn(&(f64, f64)) -> f64| median(&own.iter().map(what).collect::<Vec<_>>());
            let ratios: Vec<f64> = own
                .iter()
                .zip(&shown[0])
                .map(|((own, _), (shared, _))| own / shared)
                .collect();
            rows.push(Row {
                form,
                memory,
                tensor_bytes: u64::from(values) * 4,
                p50_ns: of(|(p50, _)| *p50),
                p99_ns: of(|(_, p99)| *p99),
                ratio_p50: median(&ratios),
            });
        }
    }
    Ok(rows)
}

/// A buffer for the output of one model and the input of another.
fn between(device: &Device, from: &PreparedModel, to: &PreparedModel) -> Result<Buffer> {
    let role = |model_index| BufferRole {
        model_index,
        io_index: 0,
        frequency: 1.0,
    };
    Ok(device.allocate(&BufferDesc::default(), &[from, to], &[role(1)], &[role(0)])?)
}

/// Three models and what is between them.
struct Pipeline {
    models: [PreparedModel; 3],
    bursts: [Burst; 3],
    requests: [Request; 3],
    /// The first input, then the last output.
    ends: Memory,
    input: Vec<f32>,
    /// What is between the models, which the requests name.
    _between: Between,
}

/// What carries results from one model to the next.
enum Between {
    Shared(#[expect(dead_code, reason = "kept for the requests")] Memory),
    Device(#[expect(dead_code, reason = "kept for the requests")] [Buffer; 2]),
}

impl Pipeline {
    fn new(device: &Device, values: u32, by_device: bool) -> Result<Pipeline> {
        let model = models::add(values)?;
        let prepare = || device.prepare(&model, &PrepareOptions::new());
        let models = [prepare()?, prepare()?, prepare()?];
        let bytes = u64::from(values) * 4;
        let ends = Memory::new(2 * bytes)?;
        let (first, second) = (0..bytes, bytes..2 * bytes);
        let (between, requests) = if by_device {
            let [first_model, second_model, third_model] = &models;
            let buffers = [
                between(device, first_model, second_model)?,
                between(device, second_model, third_model)?,
            ];
            let requests = [
                Request::new().input(&ends, first).output_buffer(&buffers[0]),
                Request::new()
                    .input_buffer(&buffers[0])
                    .output_buffer(&buffers[1]),
                Request::new().input_buffer(&buffers[1]).output(&ends, second),
            ];
            (Between::Device(buffers), requests)
        } else {
            let memory = Memory::new(2 * bytes)?;
            let requests = [
                Request::new()
                    .input(&ends, first.clone())
                    .output(&memory, first.clone()),
                Request::new()
                    .input(&memory, first)
                    .output(&memory, second.clone()),
                Request::new()
                    .input(&memory, second.clone())
                    .output(&ends, second),
            ];
            (Between::Shared(memory), requests)
        };
        let burst = |model: &PreparedModel| model.burst(&BurstOptions::new());
        Ok(Pipeline {
            bursts: [burst(&models[0])?, burst(&models[1])?, burst(&models[2])?],
            models,
            requests,
            ends,
            input: vec![0.0; values as usize],
            _between: between,
        })
    }

    /// Passes something new through all models, again and again. Returns p50 and p99 of a pass.
    fn pass_often(&mut self, form: Form, passes: u32) -> Result<(f64, f64)> {
        let mut taken = Vec::with_capacity(passes as usize);
        for pass in 0..passes {
            let value = pass as f32;
            self.input.fill(value);
            self.ends.write(0, &self.input)?;
            let started = Instant::now();
            match form {
                Form::Fenced => self.pass_by_fences()?,
                Form::Synchronous => {
                    for (model, request) in self.models.iter().zip(&self.requests) {
                        model.execute(request, &ExecuteOptions::new())?;
                    }
                }
                Form::Burst => {
                    for (burst, request) in self.bursts.iter_mut().zip(&self.requests) {
                        burst.execute(request, &ExecuteOptions::new())?;
                    }
                }
            }
            taken.push(started.elapsed().as_nanos() as u64);
            self.check(value + 3.0 * models::ADDEND)?;
        }
        let quantiles = [0.5, 0.99].map(|part| quantile(&mut taken, part) as f64);
        Ok((quantiles[0], quantiles[1]))
    }

    fn pass_by_fences(&self) -> Result<()> {
        let options = ExecuteOptions::new();
        let [first, second, third] = &self.models;
        let [start, middle, end] = &self.requests;
        let a = first.execute_fenced(start, &[], &options)?;
        let b = second.execute_fenced(middle, &[WaitFor::Execution(&a)], &options)?;
        let c = third.execute_fenced(end, &[WaitFor::Execution(&b)], &options)?;
        c.wait(Deadline::after(MonotonicClock.now(), TIMEOUT))?;
        Ok(())
    }

    /// A pipeline that computes something else would show nothing.
    fn check(&self, expected: f32) -> Result<()> {
        let output = self.ends.read::<f32>(self.ends.size() / 2, 1)?;
        if output == [expected] {
            return Ok(());
        }
        Err(Error::wrong_answer("pipeline"))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}\n{:<12} {:<8} {:>9} {:>10} {:>10} {:>9}",
            self.conditions, "form", "memory", "bytes", "p50", "p99", "x shared"
        )?;
        for row in &self.rows {
            let form = match row.form {
                Form::Fenced => "fenced",
                Form::Synchronous => "synchronous",
                Form::Burst => "burst",
            };
            writeln!(
                f,
                "{form:<12} {:<8} {:>9} {:>10} {:>10} {:>9.2}",
                row.memory,
                row.tensor_bytes,
                duration(row.p50_ns),
                duration(row.p99_ns),
                row.ratio_p50
            )?;
        }
        Ok(())
    }
}
