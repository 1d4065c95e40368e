//! `nnhal vts` over a corpus.

use crate::common::{Surroundings, arguments, shared};

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
