//! `nnhal stress`: devices that are right, that hang, and that crash.

use crate::common::{Outcome, Surroundings};
use crate::drivers::{Driver, run_in, runtime_dir};

/// Stresses a device whose executions have this fault.
fn stress_with_fault(fault: &str, more: &[&str]) -> (Surroundings, Outcome) {
    let here = Surroundings::new();
    let runtime_dir = runtime_dir(&here);
    let settings = format!("[device.nnhal-empty]\nfault = {fault:?}\n");
    let settings = here.file("settings.toml", settings.as_bytes());
    let driver = Driver::start_with(
        &here,
        &runtime_dir,
        &["--config", settings.to_str().unwrap(), "--device", "nnhal-empty"],
    );
    let parts = ["stress", "--device", "nnhal-empty", "--json"];
    let outcome = run_in(&here, &runtime_dir, &[&parts, more].concat());
    assert_eq!(driver.end(), Some(0));
    (here, outcome)
}

#[test]
fn every_case_on_a_right_device_is_a_success() {
    let here = Surroundings::new();
    let parts = [
        "stress",
        "--device",
        "nnhal-reference",
        "--cases",
        "12",
        "--jobs",
        "2",
        "--limit",
        "600",
        "--json",
    ];
    let report = here.run(parts).succeeds().json();
    assert_eq!(report["cases"], 12, "{report}");
    assert_eq!(report["outcomes"]["SUCCESS"], 12, "{report}");
    assert_eq!(report["troubles"], serde_json::json!([]));
}

#[test]
fn device_that_crashes_is_told_and_written_down_to_be_repeated() {
    let (here, outcome) =
        stress_with_fault("abort", &["--cases", "3", "--seed", "7", "--failures", "failed"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = outcome.json();
    // Cases that execute nothing, such as that of broken graphs, may be right.
    let crashes = report["outcomes"]["CRASH"].as_u64().unwrap();
    assert!(crashes > 0, "{report}");
    assert_eq!(report["outcomes"]["HANG"], 0, "{report}");
    let trouble = &report["troubles"][0];
    assert!(trouble["text"].as_str().unwrap().contains("SIGABRT"), "{report}");
    let seed = &trouble["seed"];
    let file = here.path().join(format!("failed/nnhal-empty-{seed}.json"));
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let command = format!("nnhal stress --device nnhal-empty --seed {seed} --cases 1");
    assert_eq!(written["command"], command, "{report}");
}

#[test]
fn device_that_hangs_is_told_and_the_suite_goes_on() {
    let (_here, outcome) = stress_with_fault("hang", &["--cases", "4", "--limit", "3", "--jobs", "4"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = outcome.json();
    assert_eq!(report["cases"], 4, "{report}");
    assert!(report["outcomes"]["HANG"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["outcomes"]["CRASH"], 0, "{report}");
}

#[test]
fn device_that_there_is_not_is_an_error_before_any_case() {
    let here = Surroundings::new();
    here.run(["stress", "--device", "nnhal-none", "--cases", "1"])
        .fails_saying(&["nnhal-none"]);
}
