//! The graphs that IF calls: constants that they are called with are theirs.

#![forbid(unsafe_code)]

mod support;

use nnhal_cpu::KernelSet;
use support::Runner;
use support::files::{Field, Graph, Operator, Options, Tensor, file, operator, tensor};

/// The format's numbers of operators.
const FULLY_CONNECTED: i32 = 9;
const IF: i32 = 118;

/// Those of types.
const FLOAT32: i8 = 0;
const INT32: i8 = 2;
const BOOL: i8 = 6;

fn floats(dimensions: &[i32], values: &[f32]) -> Tensor {
    Tensor {
        data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..tensor(FLOAT32, dimensions)
    }
}

/// A layer whose weights and bias it is called with.
fn layer(activation: i8) -> Graph {
    let options = Options {
        is_second: false,
        code: 8,
        fields: vec![Field::Byte(activation)],
    };
    Graph {
        tensors: vec![
            tensor(FLOAT32, &[1, 2]),
            tensor(FLOAT32, &[3, 2]),
            tensor(FLOAT32, &[3]),
            tensor(FLOAT32, &[1, 3]),
        ],
        inputs: vec![0, 1, 2],
        outputs: vec![3],
        operators: vec![operator(FULLY_CONNECTED, &[0, 1, 2], &[3], Some(options))],
    }
}

/// An IF of graphs 1 and 2.
fn choice(inputs: &[i32], output: i32) -> Operator {
    let options = Options {
        is_second: false,
        code: 92,
        fields: vec![Field::Int(1), Field::Int(2)],
    };
    operator(IF, inputs, &[output], Some(options))
}

/// Calls of two layers, with and without ReLU, each with weights of its own.
fn graphs(weights: &[Tensor]) -> Vec<Graph> {
    let mut tensors = vec![
        tensor(BOOL, &[1]),
        tensor(FLOAT32, &[1, 2]),
        floats(&[3], &[0.5, -100.0, 1.0]),
    ];
    let (mut outputs, mut operators) = (Vec::new(), Vec::new());
    for weights in weights {
        let at = tensors.len() as i32;
        tensors.push(Tensor {
            data: weights.data.clone(),
            ..tensor(weights.ty, &weights.dimensions)
        });
        tensors.push(tensor(FLOAT32, &[1, 3]));
        operators.push(choice(&[0, 1, at, 2], at + 1));
        outputs.push(at + 1);
    }
    let main = Graph {
        tensors,
        inputs: vec![0, 1],
        outputs,
        operators,
    };
    vec![main, layer(0), layer(1)]
}

/// The outputs of both branches.
fn outputs(weights: &[Tensor], kernels: KernelSet) -> [Vec<Vec<f32>>; 2] {
    let imported = nnhal_tflite::import(&file(&graphs(weights))).unwrap();
    let mut runner = Runner::with_kernels(imported, kernels).unwrap();
    let x = [2.0_f32, 1.0].map(f32::to_le_bytes).concat();
    let float = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    [1_u8, 0].map(|condition| {
        let outputs = runner.run(&[&[condition], &x]);
        let values = outputs
            .iter()
            .map(|bytes| bytes.as_chunks().0.iter().map(float).collect());
        values.collect()
    })
}

fn first() -> Tensor {
    floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
}

#[test]
fn constants_go_to_the_graphs_that_are_called_once() {
    let imported = nnhal_tflite::import(&file(&graphs(&[first()]))).unwrap();
    // The condition, the graphs and the value.
    assert_eq!(imported.model.main.operations[0].inputs.len(), 4);
    for graph in &imported.model.referenced {
        assert_eq!(graph.input_indexes.len(), 1);
    }
    for kernels in [KernelSet::Reference, KernelSet::Fast] {
        let [plain, clamped] = outputs(&[first()], kernels);
        assert_eq!(plain, [[4.5, -90.0, 17.0]]);
        assert_eq!(clamped, [[4.5, 0.0, 17.0]]);
    }
}

#[test]
fn graphs_that_are_called_with_other_constants_take_them_as_values() {
    let second = || floats(&[3, 2], &[-1.0; 6]);
    let imported = nnhal_tflite::import(&file(&graphs(&[first(), second()]))).unwrap();
    for operation in &imported.model.main.operations {
        assert_eq!(operation.inputs.len(), 6);
    }
    let [plain, clamped] = outputs(&[first(), second()], KernelSet::Fast);
    assert_eq!(plain, [[4.5, -90.0, 17.0], [-2.5, -103.0, -2.0]]);
    assert_eq!(clamped, [[4.5, 0.0, 17.0], [0.0; 3]]);
}

#[test]
fn constants_of_another_type_are_refused() {
    let integers = Tensor { ty: INT32, ..first() };
    let error = nnhal_tflite::import(&file(&graphs(&[integers]))).unwrap_err();
    assert!(
        error.to_string().contains("is float32 and is given int32"),
        "{error}"
    );
}
