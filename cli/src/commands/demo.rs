//! `nnhal demo`: handwritten digits on an isolated driver.

use std::io::Write as _;

use crate::accuracy::Circumstances;
use crate::arguments::{DemoArguments, Path};
use crate::comparison;
use crate::digits::{Digits, FLOAT, INT8, Score};
use crate::driver;
use crate::error::Error;
use crate::in_process::{InProcess, Kernels};
use crate::latency::{Latencies, Summary};
use crate::present;
use crate::progress;
use crate::session::{Session, Subject};

/// The ways that are compared.
const PATHS: [Path; 3] = [Path::InProcess, Path::Sync, Path::Burst];

/// Classifies the images, measures latencies, and tells which processes took part.
pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Error> {
    let devices = driver::devices()?;
    let device = driver::device(&devices, None)?;
    let circumstances = Circumstances {
        is_reference_device: device.name() == Kernels::REFERENCE,
        has_float16_weights: false,
    };
    let processes = driver::processes(&device);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "handwritten digits on {}, by burst to process {} of its driver",
        device.info().name,
        processes.worker.unwrap_or_default()
    )?;
    let mut wrong = Vec::new();
    for files in [FLOAT, INT8] {
        let digits = Digits::load(files)?;
        let subject = driver::subject(&device, &digits.model.model, Path::Burst)?;
        let score = digits.classify(&mut Session::new(&digits.model, subject), circumstances)?;
        writeln!(
            out,
            "  {}: {} of {} images recognised",
            digits.name, score.right, score.images
        )?;
        wrong.extend(deviations(&score));
    }
    writeln!(
        out,
        "\nlatency of one image   {:>10} {:>10} {:>10} {:>10}",
        "float p50", "p99", "int8 p50", "p99"
    )?;
    let table = measure_all(&device, arguments.calls)?;
    for (path, [float, int8]) in PATHS.iter().zip(table) {
        let name = match path {
            Path::InProcess => "in-process call",
            Path::Sync => "driver, sync",
            Path::Async => "driver, async",
            Path::Fenced => "driver, fenced",
            Path::Burst => "driver, burst",
        };
        let figures = [float.p50, float.p99, int8.p50, int8.p99].map(present::microseconds);
        writeln!(
            out,
            "  {name:20} {:>10} {:>10} {:>10} {:>10}",
            figures[0], figures[1], figures[2], figures[3]
        )?;
    }
    writeln!(out, "\n{processes}")?;
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::Result(format!(
        "outputs differ from the recorded ones: {}",
        wrong.join("; ")
    )))
}

/// What is beyond the accuracy rules.
fn deviations(score: &Score) -> Vec<String> {
    let beyond = score.outputs.iter().filter(|output| output.deviation.wrong > 0);
    beyond.map(comparison::line).collect()
}

/// For each path, the latencies of the float and the quantized classifier. The paths take turns, so that what
/// else happens on the machine meets all of them.
fn measure_all(device: &nnhal_client::Device, calls: u32) -> Result<Vec<[Summary; 2]>, Error> {
    const ROUNDS: u32 = 10;
    let forms = [Digits::load(FLOAT)?, Digits::load(INT8)?];
    // Another vendor's device has no kernels here; the reference's stand in.
    let kernels = Kernels::of_device(Some(device.name())).or_else(|_| Kernels::of_device(None))?;
    let mut sessions = Vec::new();
    for path in PATHS {
        for digits in &forms {
            let subject: Box<dyn Subject> = match path {
                Path::InProcess => Box::new(InProcess::new(&digits.model.model, kernels.set)?),
                path => driver::subject(device, &digits.model.model, path)?,
            };
            sessions.push((digits, Session::new(&digits.model, subject), Latencies::new()));
        }
    }
    let bar = progress::bar(u64::from(calls) * sessions.len() as u64, "measuring");
    for round in 0..ROUNDS {
        let share = calls / ROUNDS + u32::from(round < calls % ROUNDS);
        for (digits, session, latencies) in &mut sessions {
            // Whoever slept through the others' turns shall not be measured waking up.
            for image in &digits.images[..3] {
                session.call(image)?;
            }
            for (_, image) in (0..share).zip(digits.images.iter().cycle()) {
                latencies.record(session.call(image)?.1);
            }
            bar.inc(u64::from(share));
        }
    }
    bar.finish_and_clear();
    let summaries: Vec<Summary> = sessions
        .iter()
        .map(|(.., latencies)| latencies.summary())
        .collect();
    let (pairs, _) = summaries.as_chunks::<2>();
    Ok(pairs.to_vec())
}
