//! `nnhal vts` over a corpus.

use std::path::PathBuf;

use crate::common::{Surroundings, arguments, shared};
use crate::drivers::{Driver, run_in, runtime_dir};

#[test]
fn standard_output_is_one_document_with_json_and_ends_with_the_total_without() {
    let Some(file) = shared("conformance/V1_3/abs_int32.json") else {
        return;
    };
    let here = Surroundings::new();
    std::fs::create_dir(here.path().join("V1_3")).unwrap();
    here.file("V1_3/abs_int32.json", &std::fs::read(file).unwrap());
    let corpus = here.path();
    let text = here
        .run(arguments(&[&"vts", &"--corpus", &corpus]))
        .succeeds()
        .stdout;
    let total = text.lines().last().unwrap();
    assert!(total.ends_with("passed, 0 failed, 0 skipped"), "{text}");
    let outcome = here
        .run(arguments(&[&"vts", &"--corpus", &corpus, &"--json"]))
        .succeeds();
    assert_eq!(outcome.json()["failures"], serde_json::json!([]));
    assert_eq!(outcome.stderr.lines().last(), Some(total), "{outcome:#?}");
}

#[test]
fn runtime_divides_every_model_of_two_operations_and_passes() {
    let Some(file) = shared("conformance/V1_0/add.json") else {
        return;
    };
    let here = Surroundings::new();
    std::fs::create_dir(here.path().join("V1_0")).unwrap();
    here.file("V1_0/add.json", &std::fs::read(file).unwrap());
    let corpus = here.path();
    let outcome = here
        .run(arguments(&[
            &"vts",
            &"--corpus",
            &corpus,
            &"--via",
            &"runtime",
            &"--split",
            &"--require-all",
        ]))
        .succeeds();
    assert!(
        outcome.stdout.contains("passed, 0 failed, 0 skipped"),
        "{outcome:#?}"
    );
    let seen = outcome.stderr.lines().last().unwrap_or_default();
    assert!(
        seen.contains("of them in parts") && !seen.contains(" 0 of them"),
        "{outcome:#?}"
    );
}

/// The shared library, which is built with this test.
fn library() -> PathBuf {
    // Names the crate, so that it is built. Nothing of it is used.
    use neuralnetworks as _;
    let exe = std::env::current_exe().unwrap();
    exe.with_file_name("libneuralnetworks.so")
}

#[test]
fn capi_is_the_shared_library_that_is_named() {
    let Some(file) = shared("conformance/V1_0/add.json") else {
        return;
    };
    let here = Surroundings::new();
    let corpus = here.path().join("corpus");
    std::fs::create_dir_all(corpus.join("V1_0")).unwrap();
    std::fs::copy(file, corpus.join("V1_0/add.json")).unwrap();
    let runtime_dir = runtime_dir(&here);
    let driver = Driver::start(&here, &runtime_dir);
    let vts = |library: &str| {
        let corpus = corpus.to_str().unwrap();
        let parts = [
            "vts",
            "--corpus",
            corpus,
            "--require-all",
            "--via",
            "capi",
            "--library",
            library,
        ];
        run_in(&here, &runtime_dir, &parts)
    };
    let library = library();
    let total = vts(library.to_str().unwrap()).succeeds().stdout;
    assert!(total.contains("passed, 0 failed, 0 skipped"), "{total}");
    // Another file's functions are not those that are linked to the command, for none are.
    vts("nowhere.so").fails_saying(&["nowhere.so cannot be opened"]);
    vts("/proc/self/exe").fails_saying(&["/proc/self/exe"]);
    assert_eq!(driver.end(), Some(0));
}
