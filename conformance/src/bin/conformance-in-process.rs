//! Runs the conformance corpus against the executor in this process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use nnhal_conformance::corpus::Corpus;
use nnhal_conformance::in_process::InProcess;
use nnhal_conformance::procedure::Outcome;
use nnhal_conformance::ratchet::Ratchet;
use nnhal_conformance::report::CaseReport;
use nnhal_conformance::runner::{self, Observer, Selection};
use nnhal_cpu::KernelSet;
use regex::Regex;

/// Runs the conformance corpus against the executor in this process.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only cases whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    /// Only cases in which this operation occurs, such as CONV_2D.
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Where the corpus is.
    #[arg(long, value_name = "DIR", default_value_os_t = Corpus::default_root())]
    corpus: PathBuf,
    /// Use the fast kernels where there are any.
    #[arg(long)]
    fast: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Also name the cases that pass or are skipped.
    #[arg(long)]
    verbose: bool,
    /// At most this many failures are printed.
    #[arg(long, default_value_t = 100)]
    failures: usize,
    /// Write the passed counts to the ratchet file, if none has fallen. Needs a run of all cases.
    #[arg(long, conflicts_with_all = ["filter", "op", "fast"])]
    record: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let corpus = Corpus::open(&arguments.corpus).map_err(|error| error.to_string())?;
    let kernels = if arguments.fast {
        KernelSet::Fast
    } else {
        KernelSet::Reference
    };
    let selection = Selection {
        name: arguments.filter.clone(),
        operation: arguments.op.clone(),
    };
    let printer = Printer {
        verbose: arguments.verbose,
        failures_left: Mutex::new(arguments.failures),
    };
    let tally = runner::run(
        &corpus,
        &selection,
        arguments.threads,
        || Ok(InProcess::new(kernels)),
        &printer,
    )
    .map_err(|error| error.to_string())?;
    print!("{}", tally.table());
    println!("{}", tally.total);
    if arguments.record {
        record(&Ratchet::of(&tally))?;
    }
    Ok(tally.total.failed == 0)
}

fn record(now: &Ratchet) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("passed.txt");
    let before = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let before = Ratchet::parse(&before).map_err(|error| format!("{}: {error}", path.display()))?;
    let fallen = now.fallen_since(&before);
    if !fallen.is_empty() {
        return Err(format!("not recorded: {}", fallen.join("; ")));
    }
    std::fs::write(&path, now.to_text()).map_err(|error| format!("{}: {error}", path.display()))
}

struct Printer {
    verbose: bool,
    failures_left: Mutex<usize>,
}

impl Observer for Printer {
    fn case(&self, report: &CaseReport) {
        match &report.outcome {
            Outcome::Failed { reason } => {
                let mut left = self
                    .failures_left
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                if *left > 0 {
                    *left -= 1;
                    println!("FAILED  {}: {reason}", report.name);
                }
            }
            Outcome::Passed if self.verbose => println!("passed  {}", report.name),
            Outcome::Skipped { reason } if self.verbose => println!("skipped {}: {reason}", report.name),
            _ => {}
        }
    }
}
