//! The importer over the inputs of the target `tflite` in `fuzz/` that are kept in the tree.

use std::path::Path;

use nnhal_conformance::fuzzing::seeds;

/// Longer files are no seeds.
const MOST_BYTES: usize = 4096;

/// The short ones of the files that other tests import.
fn made() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators");
    let cases = std::fs::read_dir(folder)
        .unwrap()
        .map(|case| case.unwrap().path());
    let mut files: Vec<_> = cases
        .filter(|case| case.is_dir())
        .map(|case| case.join("model.tflite"))
        .collect();
    files.sort();
    let bytes = files.iter().filter_map(|file| std::fs::read(file).ok());
    bytes.filter(|bytes| bytes.len() <= MOST_BYTES).collect()
}

#[test]
fn files_in_the_tree_are_refused_or_imported() {
    seeds::check("tflite", &made(), |bytes| drop(nnhal_tflite::import(bytes)));
}
