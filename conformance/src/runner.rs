//! Runs a corpus, or what is selected of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::Regex;

use crate::corpus::{Case, Corpus, CorpusError, Specification};
use crate::implementation::Implementation;
use crate::procedure::{self, Outcome};
use crate::report::{CaseReport, Tally};

/// Which cases to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only those whose name matches.
    pub name: Option<Regex>,
    /// Only those in which this operation occurs.
    pub operation: Option<String>,
}

impl Selection {
    fn takes(&self, case: &Case) -> bool {
        let name = self.name.as_ref().is_none_or(|regex| regex.is_match(&case.name));
        let operation = self.operation.as_ref();
        name && operation.is_none_or(|operation| case.operations().contains(operation.as_str()))
    }
}

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The corpus cannot be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The implementation cannot be had.
    #[error("{0}")]
    Implementation(String),
}

/// Told of what happens during a run, from several threads.
pub trait Observer: Sync {
    /// A case has ended.
    fn case(&self, report: &CaseReport);

    /// All cases of a file have ended.
    fn file(&self, path: &Path) {
        let _ = path;
    }
}

/// An observer that wants to know nothing.
impl Observer for () {
    fn case(&self, _: &CaseReport) {}
}

/// Runs the selected cases of all files, on as many threads as `implementations` holds: each has its own.
///
/// # Errors
/// A file cannot be read, or an implementation cannot be made.
pub fn run<I, M>(
    corpus: &Corpus,
    selection: &Selection,
    threads: usize,
    make: M,
    observer: &dyn Observer,
) -> Result<Tally, RunError>
where
    I: Implementation,
    M: Fn() -> Result<I, String> + Sync,
{
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    let work = || -> Result<(), RunError> {
        let mut implementation = make().map_err(RunError::Implementation)?;
        while let Some(path) = corpus.files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let specification = Specification::read(path)?;
            for case in specification.cases.iter().filter(|case| selection.takes(case)) {
                let report = CaseReport {
                    name: case.name.clone(),
                    operations: case.operations().into_iter().map(str::to_owned).collect(),
                    outcome: run_case(&mut implementation, &specification, case),
                };
                observer.case(&report);
                tally
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .add(&report);
            }
            observer.file(path);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(tally
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A panic is a failure of its case like any other.
fn run_case<I: Implementation>(
    implementation: &mut I,
    specification: &Specification,
    case: &Case,
) -> Outcome {
    let run = AssertUnwindSafe(|| procedure::run(implementation, specification, case));
    match panics::recorded(run) {
        Ok(outcome) => outcome,
        Err(reason) => Outcome::Failed { reason },
    }
}

/// Panics as text, place included, instead of on standard error.
mod panics {
    use super::{AssertUnwindSafe, catch_unwind};
    use std::cell::RefCell;
    use std::sync::Once;

    thread_local! {
        /// `Some` while the thread runs a case; then what its panic said.
        static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    pub(super) fn recorded<T>(run: AssertUnwindSafe<impl FnOnce() -> T>) -> Result<T, String> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let in_case =
                    SAID.with_borrow_mut(|said| said.as_mut().map(|said| *said = info.to_string()).is_some());
                if !in_case {
                    before(info);
                }
            }));
        });
        SAID.set(Some(String::new()));
        let result = catch_unwind(run);
        let said = SAID.take().unwrap_or_default();
        result.map_err(|_| said)
    }
}
