//! Holds the executor in this process to properties over random models.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use nnhal_conformance::coupling;
use nnhal_conformance::generator::float_equivalent::{agrees_with_equivalent, float_equivalent};
use nnhal_conformance::generator::property::{self, Counterexample, Verdict};
use nnhal_conformance::generator::{Recipe, mutation};
use nnhal_conformance::in_process::InProcess;
use nnhal_cpu::KernelSet;
use nnhal_hal::OperationType;

/// Holds the executor in this process to properties over random models.
#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed; a seed that failed is tried again with `--seed SEED --count 1`.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Only models of this one operation, such as CONV_2D or TFLITE_GELU.
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Only operations of NNAPI; otherwise also those of the extension org.nnhal.tflite.
    #[arg(long)]
    nnapi: bool,
    /// What must hold.
    #[arg(long, value_enum, default_value_t = Property::All)]
    property: Property,
    /// Threads; each takes a part of the seeds.
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Property {
    /// Valid models are supported, prepared and give one result by every path.
    Valid,
    /// The fast kernels give what the reference kernels give, within the accuracy rules.
    Fast,
    /// Single operations on quantised values give what they give for floats, within the accuracy rules.
    Floats,
    /// Models of unsigned bytes and their signed twins give outputs that are exactly 128 apart.
    Coupled,
    /// Models with one rule broken are refused.
    Broken,
    /// Models with anything changed do not crash.
    Changed,
    /// All of these.
    All,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(counterexample)) => {
            println!("{counterexample}");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Option<Counterexample>, String> {
    let recipe = match &arguments.op {
        None if arguments.nnapi => Recipe::default(),
        None => Recipe::with_extension(),
        Some(name) => OperationType::from_name(name)
            .and_then(Recipe::single)
            .ok_or_else(|| format!("the operation table has no {name}"))?,
    };
    // Panics are caught and reported with their model; where they were, only the hook is told.
    let last_panic = Arc::new(Mutex::new(None));
    let told = Arc::clone(&last_panic);
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        *told.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }));
    let started = Instant::now();
    let threads = arguments.threads.max(1);
    let share = arguments.count.div_ceil(threads);
    let found = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                let first = arguments.seed + part * share;
                let end = (first + share).min(arguments.seed + arguments.count);
                let (recipe, property) = (&recipe, arguments.property);
                scope.spawn(move || search(recipe, first..end, property))
            })
            .collect();
        parts
            .into_iter()
            .map(|part| part.join().map_err(|_| "the search itself panicked".to_owned()))
            .collect::<Result<Vec<_>, String>>()
    })?;
    println!(
        "{} seeds from {} in {:.1} s",
        arguments.count,
        arguments.seed,
        started.elapsed().as_secs_f64()
    );
    if let Some(place) = &*last_panic.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("the last panic was at {place}");
    }
    Ok(found.into_iter().flatten().next())
}

fn search(recipe: &Recipe, seeds: std::ops::Range<u64>, wanted: Property) -> Option<Counterexample> {
    let wants = |property| wanted == Property::All || wanted == property;
    property::search(recipe, seeds, |generated, choices| {
        let mut verdict = Verdict::Kept;
        if wants(Property::Valid) {
            verdict = property::one_result_by_every_path(&mut InProcess::default(), generated);
        }
        if wants(Property::Fast) && verdict == Verdict::Kept {
            verdict = property::agrees_with(
                &mut InProcess::new(KernelSet::Reference),
                &mut InProcess::new(KernelSet::Fast),
                generated,
            );
        }
        if wants(Property::Floats)
            && verdict == Verdict::Kept
            && let Some(equivalent) = float_equivalent(generated)
        {
            verdict = agrees_with_equivalent(
                &mut InProcess::new(KernelSet::Reference),
                &mut InProcess::default(),
                generated,
                &equivalent,
            );
        }
        if wants(Property::Coupled)
            && verdict == Verdict::Kept
            && let Some(twin) = coupling::signed_twin(generated)
        {
            verdict = property::are_coupled(&mut InProcess::default(), generated, &twin);
        }
        if wants(Property::Broken) && verdict == Verdict::Kept {
            let (broken, how) = mutation::break_rule(generated, choices);
            verdict = match property::is_refused(&mut InProcess::default(), &broken) {
                Verdict::Broken(message) => Verdict::Broken(format!("{how}: {message}")),
                Verdict::Kept => Verdict::Kept,
            };
        }
        if wants(Property::Changed) && verdict == Verdict::Kept {
            let changed = mutation::change(generated, choices);
            verdict = property::does_not_crash(&mut InProcess::default(), &changed);
        }
        verdict
    })
}
