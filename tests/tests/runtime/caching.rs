//! The application's cache directory.

use std::sync::Arc;

use nnhal_client::runtime::CompilationOptions;

use crate::common::{FAST, chain, in_turn, kill_workers, on, run, start, sum};

fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn each_step_is_kept_in_files_of_its_own_and_found_again() {
    let (_daemon, runtime) = start();
    let directory = tempfile::tempdir().unwrap();
    let options = CompilationOptions::new()
        .filter(in_turn(1))
        .caching(directory.path(), [7; 32]);
    let model = chain(3, false);
    assert_eq!(
        run(&runtime.compile(&model, &options).unwrap()).unwrap(),
        (vec![1.0 + sum(3); 4], None)
    );
    let kept = names(directory.path());
    let per_step = runtime.devices()[0].info().cache_files;
    assert_eq!(
        kept.len() as u32,
        3 * (per_step.model + per_step.data),
        "{kept:?}"
    );
    assert!(
        kept.iter()
            .all(|name| name.len() == 66 && name[..64].bytes().all(|c| (b'A'..=b'P').contains(&c)))
    );
    let contents = |name: &String| std::fs::read(directory.path().join(name)).unwrap();
    let before: Vec<Vec<u8>> = kept.iter().map(contents).collect();
    assert!(before.iter().any(|bytes| !bytes.is_empty()));

    let (_other, other) = start();
    assert_eq!(
        run(&other.compile(&model, &options).unwrap()).unwrap(),
        (vec![1.0 + sum(3); 4], None)
    );
    assert_eq!(names(directory.path()), kept);
    assert_eq!(kept.iter().map(contents).collect::<Vec<_>>(), before);
}

#[test]
fn spoilt_files_and_a_directory_that_is_not_there_cost_nothing_but_time() {
    let (_daemon, runtime) = start();
    let directory = tempfile::tempdir().unwrap();
    let model = chain(2, false);
    let options = CompilationOptions::new().caching(directory.path(), [1; 32]);
    runtime.compile(&model, &options).unwrap();
    for name in names(directory.path()) {
        std::fs::write(directory.path().join(name), b"spoilt").unwrap();
    }
    assert_eq!(
        run(&runtime.compile(&model, &options).unwrap()).unwrap(),
        (vec![4.0; 4], None)
    );
    let nowhere = CompilationOptions::new().caching(directory.path().join("none"), [1; 32]);
    assert_eq!(
        run(&runtime.compile(&model, &nowhere).unwrap()).unwrap(),
        (vec![4.0; 4], None)
    );
}

#[test]
fn worker_that_dies_over_the_cache_fails_no_compilation() {
    let (daemon, runtime) = start();
    let daemon = Arc::new(daemon);
    let directory = tempfile::tempdir().unwrap();
    let model = chain(2, false);
    let options = || on(&runtime, &[FAST]).caching(directory.path(), [3; 32]);
    runtime.compile(&model, &options()).unwrap();
    // The device has said what it supports when the filter is asked, so that the next who needs it is the
    // cache.
    let executioner = Arc::clone(&daemon);
    let options = options().filter(Arc::new(move |_, _, _| {
        kill_workers(&executioner);
        true
    }));
    for _ in 0..3 {
        assert_eq!(
            run(&runtime.compile(&model, &options).unwrap()).unwrap(),
            (vec![4.0; 4], None)
        );
    }
}
