//! Composites, which a file spells out as graphs that may have others inside.

#![forbid(unsafe_code)]

mod support;

use nnhal_hal::OperationType;
use support::files::{self, Field, Graph, Options, operator, tensor};

/// The format's numbers of operators.
const NEG: i32 = 59;
const COMPOSITE: i32 = 206;

/// That of 32-bit floats.
const FLOAT32: i8 = 0;

/// A file of graphs that are composites in a row, each given by the number of its graph. One without any is a
/// NEG.
fn file(graphs: &[&[i32]]) -> Vec<u8> {
    let graphs: Vec<Graph> = graphs.iter().map(|composites| graph(composites)).collect();
    files::file(&graphs)
}

fn graph(composites: &[i32]) -> Graph {
    let count = composites.len().max(1);
    let link = |at: usize| {
        let (input, output) = (at as i32, at as i32 + 1);
        let options = composites.get(at).map(|number| Options {
            is_second: true,
            code: 21,
            // Without a name.
            fields: vec![Field::Absent, Field::Int(*number)],
        });
        let code = if options.is_some() { COMPOSITE } else { NEG };
        operator(code, &[input], &[output], options)
    };
    Graph {
        tensors: (0..=count).map(|_| tensor(FLOAT32, &[2])).collect(),
        inputs: vec![0],
        outputs: vec![count as i32],
        operators: (0..count).map(link).collect(),
    }
}

fn refusal(graphs: &[&[i32]]) -> String {
    nnhal_tflite::import(&file(graphs)).unwrap_err().to_string()
}

#[test]
fn operators_of_composites_stand_in_the_model() {
    let imported = nnhal_tflite::import(&file(&[&[1, 2, 1], &[2, 2], &[]])).unwrap();
    assert!(imported.model.referenced.is_empty());
    let operations = imported.model.main.operations.iter();
    let kinds: Vec<OperationType> = operations.map(|operation| operation.operation_type).collect();
    assert_eq!(kinds, [OperationType::NEG; 5]);
}

#[test]
fn graphs_that_are_not_there_or_contain_themselves_are_refused() {
    assert!(refusal(&[&[1]]).contains("refers to graph 1, the file has 1"));
    assert!(refusal(&[&[-1]]).contains("refers to graph -1"));
    assert!(refusal(&[&[0]]).contains("recursion"));
    assert!(refusal(&[&[1], &[2], &[1]]).contains("recursion"));
}

#[test]
fn composites_nest_neither_too_deeply_nor_too_often() {
    let numbers: Vec<i32> = (1..=30).collect();
    let mut chain: Vec<&[i32]> = numbers.chunks(1).collect();
    chain.push(&[]);
    assert!(refusal(&chain).contains("nests more than"));
    let eight: Vec<[i32; 8]> = (1..=12).map(|number| [number; 8]).collect();
    let mut doubling: Vec<&[i32]> = eight.iter().map(|list| &list[..]).collect();
    doubling.push(&[]);
    assert!(refusal(&doubling).contains("composites and CASEs have more than"));
}
