//! A real model in parts.

use std::path::Path;
use std::sync::Arc;

use nnhal_client::runtime::{CPU_DEVICE, Compilation, CompilationOptions, RunInput, RunOutput};
use nnhal_client::{DeviceInfo, ExecuteOptions, Model, TfliteModel};

use crate::common::{REFERENCE, on, start};

fn digits(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/digits")
        .join(name);
    TfliteModel::load(path).unwrap().model
}

/// The outputs for inputs that count up.
fn run(compilation: &Compilation) -> Vec<Vec<u8>> {
    let size = |ty: &nnhal_client::TensorType| ty.byte_size().unwrap();
    let inputs: Vec<Vec<u8>> = compilation
        .inputs()
        .iter()
        .map(|ty| match ty.operand_type().element_size() {
            4 => (0..size(ty) / 4)
                .flat_map(|index| (index as f32 / 1000.0).to_ne_bytes())
                .collect(),
            _ => (0..size(ty)).map(|index| index as u8).collect(),
        })
        .collect();
    let mut outputs: Vec<Vec<u8>> = compilation.outputs().iter().map(|ty| vec![0; size(ty)]).collect();
    let inputs: Vec<RunInput<'_>> = inputs.iter().map(|bytes| RunInput::bytes(bytes)).collect();
    let mut rooms: Vec<RunOutput<'_>> = outputs.iter_mut().map(|bytes| RunOutput::bytes(bytes)).collect();
    let finished = compilation
        .execute(&inputs, &mut rooms, &ExecuteOptions::new())
        .unwrap();
    assert_eq!(finished.fallback, None);
    outputs
}

#[test]
fn digit_classifier_in_parts_of_every_length_gives_the_bytes_of_the_whole() {
    let (_daemon, runtime) = start();
    for name in ["digits_float.tflite", "digits_int8.tflite"] {
        let model = digits(name);
        let whole = runtime.compile(&model, &on(&runtime, &[CPU_DEVICE])).unwrap();
        let expected = run(&whole);
        assert!(expected[0].iter().any(|byte| *byte != 0));
        for length in 1..5 {
            let filter = Arc::new(
                move |device: &DeviceInfo, index: usize, _: &nnhal_hal::Operation| {
                    device.name == [REFERENCE, CPU_DEVICE][index / length % 2]
                },
            );
            let compilation = runtime
                .compile(&model, &CompilationOptions::new().filter(filter))
                .unwrap();
            assert!(compilation.explain().steps.len() > 1);
            assert_eq!(run(&compilation), expected, "{name} in parts of {length}");
        }
    }
}
