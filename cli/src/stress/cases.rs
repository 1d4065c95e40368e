//! Runs cases side by side and tells how they ended.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nnhal_client::Device;
use serde::Serialize;
use wait_timeout::ChildExt as _;

use super::outcome::Outcome;
use crate::arguments::StressArguments;
use crate::commands::print_json;
use crate::driver;
use crate::error::Error;

/// Of what a case says, so much is kept.
const MAX_TEXT: u64 = 64 * 1024;

/// A case that did not succeed.
#[derive(Debug, Serialize)]
struct Trouble {
    device: String,
    seed: u64,
    outcome: Outcome,
    text: String,
    /// What runs it again.
    command: String,
}

/// Everything that is told of a run.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<String>,
    first_seed: u64,
    cases: u64,
    seconds: f64,
    outcomes: BTreeMap<String, u64>,
    troubles: Vec<Trouble>,
}

/// Stresses the devices that the arguments name. Whatever is no success is an error.
pub(crate) fn run(arguments: &StressArguments) -> Result<(), Error> {
    let devices = driver::devices()?;
    let names = if arguments.device.is_empty() {
        devices.names()?
    } else {
        arguments.device.clone()
    };
    // Opened before anything runs, so that an unknown name fails at once. A private driver ends with the
    // handles.
    let opened = names
        .iter()
        .map(|name| devices.device(name))
        .collect::<Result<Vec<_>, _>>()?;
    if opened.is_empty() {
        return Err(Error::Result("there is no device to stress".into()));
    }
    let stress = Stress {
        arguments,
        devices: &opened,
        next: AtomicU64::new(0),
        started: Instant::now(),
        told: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..arguments.jobs)
            .map(|_| scope.spawn(|| stress.work()))
            .collect();
        jobs.into_iter()
            .map(|job| {
                job.join()
                    .unwrap_or_else(|_| Err(Error::Result("a job panicked".into())))
            })
            .collect::<Result<Vec<()>, Error>>()
    })?;
    tell(&stress.report()?, arguments.json)
}

/// A run over all cases.
struct Stress<'a> {
    arguments: &'a StressArguments,
    devices: &'a [Device],
    next: AtomicU64,
    started: Instant,
    told: Mutex<Told>,
}

/// What has become of the cases so far.
#[derive(Debug, Default)]
struct Told {
    outcomes: BTreeMap<String, u64>,
    troubles: Vec<Trouble>,
}

impl Stress<'_> {
    /// Runs one case after the other until the last one, or until the time is up.
    fn work(&self) -> Result<(), Error> {
        let devices = self.devices.len() as u64;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = match self.arguments.cases {
                Some(cases) => number >= cases.saturating_mul(devices),
                None => self.started.elapsed().as_secs_f64() > self.arguments.minutes * 60.0,
            };
            if is_over {
                return Ok(());
            }
            let seed = self.arguments.seed.wrapping_add(number / devices);
            // Below the number of devices.
            let device = &self.devices[(number % devices) as usize];
            let (outcome, text) = self.run_one(device, seed)?;
            self.keep(device.name(), seed, outcome, text)?;
        }
    }

    /// Runs a case in a process, which is ended when its time is up.
    fn run_one(&self, device: &Device, seed: u64) -> Result<(Outcome, String), Error> {
        let mut said = tempfile::tempfile()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([
                "stress",
                "--one",
                "--device",
                device.name(),
                "--seed",
                &seed.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?);
        if device.is_private() {
            // The case's process would start another one.
            command.env("NNHAL_RUNTIME_DIR", device.runtime_dir());
        }
        let mut child = command.spawn()?;
        let limit = Duration::from_secs(self.arguments.limit.into());
        let outcome = match child.wait_timeout(limit)? {
            Some(status) => Outcome::of_process(status),
            None => {
                child.kill()?;
                child.wait()?;
                Outcome::Hang
            }
        };
        said.rewind()?;
        let mut text = Vec::new();
        said.take(MAX_TEXT).read_to_end(&mut text)?;
        Ok((outcome, String::from_utf8_lossy(&text).trim().to_owned()))
    }

    fn keep(&self, device: &str, seed: u64, outcome: Outcome, text: String) -> Result<(), Error> {
        let mut told = self
            .told
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *told.outcomes.entry(outcome.to_string()).or_default() += 1;
        if outcome == Outcome::Success {
            return Ok(());
        }
        let trouble = Trouble {
            device: device.to_owned(),
            seed,
            outcome,
            text,
            command: format!("nnhal stress --device {device} --seed {seed} --cases 1"),
        };
        writeln!(std::io::stderr(), "{outcome}: {}", trouble.command)?;
        if let Some(folder) = &self.arguments.failures {
            write_trouble(folder, &trouble)?;
        }
        told.troubles.push(trouble);
        Ok(())
    }

    fn report(&self) -> Result<Report, Error> {
        let mut told = self
            .told
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut outcomes = std::mem::take(&mut told.outcomes);
        for outcome in Outcome::ALL {
            outcomes.entry(outcome.to_string()).or_default();
        }
        Ok(Report {
            devices: self
                .devices
                .iter()
                .map(|device| device.name().to_owned())
                .collect(),
            first_seed: self.arguments.seed,
            cases: outcomes.values().sum(),
            seconds: self.started.elapsed().as_secs_f64(),
            outcomes,
            troubles: std::mem::take(&mut told.troubles),
        })
    }
}

/// Writes a case so that it can be run again.
fn write_trouble(folder: &Path, trouble: &Trouble) -> Result<(), Error> {
    std::fs::create_dir_all(folder)?;
    let path: PathBuf = folder.join(format!("{}-{}.json", trouble.device, trouble.seed));
    let text = serde_json::to_vec_pretty(trouble).map_err(std::io::Error::from)?;
    Ok(std::fs::write(path, text)?)
}

fn tell(report: &Report, json: bool) -> Result<(), Error> {
    if json {
        print_json(report)?;
    } else {
        let mut out = std::io::stdout().lock();
        for trouble in &report.troubles {
            writeln!(out, "{} {}\n{}\n", trouble.outcome, trouble.command, trouble.text)?;
        }
        writeln!(
            out,
            "{} cases on {} in {:.0} s",
            report.cases,
            report.devices.join(", "),
            report.seconds
        )?;
        for outcome in Outcome::ALL {
            writeln!(
                out,
                "{:7} {outcome}",
                report.outcomes.get(&outcome.to_string()).unwrap_or(&0)
            )?;
        }
    }
    match report.troubles.len() {
        0 if report.cases == 0 => Err(Error::Result("no case was run".into())),
        0 => Ok(()),
        count => Err(Error::Result(format!(
            "{count} of {} cases did not succeed",
            report.cases
        ))),
    }
}
