//! StableHLO's CASE of many branches, which becomes IFs.

#![forbid(unsafe_code)]

mod support;

use nnhal_hal::OperationType as O;
use support::files::{Field, Graph, Operator, Options, Tensor, file};

/// The format's numbers of operators.
const NEG: i32 = 59;
const CASE: i32 = 209;

/// A graph of NEG or of CASEs in a row, each of these branches.
fn graph(branches: Option<(&[i32], i32)>) -> Graph {
    let tensor = |ty, dimensions| Tensor {
        ty,
        dimensions,
        data: Vec::new(),
    };
    let (code, count) = branches.map_or((NEG, 1), |(_, count)| (CASE, count));
    let index = branches.map(|_| count + 1);
    let operators = (0..count).map(|at| Operator {
        code,
        inputs: index.into_iter().chain([at]).collect(),
        outputs: vec![at + 1],
        options: branches.map(|(branches, _)| Options {
            is_second: true,
            code: 23,
            fields: vec![Field::Ints(branches.to_vec())],
        }),
    });
    Graph {
        tensors: (0..=count)
            .map(|_| tensor(0, vec![2]))
            .chain(index.map(|_| tensor(2, vec![])))
            .collect(),
        inputs: index.into_iter().chain([0]).collect(),
        outputs: vec![count],
        operators: operators.collect(),
    }
}

/// What stands against a file of so many CASEs of these branches, which are graphs of NEG, in a row.
fn refusal(branches: &[i32], count: i32) -> String {
    let graphs = [graph(Some((branches, count))), graph(None), graph(None)];
    nnhal_tflite::import(&file(&graphs)).unwrap_err().to_string()
}

#[test]
fn branches_are_halved() {
    let graphs = [graph(Some((&[1, 2, 1], 1))), graph(None), graph(None)];
    let imported = nnhal_tflite::import(&file(&graphs)).unwrap();
    let kinds = |operations: &[nnhal_hal::Operation]| -> Vec<O> {
        operations
            .iter()
            .map(|operation| operation.operation_type)
            .collect()
    };
    let model = &imported.model;
    assert_eq!(
        kinds(&model.main.operations),
        [O::LESS, O::SELECT, O::LESS, O::IF]
    );
    let referenced: Vec<Vec<O>> = model
        .referenced
        .iter()
        .map(|graph| kinds(&graph.operations))
        .collect();
    let half = || vec![O::LESS, O::IF];
    assert_eq!(referenced, [vec![O::NEG], vec![O::NEG], half(), half()]);
}

#[test]
fn branches_must_be_there_and_in_the_file() {
    assert!(refusal(&[], 1).contains("has no branches"));
    assert!(refusal(&[1, 2, 3], 1).contains("refers to graph 3"));
    assert!(refusal(&[1, 2, -1], 1).contains("refers to graph -1"));
    assert!(refusal(&[1, 0, 2], 1).contains("recursion"));
}

#[test]
fn graphs_made_for_branches_are_bounded() {
    let branches = [1].repeat(1 << 15);
    let error = refusal(&branches, 8);
    assert!(error.contains("composites and CASEs have more than"), "{error}");
}
