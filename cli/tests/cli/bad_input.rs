//! Bad input gives a clear error and exit code 1, never a panic.

use crate::common::{Surroundings, arguments, digits};

#[test]
fn truncated_model_is_refused_wherever_it_is_cut() {
    let here = Surroundings::new();
    let whole = std::fs::read(digits("digits_int8.tflite")).unwrap();
    for length in [1, 7, 8, 100, 4000, whole.len() / 2, whole.len() - 1000] {
        let cut = here.file("cut.tflite", &whole[..length]);
        here.run(arguments(&[&"run", &cut]))
            .fails_saying(&["failed to import", "cut.tflite"]);
        here.run(arguments(&[&"dump", &cut]))
            .fails_saying(&["failed to import", "cut.tflite"]);
    }
}

#[test]
fn empty_or_missing_model_is_refused() {
    let here = Surroundings::new();
    let empty = here.file("empty.tflite", b"");
    here.run(arguments(&[&"run", &empty]))
        .fails_saying(&["empty.tflite"]);
    here.run(["run", "missing.tflite"])
        .fails_saying(&["failed to read missing.tflite"]);
    here.run(arguments(&[&"run", &here.path()]))
        .fails_saying(&["failed to read"]);
    let text = here.file(
        "text.tflite",
        b"this is no model at all, but long enough to be one",
    );
    here.run(arguments(&[&"run", &text]))
        .fails_saying(&["text.tflite"]);
}

#[test]
fn wrong_input_shape_names_both_shapes() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    for shape in ["(1, 8, 9, 1)", "(8, 9)", "(72,)"] {
        let wrong = here.array("wrong.npy", "<f4", shape, &[0; 288]);
        here.run(arguments(&[&"run", &model, &"--input", &wrong]))
            .fails_saying(&["wrong.npy", "has shape", "[1, 8, 8, 1]"]);
    }
}

#[test]
fn wrong_input_type_names_both_types() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let wrong = here.array("wrong.npy", "<f8", "(1, 8, 8, 1)", &[0; 512]);
    here.run(arguments(&[&"run", &model, &"--input", &wrong]))
        .fails_saying(&["wrong.npy", "float64", "float32"]);
}

#[test]
fn wrong_number_of_inputs_or_expectations_is_told() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let image = here.array("image.npy", "<f4", "(1, 8, 8, 1)", &[0; 256]);
    here.run(arguments(&[
        &"run", &model, &"--input", &image, &"--input", &image,
    ]))
    .fails_saying(&["1 inputs", "2 files"]);
    let expected = digits("expected_float.npy");
    here.run(arguments(&[
        &"run",
        &model,
        &"--input",
        &image,
        &"--expect",
        &expected,
    ]))
    .fails_saying(&["expected_float.npy", "100 calls"]);
}

#[test]
fn broken_array_is_refused() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let files = [
        here.file("empty.npy", b""),
        here.file("text.npy", b"no array"),
        here.array("short.npy", "<f4", "(1, 8, 8, 1)", &[0; 255]),
        here.array(
            "huge.npy",
            "<f4",
            "(9223372036854775807, 9223372036854775807)",
            &[],
        ),
        here.array("complex.npy", "<c8", "(1, 8, 8, 1)", &[0; 512]),
    ];
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        here.run(arguments(&[&"run", &model, &"--input", &file]))
            .fails_saying(&[&name]);
    }
    here.run(arguments(&[&"run", &model, &"--input", &"missing.npy"]))
        .fails_saying(&["missing.npy"]);
    here.run(arguments(&[&"run", &model, &"--labels", &"missing.txt"]))
        .fails_saying(&["missing.txt"]);
}

#[test]
fn missing_or_empty_corpus_is_told() {
    let here = Surroundings::new();
    here.run(["vts", "--corpus", "missing", "--path", "in-process"])
        .fails_saying(&["missing"]);
    here.run(arguments(&[
        &"vts",
        &"--corpus",
        &here.path(),
        &"--path",
        &"in-process",
    ]))
    .fails_saying(&["no conformance corpus"]);
    let folder = here.path().join("V1_0");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("bad.json"), "{").unwrap();
    here.run(arguments(&[
        &"vts",
        &"--corpus",
        &here.path(),
        &"--path",
        &"in-process",
    ]))
    .fails_saying(&["bad.json"]);
}

#[test]
fn wrong_arguments_are_told_with_the_way_to_help() {
    let here = Surroundings::new();
    for wrong in [
        &["run"][..],
        &["fly"],
        &["run", "m", "--iterations", "0"],
        &["vts"],
    ] {
        let outcome = here.run(wrong);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("--help"), "{outcome:?}");
    }
}

#[test]
fn file_without_an_end_is_refused() {
    let here = Surroundings::new();
    here.run(["run", "/dev/zero"])
        .fails_saying(&["failed to read /dev/zero", "not a regular file"]);
    let model = digits("digits_float.tflite");
    here.run(arguments(&[&"run", &model, &"--input", &"/dev/zero"]))
        .fails_saying(&["/dev/zero", "not a regular file"]);
    here.run(arguments(&[&"run", &model, &"--labels", &"/dev/zero"]))
        .fails_saying(&["failed to read /dev/zero", "not a regular file"]);
}
