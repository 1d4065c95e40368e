//! Signatures, and dimensions that a file leaves open.

#![forbid(unsafe_code)]

mod support;

use std::path::Path;

use nnhal_tflite::{ImportOptions, ImportedModel, import_with};
use support::Runner;

fn import(signature: Option<&str>, dimensions: &[&[u32]]) -> Result<ImportedModel, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators/signatures/model.tflite");
    let options = ImportOptions {
        signature: signature.map(str::to_owned),
        input_dimensions: dimensions.iter().map(|dimensions| dimensions.to_vec()).collect(),
    };
    import_with(&std::fs::read(path).unwrap(), &options).map_err(|error| error.to_string())
}

/// The model's only output for these inputs.
fn run(imported: ImportedModel, inputs: &[&[f32]]) -> Vec<f32> {
    let bytes =
        |values: &&[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
    let inputs: Vec<Vec<u8>> = inputs.iter().map(bytes).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let outputs = Runner::new(imported).unwrap().run(&inputs);
    let chunks = outputs[0].chunks_exact(4);
    chunks
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}

#[test]
fn signature_says_which_graph_is_the_model_and_how_its_arguments_are_called() {
    let sum = import(Some("sum"), &[]).unwrap();
    let name = |info: &nnhal_tflite::TensorInfo| info.signature_name.clone().unwrap();
    assert_eq!(sum.inputs.iter().map(name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(name(&sum.outputs[0]), "total");
    let found = run(sum, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[10.0, 20.0, 30.0]]);
    assert_eq!(found, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
    let double = import(None, &[]).unwrap();
    assert_eq!(name(&double.inputs[0]), "x");
}

#[test]
fn unknown_signature_is_refused_with_those_that_there_are() {
    let error = import(Some("triple"), &[]).unwrap_err();
    assert!(
        error.contains("\"triple\"") && error.contains("[\"double\", \"sum\"]"),
        "{error}"
    );
}

#[test]
fn open_dimensions_are_those_that_are_asked_for() {
    let one = import(Some("double"), &[&[1, 3]]).unwrap();
    assert_eq!(one.inputs[0].dimensions, [1, 3]);
    assert_eq!(one.outputs[0].dimensions, [1, 3]);
    assert_eq!(run(one, &[&[1.0, 2.0, 3.0]]), [2.0, 4.0, 6.0]);
    let as_stated = import(Some("double"), &[&[]]).unwrap();
    assert_eq!(as_stated.inputs[0].dimensions, [2, 3]);
    assert_eq!(as_stated.inputs[0].open, [true, false]);
}

#[test]
fn inputs_are_told_without_the_operators() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators/signatures/model.tflite");
    let options = ImportOptions {
        signature: Some("sum".to_owned()),
        input_dimensions: vec![vec![5, 3]],
    };
    let inputs = nnhal_tflite::inputs(&std::fs::read(path).unwrap(), &options).unwrap();
    assert_eq!(inputs.len(), 2);
    assert_eq!(inputs[0].dimensions, [5, 3]);
    assert_eq!(inputs[0].open, [true, false]);
    assert_eq!(inputs[1].open, [false; 0]);
}

#[test]
fn dimensions_that_the_file_fixes_cannot_be_changed() {
    let cases: [(&str, &[&[u32]]); 4] = [
        ("double", &[&[2, 4]]),
        ("double", &[&[0, 3]]),
        ("double", &[&[2, 3, 1]]),
        ("sum", &[&[], &[2, 3]]),
    ];
    for (signature, dimensions) in cases {
        let error = import(Some(signature), dimensions).unwrap_err();
        assert!(
            error.contains("(-1 for any)"),
            "{signature} {dimensions:?}: {error}"
        );
    }
}
