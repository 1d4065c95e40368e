//! Random models give one result by every path to a device, which is the one that its kernels give in this
//! process.

use crate::common::Surroundings;

/// Models for each device and kind of memory; the command runs as many as it is told.
const MODELS: &str = "300";

/// Synchronous, by burst, asynchronous and fenced, where a second execution waits for the first one's fence
/// (G01, G08).
fn every_path_gives_one_result(device: &str, memory: &str, seed: &str) {
    let here = Surroundings::new();
    let outcome = here
        .run([
            "vts", "--random", MODELS, "--seed", seed, "--device", device, "--memory", memory, "--json",
        ])
        .succeeds();
    let report = outcome.json();
    assert_eq!(report["device"], device);
    let forms = ["synchronous", "burst", "asynchronous", "fenced"];
    assert_eq!(report["forms"], serde_json::json!(forms));
    assert_eq!(report["counterexample"], serde_json::Value::Null);
    let models = report["models"].as_u64().unwrap();
    assert!(models > 250, "only {models} models");
}

#[test]
fn random_models_give_one_result_by_every_path_to_the_reference_device() {
    every_path_gives_one_result("nnhal-reference", "shared", "0");
}

#[test]
fn random_models_give_one_result_by_every_path_to_the_fast_device() {
    every_path_gives_one_result("nnhal-cpu", "shared", "1000");
}

/// G07: arguments in device buffers of every role that takes them.
#[test]
fn random_models_give_one_result_in_device_buffers() {
    every_path_gives_one_result("nnhal-cpu", "device", "2000");
}

#[test]
fn random_models_are_told_apart_from_a_corpus() {
    let here = Surroundings::new();
    for wrong in [
        &["vts", "--random", "0"][..],
        &["vts", "--random", "1", "--corpus", "."],
        &["vts", "--corpus", ".", "--seed", "3"],
        &["vts", "--random", "1", "--require-all"],
    ] {
        let outcome = here.run(wrong);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    }
}
