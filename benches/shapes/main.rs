//! What it costs that a model leaves the number of its rows open, by burst.
//!
//! - `closed`: the model states its rows;
//! - `open`: it leaves them open, and each request has as many as the one before;
//! - `changing`: it leaves them open, and requests have a few rows more or fewer in turn, of more numbers
//!   than programs are made for.
//!
//! Models are `add`, one operation on one value a row, and `network`, three fully connected layers with
//! activations and sums between them. The ways take turns in each round. Printed: p50 and p99 of a trip,
//! medians over the rounds, and the median of the rounds' ratios to `closed`.
//!
//! `cargo bench --bench shapes -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{median, quantile};
use nnhal_bench::{Error, Result, models};
use nnhal_client::{
    Burst, BurstOptions, Device, ExecuteOptions, Input, Model, ModelBuilder, OperationType, Output,
    PrepareOptions, TensorType,
};
use serde::Serialize;

const ROUNDS: u32 = 15;
/// Values in a row of the network, and its layers.
const WIDTH: u32 = 256;
const LAYERS: u32 = 3;
/// How many numbers of rows take turns.
const TURNS: u32 = 12;
/// Trips before the first that is measured.
const WARM_UP: u32 = 50;
const MODELS: [Kind; 2] = [
    Kind {
        name: "add",
        width: 1,
        rows: 8,
        trips: 5000,
    },
    Kind {
        name: "network",
        width: WIDTH,
        rows: 32,
        trips: 500,
    },
];
const WAYS: [&str; 3] = ["closed", "open", "changing"];

/// A model, and how it is measured.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Values in a row.
    width: u32,
    rows: u32,
    /// In a round.
    trips: u32,
}

/// One way to execute one model.
#[derive(Debug, Serialize)]
struct Row {
    model: &'static str,
    way: &'static str,
    p50_ns: f64,
    p99_ns: f64,
    /// The median over rounds of the ratio of the round's medians, this row's to that of `closed`.
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
    for kind in MODELS {
        rows.extend(measure_model(&device, kind, rounds)?);
    }
    let report = Report { conditions, rows };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

fn measure_model(device: &Device, kind: Kind, rounds: u32) -> Result<Vec<Row>> {
    let mut contestants = WAYS
        .map(|way| Contestant::new(device, kind, way))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    for contestant in &mut contestants {
        contestant.trips(WARM_UP)?;
    }
    let mut shown = vec![Vec::new(); WAYS.len()];
    for _ in 0..rounds {
        for (contestant, shown) in contestants.iter_mut().zip(&mut shown) {
            shown.push(contestant.trips(kind.trips)?);
        }
    }
    let rows = WAYS.into_iter().zip(&shown).map(|(way, own)| {
        let of = |what: fn(&(f64, f64)) -> f64| median(&own.iter().map(what).collect::<Vec<_>>());
        let ratios = own
            .iter()
            .zip(&shown[0])
            .map(|((own, _), (closed, _))| own / closed);
        Row {
            model: kind.name,
            way,
            p50_ns: of(|(p50, _)| *p50),
            p99_ns: of(|(_, p99)| *p99),
            ratio_p50: median(&ratios.collect::<Vec<_>>()),
        }
    });
    Ok(rows.collect())
}

/// A burst of one way.
struct Contestant {
    burst: Burst,
    kind: Kind,
    changes: bool,
    input: Vec<f32>,
    output: Vec<f32>,
    /// What each value of an output is where all inputs are 1.
    expected: f32,
}

impl Contestant {
    fn new(device: &Device, kind: Kind, way: &str) -> Result<Contestant> {
        let rows = if way == "closed" { kind.rows } else { 0 };
        let (model, expected) = match kind.width {
            WIDTH => network(rows)?,
            _ => (models::add(rows)?, 1.0 + models::ADDEND),
        };
        let prepared = device.prepare(&model, &PrepareOptions::new())?;
        let most = ((kind.rows + TURNS) * kind.width) as usize;
        Ok(Contestant {
            burst: prepared.burst(&BurstOptions::new())?,
            kind,
            changes: way == "changing",
            input: vec![1.0; most],
            output: vec![0.0; most],
            expected,
        })
    }

    /// So many trips. Returns p50 and p99 of one.
    fn trips(&mut self, trips: u32) -> Result<(f64, f64)> {
        let Kind { width, rows, .. } = self.kind;
        let mut taken = Vec::with_capacity(trips as usize);
        for trip in 0..trips {
            let rows = match self.changes {
                // As many on average, but for half a row.
                true => rows + trip % TURNS - (TURNS / 2).min(rows - 1),
                false => rows,
            };
            let dimensions: &[u32] = if width == 1 { &[rows] } else { &[rows, width] };
            let count = (rows * width) as usize;
            let result = &mut self.output[..count];
            result[count - 1] = 0.0;
            let started = Instant::now();
            self.burst.run(
                &[Input::from(&self.input[..count]).with_dimensions(dimensions)],
                &mut [Output::from(&mut *result)],
                &ExecuteOptions::new(),
            )?;
            taken.push(started.elapsed().as_nanos() as u64);
            if result[count - 1] != self.expected {
                return Err(Error::wrong_answer("shapes"));
            }
        }
        let quantiles = [0.5, 0.99].map(|part| quantile(&mut taken, part) as f64);
        Ok((quantiles[0], quantiles[1]))
    }
}

/// Layers of equal weights, each with an activation behind it and a sum with its own input; of so many rows,
/// or of any number if that is 0. Returns what each value of a result is where all inputs are 1, which is
/// exact.
fn network(rows: u32) -> Result<(Model, f32)> {
    let mut model = ModelBuilder::new();
    let tensor = || TensorType::float32(&[rows, WIDTH]);
    let none = model.scalar(0_i32);
    let weights = vec![1.0 / WIDTH as f32; (WIDTH * WIDTH) as usize];
    let weights = model.constant(TensorType::float32(&[WIDTH, WIDTH]), &weights);
    let bias = model.constant(TensorType::float32(&[WIDTH]), &[0.0_f32; WIDTH as usize]);
    let mut last = model.input(tensor());
    for layer in 1..=LAYERS {
        let product = model.temporary(tensor());
        model.operation(
            OperationType::FULLY_CONNECTED,
            &[last, weights, bias, none],
            &[product],
        );
        let clamped = model.temporary(tensor());
        model.operation(OperationType::RELU, &[product], &[clamped]);
        let sum = match layer {
            LAYERS => model.output(tensor()),
            _ => model.temporary(tensor()),
        };
        model.operation(OperationType::ADD, &[clamped, last, none], &[sum]);
        last = sum;
    }
    Ok((model.finish()?, (1 << LAYERS) as f32))
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}\n{:<10} {:<10} {:>10} {:>10} {:>9}",
            self.conditions, "model", "way", "p50", "p99", "x closed"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<10} {:<10} {:>10} {:>10} {:>9.3}",
                row.model,
                row.way,
                duration(row.p50_ns),
                duration(row.p99_ns),
                row.ratio_p50
            )?;
        }
        Ok(())
    }
}
