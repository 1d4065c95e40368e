//! `nnhal run`.

use crate::common::{Surroundings, arguments, digits, shared};
use serde_json::json;

/// The ways through a driver and around it.
const PATHS: [&str; 3] = ["in-process", "sync", "burst"];

#[test]
fn expected_outputs_pass_by_every_path() {
    let here = Surroundings::new();
    for form in ["float", "int8"] {
        let model = digits(&format!("digits_{form}.tflite"));
        let images = digits(&format!("images_{form}.npy"));
        let expected = digits(&format!("expected_{form}.npy"));
        for path in PATHS {
            let outcome = here
                .run(arguments(&[
                    &"run",
                    &model,
                    &"--input",
                    &images,
                    &"--expect",
                    &expected,
                    &"--path",
                    &path,
                    &"--json",
                ]))
                .succeeds();
            let report = outcome.json();
            assert_eq!(report["calls"], 100);
            assert_eq!(report["path"], path);
            assert_eq!(report["expectations"][0]["wrong"], 0, "{report}");
            assert_eq!(report["expectations"][0]["elements"], 1000);
            assert_eq!(report["outputs"].as_array().unwrap().len(), 100);
        }
    }
}

/// A file with two signatures, whose inputs leave an extent open.
fn signatures() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tflite/tests/operators/signatures/model.tflite")
}

#[test]
fn signature_is_run_with_the_extents_of_the_arrays() {
    let here = Surroundings::new();
    let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
    let a = here.array("a.npy", "<f4", "(1, 3)", &bytes(&[1.0, 2.0, 3.0]));
    let b = here.array("b.npy", "<f4", "(1, 3)", &bytes(&[10.0, 20.0, 30.0]));
    let total = here.array("total.npy", "<f4", "(1, 3)", &bytes(&[11.0, 22.0, 33.0]));
    for path in PATHS {
        let outcome = here
            .run(arguments(&[
                &"run",
                &signatures(),
                &"--signature",
                &"sum",
                &"--input",
                &a,
                &"--input",
                &b,
                &"--expect",
                &total,
                &"--path",
                &path,
                &"--json",
            ]))
            .succeeds();
        let report = outcome.json();
        assert_eq!(report["expectations"][0]["elements"], 3, "{report}");
    }
    here.run(arguments(&[&"run", &signatures(), &"--signature", &"triple"]))
        .fails_saying(&["no signature \"triple\"", "sum"]);
}

#[test]
fn wrong_outputs_fail_with_the_first_of_them() {
    let here = Surroundings::new();
    let (model, images) = (digits("digits_int8.tflite"), digits("images_int8.npy"));
    let mut expected = std::fs::read(digits("expected_int8.npy")).unwrap();
    let last = expected.len() - 1;
    expected[last] ^= 1;
    let expected = here.file("expected.npy", &expected);
    let outcome = here
        .run(arguments(&[
            &"run",
            &model,
            &"--input",
            &images,
            &"--expect",
            &expected,
            &"--path",
            &"in-process",
        ]))
        .fails_saying(&["1 of 1 outputs"]);
    assert!(
        outcome
            .stdout
            .contains("1 beyond tolerance, first element 9 of call 99"),
        "{outcome:?}"
    );
}

#[test]
fn labels_name_the_most_likely_classes() {
    let here = Surroundings::new();
    let image = std::fs::read(digits("images_float.npy")).unwrap();
    let image = here.array("image.npy", "<f4", "(1, 8, 8, 1)", &image[image.len() - 256..]);
    let (model, labels) = (digits("digits_float.tflite"), digits("labels.txt"));
    let outcome = here
        .run(arguments(&[
            &"run",
            &model,
            &"--input",
            &image,
            &"--labels",
            &labels,
            &"--path",
            &"in-process",
            &"--json",
        ]))
        .succeeds();
    let classes = &outcome.json()["outputs"][0]["tensors"][0]["classes"];
    assert_eq!(classes.as_array().unwrap().len(), 5, "{classes}");
    assert!(classes[0]["score"].as_f64().unwrap() > 0.5, "{classes}");
    let names = std::fs::read_to_string(labels).unwrap();
    let class = usize::try_from(classes[0]["class"].as_u64().unwrap()).unwrap();
    assert_eq!(classes[0]["label"], json!(names.lines().nth(class)));
}

#[test]
fn processes_are_three_with_a_driver_and_one_without() {
    let here = Surroundings::new();
    let model = digits("digits_int8.tflite");
    let report = |path: &str| {
        here.run(arguments(&[&"run", &model, &"--path", &path, &"--json"]))
            .succeeds()
            .json()
    };
    let processes = &report("sync")["processes"];
    let ids = ["client", "supervisor", "worker"].map(|role| processes[role].as_u64().unwrap());
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "{processes}"
    );
    assert_eq!(report("in-process")["processes"]["worker"], json!(null));
}

