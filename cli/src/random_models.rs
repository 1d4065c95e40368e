//! Random models on an implementation: every path to it gives one result, on a device that of the same
//! kernels in this process, and what the reference kernels give, as far as arithmetic may differ.

use std::ops::Range;

use indicatif::ProgressBar;
use nnhal_conformance::generator::property::{self, Counterexample, Verdict};
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_conformance::implementation::{Form, Implementation};
use nnhal_conformance::in_process::InProcess;
use nnhal_cpu::KernelSet;
use serde::Serialize;

use crate::arguments::VtsArguments;
use crate::commands::print_json;
use crate::error::Error;
use crate::progress;
use crate::under_test::{self, Subject, Task};

/// Everything that is told of a run.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    forms: Vec<String>,
    memory: &'static str,
    first_seed: u64,
    seeds: u64,
    /// Those of which the property was tried. Some seeds make no model.
    models: u64,
    counterexample: Option<String>,
}

/// Runs the models of `count` seeds in each of these forms; a model with another result by any of them is an
/// error. Without forms, the models run in this process only.
pub(crate) fn run(arguments: &VtsArguments, count: u64, forms: &[Form]) -> Result<(), Error> {
    let first = arguments.seed;
    let end = first
        .checked_add(count)
        .ok_or_else(|| Error::Result(format!("there are no {count} seeds from {first} on")))?;
    let bar = progress::bar(count, "random models");
    let task = SearchTask {
        seeds: first..end,
        threads: arguments.jobs.into(),
        is_nnapi: arguments.nnapi,
        bar: &bar,
    };
    let (device, found) = under_test::with_subject(arguments, forms, task)?;
    let models = bar.position();
    bar.finish_and_clear();
    let report = Report {
        device,
        forms: forms.iter().map(Form::to_string).collect(),
        memory: under_test::memory(arguments)?.name(),
        first_seed: first,
        seeds: count,
        models,
        counterexample: found.map(|found| found.to_string()),
    };
    tell(&report, arguments.json)
}

fn tell(report: &Report, json: bool) -> Result<(), Error> {
    use std::io::Write as _;
    if json {
        print_json(report)?;
    } else {
        let mut out = std::io::stdout().lock();
        if let Some(found) = &report.counterexample {
            writeln!(out, "{found}")?;
        }
        writeln!(out, "{} random models of {} seeds", report.models, report.seeds)?;
    }
    match &report.counterexample {
        Some(_) => Err(Error::Result(
            "a random model does not give one result by every path, or not that of the reference".into(),
        )),
        None if report.models == 0 => Err(Error::Result("none of the seeds makes a model".into())),
        None => Ok(()),
    }
}

/// Searches for a model that breaks a property, on so many threads, each with its share of the seeds.
struct SearchTask<'a> {
    seeds: Range<u64>,
    threads: u64,
    /// Whether there are operations of NNAPI only, also where the subject has the extension.
    is_nnapi: bool,
    bar: &'a ProgressBar,
}

impl Task for SearchTask<'_> {
    /// The subject's name, and what was found.
    type Output = (String, Option<Counterexample>);

    fn run<I: Implementation>(
        self,
        subject: &Subject,
        make: impl Fn() -> Result<I, String> + Sync,
    ) -> Result<Self::Output, Error> {
        let Range { start, end } = self.seeds;
        let share = (end - start).div_ceil(self.threads.max(1)).max(1);
        let parts: Vec<Range<u64>> = (0..self.threads)
            .map_while(|part| {
                let first = start.checked_add(part.checked_mul(share)?)?;
                (first < end).then(|| first..first.saturating_add(share).min(end))
            })
            .collect();
        let recipe = if subject.has_extension && !self.is_nnapi {
            Recipe::with_extension()
        } else {
            Recipe::default()
        };
        let work = |part| -> Result<Option<Counterexample>, Error> {
            let mut implementation = make().map_err(Error::Result)?;
            Ok(search(&recipe, part, self.bar, |generated| {
                verdict(subject, &mut implementation, generated)
            }))
        };
        let work = &work;
        let found = std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || work(part)))
                .collect();
            running
                .into_iter()
                .map(|part| {
                    let ended = part.join();
                    ended.unwrap_or_else(|_| Err(Error::Result("the search itself panicked".into())))
                })
                .collect::<Result<Vec<_>, Error>>()
        })?;
        Ok((subject.name.clone(), found.into_iter().flatten().next()))
    }
}

