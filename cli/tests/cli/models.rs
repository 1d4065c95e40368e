//! Real models give their recorded outputs, by every path.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::common::{Surroundings, shared};

fn manifest(folder: &Path) -> serde_json::Map<String, Value> {
    let manifest = std::fs::read(folder.join("MANIFEST.json")).unwrap();
    serde_json::from_slice(&manifest).unwrap()
}

/// The models that must work before all others, by folder.
fn models(folder: &Path) -> Vec<String> {
    manifest(folder)
        .into_iter()
        .filter(|(_, entry)| entry["first"] == true)
        .map(|(name, _)| name)
        .collect()
}

fn run_arguments(folder: &Path, (path, device): (&str, &str)) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["run".into(), folder.join("model.tflite").into()];
    for (option, prefix) in [("--input", "input"), ("--expect", "output")] {
        let files = (0..).map(|index| folder.join(format!("{prefix}_{index}.npy")));
        for file in files.take_while(|file| file.exists()) {
            arguments.extend([option.into(), file.into()]);
        }
    }
    arguments.extend(["--path", path, "--device", device].map(OsString::from));
    arguments
}

/// Does some work for each of these, two at a time.
fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
}

/// Integers exactly on the reference device, at most one off on the other; floats within 1e-5 + 1e-4 of the
/// value, within a thousandth of the range where weights are 16-bit floats.
fn every_model_gives_its_outputs(path: &str, device: &str) {
    let Some(folder) = shared("models") else { return };
    let models = models(&folder);
    assert!(
        models.len() >= 8,
        "the collection of models is not whole: {models:?}"
    );
    let here = Surroundings::new();
    let failures = Mutex::new(Vec::new());
    for_each(&models, |model| {
        let outcome = here.run(run_arguments(&folder.join(model), (path, device)));
        println!("{model} by {path}:\n{}{}", outcome.stdout, outcome.stderr);
        if outcome.code != Some(0) {
            let failure = format!("{model}: {}", outcome.stderr.trim());
            failures.lock().unwrap().push(failure);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "by {path}:\n{}", failures.join("\n"));
}

#[test]
fn models_give_their_outputs_in_process() {
    every_model_gives_its_outputs("in-process", "nnhal-reference");
}

#[test]
fn models_give_their_outputs_by_sync() {
    every_model_gives_its_outputs("sync", "nnhal-reference");
}

#[test]
fn models_give_their_outputs_by_burst() {
    every_model_gives_its_outputs("burst", "nnhal-reference");
}

#[test]
fn models_give_their_outputs_by_burst_on_the_fast_device() {
    every_model_gives_its_outputs("burst", "nnhal-cpu");
}

/// What users are told of models on `nnhal-cpu`.
const PAGE: &str = include_str!("../../../docs/accuracy.md");

/// How far outputs of a model are from those that were recorded.
#[derive(Debug)]
struct Difference {
    model: String,
    /// The outputs' types, each once.
    types: Vec<String>,
    /// Whether they are floats; integers otherwise.
    is_float: bool,
    largest: f64,
}

impl Difference {
    /// That of a model on `nnhal-cpu`, which is within what is allowed.
    fn of(here: &Surroundings, folder: &Path, (model, entry): &(String, Value)) -> Difference {
        let mut arguments = run_arguments(&folder.join(model), ("in-process", "nnhal-cpu"));
        arguments.push("--json".into());
        let report = here.run(arguments).succeeds().json();
        let outputs = report["expectations"].as_array().unwrap();
        let errors = outputs
            .iter()
            .map(|output| output["maximum_error"].as_f64().unwrap());
        let mut types: Vec<String> = entry["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["dtype"].as_str().unwrap().to_owned())
            .collect();
        types.dedup();
        let is_float = types.iter().any(|ty| ty.starts_with("float"));
        assert!(!is_float || types.len() == 1, "{model} has outputs of {types:?}");
        Difference {
            model: model.clone(),
            types,
            is_float,
            largest: errors.fold(0.0, f64::max),
        }
    }

    /// The row of the page, but for its last column.
    fn begins(&self) -> String {
        format!("| `{}` | {} | ", self.model, self.types.join(", "))
    }

    /// What the last column is to say.
    fn claim(&self) -> String {
        match self.largest {
            largest if self.is_float => format!("{largest:.1e}"),
            0.0 => "the same".to_owned(),
            largest => format!("at most {largest} off"),
        }
    }

    /// What is wrong with the page's row: of integers it is to say what was found, of floats a number that is
    /// no smaller, for other vectors sum in another order.
    fn complaint(&self) -> Option<String> {
        let begins = self.begins();
        let row = PAGE
            .lines()
            .find_map(|line| line.strip_prefix(&begins)?.strip_suffix(" |"));
        let is_right = row.is_some_and(|claim| match self.is_float {
            true => claim.parse().is_ok_and(|claim: f64| self.largest <= claim),
            false => claim == self.claim(),
        });
        (!is_right).then(|| format!("{begins}{} |, but docs/accuracy.md says {row:?}", self.claim()))
    }
}

/// Prints the rows as they were found; docs/accuracy.md says how to have them printed.
#[test]
fn models_on_the_fast_device_are_as_far_off_as_the_documentation_says() {
    let Some(folder) = shared("models") else { return };
    let models: Vec<_> = manifest(&folder).into_iter().collect();
    assert!(models.len() >= 20, "the collection of models is not whole");
    let here = Surroundings::new();
    let found = Mutex::new(Vec::new());
    for_each(&models, |model| {
        let difference = Difference::of(&here, &folder, model);
        found.lock().unwrap().push(difference);
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by(|one, other| one.model.cmp(&other.model));
    for difference in &found {
        println!("{}{} |", difference.begins(), difference.claim());
    }
    let complaints: Vec<String> = found.iter().filter_map(Difference::complaint).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// States lie in buffers of the device, two for each: an odd number of calls ends with the second ones.
#[test]
fn states_begin_anew_whichever_buffers_they_were_left_in() {
    let Some(folder) = shared("models") else { return };
    let here = Surroundings::new();
    for path in ["sync", "burst"] {
        let mut arguments = run_arguments(&folder.join("mlts_tts_float"), (path, "nnhal-cpu"));
        arguments.extend(["--iterations", "3"].map(OsString::from));
        let outcome = here.run(arguments);
        assert!(outcome.stdout.contains("(15 calls)"), "{}", outcome.stdout);
        assert_eq!(outcome.code, Some(0), "by {path}: {}", outcome.stderr);
    }
}
