//! Random models on a device: every path to it gives what the same kernels give in this process, and what the
//! reference kernels give, as far as arithmetic may differ.

use std::ops::Range;

use indicatif::ProgressBar;
use nnhal_client::Devices;
use nnhal_conformance::generator::property::{self, Counterexample, Verdict};
use nnhal_conformance::generator::{Generated, Recipe};
use nnhal_conformance::implementation::{Form, Implementation};
use nnhal_conformance::in_process::InProcess;
use nnhal_cpu::KernelSet;
use serde::Serialize;

use crate::arguments::{MemoryKind, VtsArguments};
use crate::commands::print_json;
use crate::device_under_test::DeviceUnderTest;
use crate::driver;
use crate::error::Error;
use crate::in_process::Kernels;
use crate::progress;

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

/// Runs the models of `count` seeds in each of these forms; a model with another result by any of them is an error.
/// Without forms, the models run in this process only.
pub(crate) fn run(arguments: &VtsArguments, count: u64, forms: &[Form]) -> Result<(), Error> {
    let first = arguments.seed;
    let end = first
        .checked_add(count)
        .ok_or_else(|| Error::Result(format!("there are no {count} seeds from {first} on")))?;
    let bar = progress::bar(count, "random models");
    let (device, found) = if forms.is_empty() {
        let kernels = Kernels::of_device(arguments.device.as_deref())?;
        let found = search_in_process(kernels, first..end, &bar);
        (kernels.device.to_owned(), found)
    } else {
        let devices = driver::devices()?;
        // Opened once for all, so that an unknown name fails before anything runs, and one private driver serves.
        let device = driver::device(&devices, arguments.device.as_deref())?;
        let subject = Subject {
            devices: &devices,
            kernels: Kernels::of_device(Some(device.name()))?,
            forms,
            memory: arguments.memory,
        };
        let found = search_on_threads(&subject, first..end, u64::from(arguments.jobs), &bar)?;
        (device.name().to_owned(), found)
    };
    let models = bar.position();
    bar.finish_and_clear();
    let report = Report {
        device,
        forms: forms.iter().map(Form::to_string).collect(),
        memory: arguments.memory.name(),
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

/// What the models run on.
struct Subject<'a> {
    devices: &'a Devices,
    kernels: Kernels,
    forms: &'a [Form],
    memory: MemoryKind,
}

/// Searches on so many connections, each with its share of the seeds.
fn search_on_threads(
    subject: &Subject<'_>,
    seeds: Range<u64>,
    threads: u64,
    bar: &ProgressBar,
) -> Result<Option<Counterexample>, Error> {
    let share = (seeds.end - seeds.start).div_ceil(threads.max(1)).max(1);
    let parts: Vec<Range<u64>> = (0..threads)
        .map_while(|part| {
            let first = seeds.start.checked_add(part.checked_mul(share)?)?;
            (first < seeds.end).then(|| first..first.saturating_add(share).min(seeds.end))
        })
        .collect();
    let found = std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(|| search_on_device(subject, part, bar)))
            .collect();
        running
            .into_iter()
            .map(|part| {
                let ended = part.join();
                ended.unwrap_or_else(|_| Err(Error::Result("the search itself panicked".into())))
            })
            .collect::<Result<Vec<_>, Error>>()
    })?;
    Ok(found.into_iter().flatten().next())
}

fn search_on_device(
    subject: &Subject<'_>,
    seeds: Range<u64>,
    bar: &ProgressBar,
) -> Result<Option<Counterexample>, Error> {
    let name = subject.kernels.device;
    let mut device = DeviceUnderTest::open(subject.devices, name, subject.forms, subject.memory)?;
    let mut same = InProcess::new(subject.kernels.set);
    Ok(search(seeds, bar, |generated| {
        let verdict = property::same_result_by_every_path(&mut same, &mut device, generated);
        // The device's bytes are those of the same kernels here, which save it another preparation.
        and_agrees(verdict, subject.kernels, &mut same, generated)
    }))
}

fn search_in_process(kernels: Kernels, seeds: Range<u64>, bar: &ProgressBar) -> Option<Counterexample> {
    let mut subject = InProcess::new(kernels.set);
    search(seeds, bar, |generated| {
        let verdict = property::one_result_by_every_path(&mut subject, generated);
        and_agrees(verdict, kernels, &mut subject, generated)
    })
}

/// A verdict, and if it is good whether kernels that are not the reference's own agree with them.
fn and_agrees(
    verdict: Verdict,
    kernels: Kernels,
    subject: &mut impl Implementation,
    generated: &Generated,
) -> Verdict {
    if verdict != Verdict::Kept || kernels.set == KernelSet::Reference {
        return verdict;
    }
    property::agrees_with(&mut InProcess::new(KernelSet::Reference), subject, generated)
}

/// Counts the models that are tried, not those that a counterexample is shrunk by.
fn search(
    seeds: Range<u64>,
    bar: &ProgressBar,
    mut property: impl FnMut(&Generated) -> Verdict,
) -> Option<Counterexample> {
    let mut is_shrinking = false;
    property::search(&Recipe::default(), seeds, |generated, _| {
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
    use nnhal::wire::OperationSupport;
    use nnhal_conformance::generator::choices::Choices;
    use nnhal_conformance::implementation::{
        Answer, Breakdown, ExecutionAnswer, ExecutionCall, ModelWithPools, PreparedModel,
    };
    use nnhal_conformance::in_process::InProcessModel;

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
        let fast = Kernels::of_device(Some(Kernels::FAST)).unwrap();
        let recipe = Recipe::default();
        let wrong = (0..50)
            .filter_map(|seed| recipe.generate(&mut Choices::from_seed(seed)))
            .filter(|generated| {
                let mut subject = Wrong(InProcess::new(fast.set));
                let by_paths = property::one_result_by_every_path(&mut subject, generated);
                assert_eq!(by_paths, Verdict::Kept);
                and_agrees(by_paths, fast, &mut subject, generated) != Verdict::Kept
            });
        let wrong = wrong.count();
        assert!(wrong > 40, "{wrong} of 50");
    }
}
