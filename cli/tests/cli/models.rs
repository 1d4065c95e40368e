//! Real models give their recorded outputs, by every path.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Surroundings, shared};

/// The models that must work before all others, by folder.
fn models(folder: &Path) -> Vec<String> {
    let manifest = std::fs::read(folder.join("MANIFEST.json")).unwrap();
    let manifest: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    manifest
        .into_iter()
        .filter(|(_, entry)| entry["first"] == true)
        .map(|(name, _)| name)
        .collect()
}

fn run_arguments(folder: &Path, path: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["run".into(), folder.join("model.tflite").into()];
    for (option, prefix) in [("--input", "input"), ("--expect", "output")] {
        let files = (0..).map(|index| folder.join(format!("{prefix}_{index}.npy")));
        for file in files.take_while(|file| file.exists()) {
            arguments.extend([option.into(), file.into()]);
        }
    }
    arguments.extend(["--path", path, "--device", "nnhal-reference"].map(OsString::from));
    arguments
}

fn every_model_gives_its_outputs(path: &str) {
    let Some(folder) = shared("models") else { return };
    let models = models(&folder);
    assert!(
        models.len() >= 8,
        "the collection of models is not whole: {models:?}"
    );
    let here = Surroundings::new();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(model) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = here.run(run_arguments(&folder.join(model), path));
            println!("{model} by {path}:\n{}{}", outcome.stdout, outcome.stderr);
            if outcome.code != Some(0) {
                let failure = format!("{model}: {}", outcome.stderr.trim());
                failures.lock().unwrap().push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "by {path}:\n{}", failures.join("\n"));
}

#[test]
fn models_give_their_outputs_in_process() {
    every_model_gives_its_outputs("in-process");
}

#[test]
fn models_give_their_outputs_by_sync() {
    every_model_gives_its_outputs("sync");
}

#[test]
fn models_give_their_outputs_by_burst() {
    every_model_gives_its_outputs("burst");
}

/// States lie in buffers of the device, two for each: an odd number of calls ends with the second ones.
#[test]
fn states_begin_anew_whichever_buffers_they_were_left_in() {
    let Some(folder) = shared("models") else { return };
    let here = Surroundings::new();
    for path in ["sync", "burst"] {
        let mut arguments = run_arguments(&folder.join("mlts_tts_float"), path);
        arguments.extend(["--iterations", "3"].map(OsString::from));
        let outcome = here.run(arguments);
        assert!(outcome.stdout.contains("(15 calls)"), "{}", outcome.stdout);
        assert_eq!(outcome.code, Some(0), "by {path}: {}", outcome.stderr);
    }
}
