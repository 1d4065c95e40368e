//! `nnhal vts`: the conformance corpus, or random models, against a device.

use std::io::Write as _;
use std::path::Path as FilePath;
use std::sync::Mutex;

use indicatif::ProgressBar;
use nnhal_conformance::corpus::Corpus;
use nnhal_conformance::implementation::{Form, Implementation};
use nnhal_conformance::procedure::Outcome;
use nnhal_conformance::report::{CaseReport, Counts, Tally};
use nnhal_conformance::runner::{self, Observer, RunError, Selection};
use serde::Serialize;

use crate::arguments::{Path, VtsArguments};
use crate::error::Error;
use crate::progress;
use crate::random_models;
use crate::under_test::{self, Subject, Task};

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

/// Runs what the arguments ask for and reports; a case or a model that fails is an error.
pub(crate) fn run(arguments: &VtsArguments) -> Result<(), Error> {
    match (&arguments.corpus, arguments.random) {
        (Some(corpus), _) => run_corpus(arguments, corpus),
        (None, Some(count)) => random_models::run(arguments, count, &forms(&paths(arguments))),
        (None, None) => Err(Error::Result("neither --corpus nor --random is given".into())),
    }
}

/// The paths that are asked for.
fn paths(arguments: &VtsArguments) -> Vec<Path> {
    match (arguments.path, arguments.random) {
        (Some(path), _) => vec![path],
        (None, None) => vec![Path::Sync, Path::Burst],
        (None, Some(_)) => vec![Path::Sync, Path::Burst, Path::Async, Path::Fenced],
    }
}

/// How a driver executes by these paths; none if they lead to no driver.
fn forms(paths: &[Path]) -> Vec<Form> {
    paths.iter().filter_map(|path| form(*path)).collect()
}

fn run_corpus(arguments: &VtsArguments, corpus: &FilePath) -> Result<(), Error> {
    let corpus = Corpus::open(corpus).map_err(RunError::from)?;
    let selection = Selection {
        name: arguments.filter.clone(),
        operation: None,
    };
    let paths = paths(arguments);
    let forms = forms(&paths);
    let watcher = Watcher {
        bar: progress::bar(corpus.files.len() as u64, "conformance"),
        prints: !arguments.json,
        remarks: Mutex::default(),
    };
    let task = CorpusTask {
        corpus: &corpus,
        selection: &selection,
        threads: usize::from(arguments.jobs),
        watcher: &watcher,
    };
    let (device, tally) = under_test::with_subject(arguments, &forms, task)?;
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
            memory: under_test::memory(arguments)?.name(),
            tally: &tally,
            failures: remarks.failures,
            skips: remarks.skips,
        },
    )?;
    verdict(tally.total, arguments.require_all)
}

/// Takes the corpus through its procedures.
struct CorpusTask<'a> {
    corpus: &'a Corpus,
    selection: &'a Selection,
    threads: usize,
    watcher: &'a Watcher,
}

impl Task for CorpusTask<'_> {
    /// The subject's name, and what became of the cases.
    type Output = (String, Tally);

    fn run<I: Implementation>(
        self,
        subject: &Subject,
        make: impl Fn() -> Result<I, String> + Sync,
    ) -> Result<(String, Tally), Error> {
        let tally = runner::run(self.corpus, self.selection, self.threads, make, self.watcher)?;
        Ok((subject.name.clone(), tally))
    }
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
    let total = report.tally.total;
    if json {
        super::print_json(report)?;
        // What follows the document would make it none.
        writeln!(std::io::stderr(), "{total}")?;
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{}", report.tally.table())?;
    writeln!(out, "{total}")?;
    Ok(())
}

/// Whether a run is a success; `require_all` takes a skipped case for a failure.
fn verdict(total: Counts, require_all: bool) -> Result<(), Error> {
    if total.failed > 0 {
        return Err(Error::Result(format!(
            "{} conformance cases failed",
            total.failed
        )));
    }
    if require_all && total.skipped > 0 {
        return Err(Error::Result(format!(
            "{} conformance cases were skipped, --require-all wants every one to pass",
            total.skipped
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

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u32, failed: u32, skipped: u32) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn skipped_cases_fail_a_run_that_requires_all() {
        assert!(verdict(counts(3, 0, 1), false).is_ok());
        let error = verdict(counts(3, 0, 1), true).unwrap_err().to_string();
        assert!(error.contains("1 conformance cases were skipped"), "{error}");
        assert!(verdict(counts(3, 0, 0), true).is_ok());
    }

    #[test]
    fn failed_case_or_no_case_fails_every_run() {
        for require_all in [false, true] {
            assert!(verdict(counts(3, 1, 0), require_all).is_err());
            assert!(verdict(counts(0, 0, 0), require_all).is_err());
        }
    }
}
