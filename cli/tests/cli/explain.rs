//! `nnhal explain`.

use std::path::Path;

use crate::common::{Surroundings, arguments, digits};

#[test]
fn every_operation_has_its_device_and_every_device_its_reason() {
    let here = Surroundings::new();
    let model = digits("digits_float.tflite");
    let text = here.run(arguments(&[&"explain", &model])).succeeds().stdout;
    assert!(text.starts_with("operation 0 CONV_2D on nnhal-cpu\n"), "{text}");
    assert!(text.contains("nnapi-reference: supported at cost 1"), "{text}");
    assert!(text.contains("step 0 on nnhal-cpu: operations 0-"), "{text}");
    assert!(
        text.contains("kernels of nnhal-cpu:\n  operation 0 CONV_2D: f32 matrix product; about "),
        "{text}"
    );

    let named = [
        &"explain" as &dyn AsRef<std::ffi::OsStr>,
        &model,
        &"--device",
        &"nnapi-reference",
    ];
    let text = here.run(arguments(&named)).succeeds().stdout;
    assert!(text.contains("step 0 on nnapi-reference"), "{text}");
    assert!(!text.contains("kernels of"), "{text}");
    let unknown = [
        &"explain" as &dyn AsRef<std::ffi::OsStr>,
        &model,
        &"--device",
        &"a-b",
    ];
    here.run(arguments(&unknown)).fails_saying(&[
        "there is no device a-b",
        "nnhal-cpu, nnhal-reference, nnapi-reference",
    ]);
}

/// A model of the importer's own tests, with branches and a loop.
#[test]
fn kernels_of_graphs_are_listed_below_what_runs_them() {
    let here = Surroundings::new();
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tflite/tests/operators/control_flow/model.tflite");
    let text = here.run(arguments(&[&"explain", &model])).succeeds().stdout;
    let (_, kernels) = text.split_once("kernels of nnhal-cpu:\n").unwrap();
    println!("{kernels}");
    for (operation, roles) in [("IF", ["then", "else"]), ("WHILE", ["condition", "body"])] {
        let (_, below) = kernels
            .split_once(&format!(" {operation}: control flow\n"))
            .unwrap();
        let end = below.find("\n  operation").unwrap_or(below.len());
        for role in roles {
            let (_, of_graph) = below[..end]
                .split_once(&format!("    {role}, referenced graph "))
                .unwrap();
            let first = of_graph.lines().nth(1).unwrap();
            assert!(
                first.starts_with("      operation 0 "),
                "{role} of {operation}: {first}"
            );
        }
    }
}