/// Whether a model gives one result by every path, that of the same kernels in this process where they are
/// known, and one that is close to the reference's.
pub(crate) fn verdict(
    subject: &Subject,
    implementation: &mut impl Implementation,
    generated: &Generated,
) -> Verdict {
    let by_paths = match subject.kernels {
        Some(kernels) => {
            property::same_result_by_every_path(&mut InProcess::new(kernels), implementation, generated)
        }
        None => property::one_result_by_every_path(implementation, generated),
    };
    match subject.kernels {
        _ if by_paths != Verdict::Kept => by_paths,
        Some(KernelSet::Reference) => by_paths,
        // Its bytes are those of the same kernels here, which take less time.
        Some(kernels) => agrees(&mut InProcess::new(kernels), generated),
        None => agrees(implementation, generated),
    }
}

/// Whether the reference kernels agree.
fn agrees(subject: &mut impl Implementation, generated: &Generated) -> Verdict {
    property::agrees_with(&mut InProcess::new(KernelSet::Reference), subject, generated)
}

/// Counts the models that are tried, not those that a counterexample is shrunk by.
fn search(
    recipe: &Recipe,
    seeds: Range<u64>,
    bar: &ProgressBar,
    mut property: impl FnMut(&Generated) -> Verdict,
) -> Option<Counterexample> {
    let mut is_shrinking = false;
    property::search(recipe, seeds, |generated, _| {
        let verdict = property(generated);
        if !is_shrinking {
            bar.inc(1);
        }
        is_shrinking |= verdict != Verdict::Kept;
        verdict
    })
}

#[cfg(test)]
mod tests {
    use nnhal_conformance::generator::choices::Choices;
    use nnhal_conformance::implementation::{
        Answer, Breakdown, ExecutionAnswer, ExecutionCall, ModelWithPools, PreparedModel,
    };
    use nnhal_conformance::in_process::InProcessModel;
    use nnhal_hal::OperationSupport;

    use super::*;

    /// Fast kernels that always give one thing: ones.
    struct Wrong(InProcess);

    struct WrongModel(InProcessModel);

    impl Implementation for Wrong {
        type Prepared = WrongModel;

        fn forms(&self) -> &[Form] {
            self.0.forms()
        }

        fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
            self.0.supported_operations(model)
        }

        fn prepare(&mut self, model: &ModelWithPools) -> Answer<WrongModel> {
            Ok(self.0.prepare(model)?.map(WrongModel))
        }
    }

    impl PreparedModel for WrongModel {
        fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
            let mut answer = self.0.execute(call)?;
            answer.outputs.fill(1);
            Ok(answer)
        }
    }

    #[test]
    fn results_that_are_always_the_same_are_told_from_the_reference() {
        let subject = Subject {
            name: "wrong".to_owned(),
            kernels: None,
            has_extension: false,
        };
        let recipe = Recipe::default();
        let wrong = (0..50)
            .filter_map(|seed| recipe.generate(&mut Choices::from_seed(seed)))
            .filter(|generated| {
                let mut wrong = Wrong(InProcess::new(KernelSet::Fast));
                let by_paths = property::one_result_by_every_path(&mut wrong, generated);
                assert_eq!(by_paths, Verdict::Kept);
                verdict(&subject, &mut wrong, generated) != Verdict::Kept
            });
        let wrong = wrong.count();
        assert!(wrong > 40, "{wrong} of 50");
    }
}