#[test]
fn iterations_repeat_all_calls() {
    let here = Surroundings::new();
    let (model, images) = (digits("digits_int8.tflite"), digits("images_int8.npy"));
    let outcome = here
        .run(arguments(&[
            &"run",
            &model,
            &"--input",
            &images,
            &"--iterations",
            &"3",
            &"--path",
            &"in-process",
            &"--json",
        ]))
        .succeeds();
    let report = outcome.json();
    assert_eq!(report["latency_us"]["count"], 300);
    assert_eq!(report["outputs"].as_array().unwrap().len(), 100);
}

#[test]
fn text_tells_outputs_latency_and_processes() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let outcome = here
        .run(arguments(&[&"run", &model, &"--path", &"in-process"]))
        .succeeds();
    assert!(outcome.stdout.contains("float32[1, 10]: "), "{outcome:?}");
    assert!(
        outcome.stdout.contains("latency by in-process: p50 "),
        "{outcome:?}"
    );
    assert!(outcome.stdout.contains("processes: client "), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn profile_tells_kernel_and_speed_of_every_operation() {
    let here = Surroundings::new();
    for (form, kernel) in [("float", "f32 matrix product"), ("int8", "8-bit matrix product")] {
        let model = digits(&format!("digits_{form}.tflite"));
        let report = here
            .run(arguments(&[
                &"run",
                &model,
                &"--profile",
                &"--threads",
                &"2",
                &"--json",
            ]))
            .succeeds()
            .json();
        assert_eq!(
            (&report["device"], &report["threads"]),
            (&json!("nnhal-cpu"), &json!(2))
        );
        assert!(report["peak_gflops"].as_f64().unwrap() > 0.0);
        let operations = report["operations"].as_array().unwrap();
        let first = operations
            .iter()
            .find(|row| row["operation"] == "CONV_2D")
            .unwrap();
        let name = first["kernel"].as_str().unwrap();
        // By pairs where no instruction multiplies bytes.
        let is_by_pairs = form == "int8" && name == "8-bit matrix product by pairs";
        assert!(name == kernel || is_by_pairs, "{name}");
        assert!(first["giga_per_second"].as_f64().unwrap() > 0.0);
        assert!(first["bytes"].as_u64().unwrap() > 0);
        let shares: f64 = operations.iter().map(|row| row["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    }
    let model = digits("digits_float.tflite");
    let by_reference = [
        &"run" as &dyn AsRef<std::ffi::OsStr>,
        &model,
        &"--profile",
        &"--device",
        &"nnhal-reference",
    ];
    let text = here.run(arguments(&by_reference)).succeeds().stdout;
    assert!(
        text.contains("reference") && !text.contains("matrix product"),
        "{text}"
    );
}

/// The operations of a profile by a path, as JSON.
fn profile(here: &Surroundings, model: &std::path::Path, more: &[&str]) -> serde_json::Value {
    let own = [
        &"run" as &dyn AsRef<std::ffi::OsStr>,
        &model,
        &"--profile",
        &"--json",
    ];
    let mut all = arguments(&own);
    all.extend(more.iter().map(std::ffi::OsStr::new));
    here.run(all).succeeds().json()
}

#[test]
fn profile_by_every_path_is_of_the_same_operations() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let names = |report: &serde_json::Value| -> Vec<_> {
        let operations = report["operations"].as_array().unwrap();
        operations
            .iter()
            .map(|row| (row["operation"].clone(), row["kernel"].clone()))
            .collect()
    };
    let here_report = profile(&here, &model, &[]);
    assert_eq!(
        (&here_report["path"], &here_report["threads"]),
        (&json!("in-process"), &json!(1))
    );
    for path in ["sync", "async", "burst", "fenced"] {
        let report = profile(&here, &model, &["--path", path, "--threads", "1"]);
        assert_eq!(
            (&report["path"], &report["device"]),
            (&json!(path), &json!("nnhal-cpu"))
        );
        assert!(report["processes"]["worker"].is_u64(), "{report}");
        assert_eq!(names(&report), names(&here_report), "by {path}");
        let first = &report["operations"][0];
        assert!(first["time_us"].as_f64().unwrap() > 0.0, "{report}");
        assert!(first["share_of_peak"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report["call_us"].as_f64().unwrap() > 0.0, "{report}");
    }
    // The threads of a driver that somebody else has set up are not known, and then no peak.
    let report = profile(&here, &model, &["--path", "burst"]);
    assert_eq!(report["threads"], json!(null));
    assert_eq!(report["operations"][0]["share_of_peak"], json!(null));
    let text = here.run(arguments(&[&"run", &model, &"--profile", &"--path", &"burst"]));
    let text = text.succeeds().stdout;
    assert!(
        text.contains("a call by burst takes ") && text.contains(", worker "),
        "{text}"
    );
}

/// A model of the importer's own tests, with branches and a loop, whose operations have places in graphs of
/// their own.
#[test]
fn profile_by_a_path_counts_operations_of_the_main_graph_once() {
    let here = Surroundings::new();
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tflite/tests/operators/control_flow/model.tflite");
    for path in ["in-process", "burst"] {
        let report = profile(&here, &model, &["--path", path, "--device", "nnhal-reference"]);
        let rows = report["operations"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["operation"] == "WHILE"), "{report}");
        for row in rows {
            assert!(row["time_us"].as_f64().unwrap() > 0.0, "{path}: {row}");
        }
    }
}

#[test]
fn threads_are_a_private_drivers() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    for path in ["sync", "in-process"] {
        here.run(arguments(&[&"run", &model, &"--path", &path, &"--threads", &"2"]))
            .succeeds();
    }
}

/// A model with so many classes that nobody wants to see all of their scores.
#[test]
fn scores_of_many_classes_are_printed_as_the_likeliest_or_in_full() {
    for (name, ty) in [
        ("mlts_mobilenet_v1_0.25_128", "float32"),
        ("mlts_mobilenet_v1_0.25_128_quant", "uint8"),
    ] {
        let Some(model) = shared(&format!("models/{name}/model.tflite")) else {
            return;
        };
        let here = Surroundings::new();
        let run = |more: &[&str]| {
            let own = [
                &"run" as &dyn AsRef<std::ffi::OsStr>,
                &model,
                &"--path",
                &"in-process",
            ];
            let mut all = arguments(&own);
            all.extend(more.iter().map(std::ffi::OsStr::new));
            here.run(all)
        };
        let text = run(&[]).succeeds().stdout;
        let line = text.lines().next().unwrap();
        assert!(line.contains(&format!("{ty}[1, 1001]: [")), "{line}");
        assert!(line.ends_with("(the largest of 1001 values)"), "{line}");
        assert_eq!(line.matches(", [").count(), 4, "{line}");
        let report = run(&["--json"]).succeeds().json();
        let tensor = &report["outputs"][0]["tensors"][0];
        // Probabilities, also where integers stand for them.
        let best = tensor["classes"][0]["score"].as_f64().unwrap();
        assert!(best > 0.0 && best <= 1.0, "{best}");
        let class = tensor["classes"][0]["class"].as_u64().unwrap() as usize;
        let values = tensor["values"].as_array().unwrap();
        let largest = values
            .iter()
            .map(|value| value.as_f64().unwrap())
            .fold(f64::MIN, f64::max);
        assert_eq!((values.len(), values[class].as_f64()), (1001, Some(largest)));

        let full = run(&["--full"]).succeeds().stdout;
        let (_, values) = full.lines().next().unwrap().split_once("]: ").unwrap();
        assert_eq!(values.split(' ').count(), 1001, "{values}");

        let labels = here.file("labels.txt", "some name\n".repeat(1001).as_bytes());
        let labels = labels.to_str().unwrap();
        let named = run(&["--labels", labels]).succeeds();
        assert!(named.stdout.contains("[1, 1001]: some name "), "{named:?}");
        assert_eq!(named.stderr, "");
    }
}

#[test]
fn labels_that_cannot_be_right_are_told() {
    let here = Surroundings::new();
    let labels = here.file("labels.txt", b"zero\none\ntwo\n");
    let model = digits("digits_float.tflite");
    let outcome = here
        .run(arguments(&[
            &"run",
            &model,
            &"--path",
            &"in-process",
            &"--labels",
            &labels,
        ]))
        .succeeds();
    assert!(outcome.stderr.contains("there are 3 labels"), "{outcome:?}");
    // A convolution, whose outputs are images.
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tflite/tests/operators/pools_float/model.tflite");
    here.run(arguments(&[
        &"run",
        &model,
        &"--path",
        &"in-process",
        &"--labels",
        &labels,
    ]))
    .fails_saying(&["no output of the model is a row of real numbers"]);
}

#[test]
fn compute_times_come_for_each_number_of_threads() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let report = here
        .run(arguments(&[
            &"bench",
            &"compute",
            &model,
            &"--threads",
            &"1,2",
            &"--rounds",
            &"1",
            &"--round-ms",
            &"1",
            &"--json",
        ]))
        .succeeds()
        .json();
    let rows = report["rows"].as_array().unwrap();
    let threads: Vec<_> = rows.iter().map(|row| row["threads"].as_u64().unwrap()).collect();
    assert_eq!(threads, [1, 2]);
    assert!(rows.iter().all(|row| row["nnhal_ms"].as_f64().unwrap() > 0.0));
}
