//! `nnhal vts`: the conformance corpus against a device.

use std::io::Write as _;
use std::path::Path as FilePath;
use std::sync::Mutex;

use indicatif::ProgressBar;
use nnhal_conformance::corpus::Corpus;
use nnhal_conformance::implementation::Form;
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::procedure::Outcome;
use nnhal_conformance::report::{CaseReport, Tally};
use nnhal_conformance::runner::{self, Observer, RunError, Selection};
use serde::Serialize;

use crate::arguments::{Path, VtsArguments};
use crate::device_under_test::DeviceUnderTest;
use crate::driver;
use crate::error::Error;
use crate::in_process::Kernels;
use crate::progress;

/// Everything that is told of a run.
#[derive(Debug, Serialize)]
struct Report<'a> {
    device: &'a str,
    paths: Vec<&'static str>,
    memory: &'static str,
    #[serde(flatten)]
    tally: &'a Tally,
    failures: Vec<CaseRemark>,
    skips: Vec<CaseRemark>,
}

/// What is told of a case that did not pass.
#[derive(Clone, Debug, Serialize)]
struct CaseRemark {
    case: String,
    reason: String,
}

/// Runs the corpus and reports; a case that fails is an error.
pub(crate) fn run(arguments: &VtsArguments) -> Result<(), Error> {
    let corpus = Corpus::open(&arguments.corpus).map_err(RunError::from)?;
    let selection = Selection {
        name: arguments.filter.clone(),
        operation: None,
    };
    let paths = match arguments.path {
        None => vec![Path::Sync, Path::Burst],
        Some(path) => vec![path],
    };
    let forms: Vec<Form> = paths.iter().filter_map(|path| form(*path)).collect();
    let watcher = Watcher {
        bar: progress::bar(corpus.files.len() as u64, "conformance"),
        prints: !arguments.json,
        remarks: Mutex::default(),
    };
    let threads = usize::from(arguments.jobs);
    let (device, tally) = if forms.is_empty() {
        let kernels = Kernels::of_device(arguments.device.as_deref())?;
        let make = || Ok(InProcess::new(kernels.set));
        let tally = runner::run(&corpus, &selection, threads, make, &watcher)?;
        (kernels.device.to_owned(), tally)
    } else {
        let devices = driver::devices()?;
        // Opened once for all, so that an unknown name fails before anything runs, and one private driver serves.
        let device = driver::device(&devices, arguments.device.as_deref())?;
        let name = device.info().name.clone();
        let make = || {
            DeviceUnderTest::open(&devices, &name, &forms, arguments.memory)
                .map_err(|error| error.to_string())
        };
        let tally = runner::run(&corpus, &selection, threads, make, &watcher)?;
        (name, tally)
    };
    watcher.bar.finish_and_clear();
    let remarks = watcher
        .remarks
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    print(
        arguments.json,
        &Report {
            device: &device,
            paths: paths.into_iter().map(Path::name).collect(),
            memory: arguments.memory.name(),
            tally: &tally,
            failures: remarks.failures,
            skips: remarks.skips,
        },
    )?;
    verdict(&tally)
}

/// How a driver executes by this path.
fn form(path: Path) -> Option<Form> {
    match path {
        Path::Sync => Some(Form::Synchronous),
        Path::Burst => Some(Form::Burst),
        Path::Async => Some(Form::Asynchronous),
        Path::Fenced => Some(Form::Fenced),
        Path::InProcess => None,
    }
}

fn print(json: bool, report: &Report<'_>) -> Result<(), Error> {
    if json {
        super::print_json(report)?;
    }
    let mut out = std::io::stdout().lock();
    if !json {
        write!(out, "{}", report.tally.table())?;
    }
    writeln!(out, "{}", report.tally.total)?;
    Ok(())
}

fn verdict(tally: &Tally) -> Result<(), Error> {
    let total = tally.total;
    if total.failed > 0 {
        return Err(Error::Result(format!(
            "{} conformance cases failed",
            total.failed
        )));
    }
    if total.passed + total.skipped == 0 {
        return Err(Error::Result("no conformance case was selected".into()));
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Remarks {
    failures: Vec<CaseRemark>,
    skips: Vec<CaseRemark>,
}

/// Keeps what is worth telling, and tells failures at once.
struct Watcher {
    bar: ProgressBar,
    prints: bool,
    remarks: Mutex<Remarks>,
}

impl Observer for Watcher {
    fn case(&self, report: &CaseReport) {
        let remark = |reason: &str| CaseRemark {
            case: report.name.clone(),
            reason: reason.to_owned(),
        };
        let mut remarks = self
            .remarks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &report.outcome {
            Outcome::Passed => {}
            Outcome::Failed { reason } => {
                if self.prints {
                    // A reader who has had enough does not stop the run; its end is told at the end.
                    self.bar.suspend(|| {
                        let _ = writeln!(std::io::stdout(), "FAILED {}: {reason}", report.name);
                    });
                }
                remarks.failures.push(remark(reason));
            }
            Outcome::Skipped { reason } => remarks.skips.push(remark(reason)),
        }
    }

    fn file(&self, _: &FilePath) {
        self.bar.inc(1);
    }
}
