//! Models that older HAL versions express, in part or in full.

use std::sync::Arc;

use super::*;
use crate::{DataLocation, NoPools, Operand, OperandLifeTime, OperandType, OperationType, Subgraph};

fn tensor(lifetime: OperandLifeTime, consumers: u32) -> Operand {
    let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &[1, 2, 2, 1]).with_lifetime(lifetime);
    operand.number_of_consumers = consumers;
    operand
}

fn operation(operation_type: OperationType, inputs: &[u32], output: u32) -> Operation {
    Operation {
        operation_type,
        inputs: inputs.to_vec(),
        outputs: vec![output],
    }
}

fn valid(model: Model) -> ValidModel {
    ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap()
}

fn graph(operands: Vec<Operand>, operations: Vec<Operation>, outputs: &[u32]) -> Model {
    Model {
        main: Subgraph {
            operands,
            operations,
            input_indexes: vec![0],
            output_indexes: outputs.to_vec(),
        },
        ..Model::default()
    }
}

/// RELU (1.0), ABS (1.2), FLOOR (1.0), one behind the other; the result of RELU is an output too.
fn sandwich() -> Model {
    let operands = vec![
        tensor(OperandLifeTime::SubgraphInput, 1),
        tensor(OperandLifeTime::SubgraphOutput, 1),
        tensor(OperandLifeTime::TemporaryVariable, 1),
        tensor(OperandLifeTime::SubgraphOutput, 0),
    ];
    let operations = vec![
        operation(OperationType::RELU, &[0], 1),
        operation(OperationType::ABS, &[1], 2),
        operation(OperationType::FLOOR, &[2], 3),
    ];
    graph(operands, operations, &[1, 3])
}

/// DEPTH_TO_SPACE, which has had a layout since 1.2, with this one.
fn with_layout(is_nchw: u8) -> Model {
    let mut operands = vec![
        tensor(OperandLifeTime::SubgraphInput, 1),
        Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
        Operand::new(OperandType::BOOL, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
        tensor(OperandLifeTime::SubgraphOutput, 0),
    ];
    for (operand, (offset, length)) in operands[1..3].iter_mut().zip([(0, 4), (4, 1)]) {
        operand.number_of_consumers = 1;
        operand.location = DataLocation {
            pool_index: 0,
            offset,
            length,
        };
    }
    let operations = vec![operation(OperationType::DEPTH_TO_SPACE, &[0, 1, 2], 3)];
    Model {
        operand_values: [1_i32.to_ne_bytes().as_slice(), &[is_nchw]].concat(),
        ..graph(operands, operations, &[3])
    }
}

#[test]
fn operation_of_a_later_version_stands_in_the_way_alone() {
    let model = valid(sandwich());
    let compliance = model.compliant_with(HalVersion::V1_1);
    assert_eq!(
        compliance.operations,
        [None, Some("ABS came with HAL 1.2".to_owned()), None]
    );
    assert!(compliance.operands.is_empty() && !compliance.is_compliant());
    let text = model.to_v1_1().unwrap_err().to_string();
    assert_eq!(
        text,
        "HAL 1.1 cannot express it: operation 1 (ABS): ABS came with HAL 1.2"
    );
    assert!(model.compliant_with(HalVersion::V1_2).is_compliant());
}

#[test]
fn part_of_a_model_has_what_crosses_its_border_as_arguments() {
    let part = valid(sandwich()).slice(HalVersion::V1_0).unwrap();
    assert_eq!(part.operations, [0, 2]);
    let main = &part.model.main;
    assert_eq!(main.operations[1].operation_type, OperationType::FLOOR);
    assert_eq!(
        (&main.input_indexes[..], &main.output_indexes[..]),
        (&[0, 2][..], &[1, 3][..])
    );
    assert_eq!(main.operands[1].number_of_consumers, 0);
    assert_eq!(valid(part.model).version(), HalVersion::V1_0);

    let mut newest = sandwich();
    for operation in &mut newest.main.operations {
        operation.operation_type = OperationType::ABS;
    }
    assert_eq!(valid(newest).slice(HalVersion::V1_1), None);
}

#[test]
fn argument_that_says_what_leaving_it_off_says_is_left_off() {
    let nhwc = valid(with_layout(0)).to_v1_0().unwrap();
    assert_eq!(nhwc.value.operations[0].inputs, [0, 1]);
    assert_eq!(nhwc.value.operands.len(), 3);
    let losses: Vec<String> = nhwc.losses.iter().map(ToString::to_string).collect();
    assert_eq!(
        losses,
        [
            "input 2 of operation 0 (DEPTH_TO_SPACE): is left off in HAL 1.0: it says what leaving it off says",
            "operand 2: is left out: no operation needs it in HAL 1.0",
        ]
    );
    let text = valid(with_layout(1)).to_v1_0().unwrap_err().to_string();
    assert!(
        text.contains("input 2 (operand 2) is of BOOL, which came with HAL 1.2"),
        "{text}"
    );
    // Where the version has the argument, it stays.
    let same = valid(with_layout(0)).to_v1_2().unwrap();
    assert_eq!((Model::from(same.value), same.losses), (with_layout(0), vec![]));
}

#[test]
fn relaxed_flag_is_dropped_and_stands_in_nobodys_way() {
    let mut relaxed = sandwich();
    relaxed.main.operations[1].operation_type = OperationType::TANH;
    relaxed.relax_computation_float32_to_float16 = true;
    let model = valid(relaxed);
    assert!(model.compliant_with(HalVersion::V1_0).is_compliant());
    let losses = model.to_v1_0().unwrap().losses;
    assert_eq!(losses.len(), 1);
    assert!(
        losses[0]
            .to_string()
            .contains("computing strictly is always allowed"),
        "{losses:?}"
    );
    assert_eq!(model.to_v1_1().unwrap().losses, []);
}

#[test]
fn signature_of_a_later_version_is_told_with_its_types() {
    // Quantised bytes have been taken by SUB since 1.2, though both are of earlier versions.
    let mut model = sandwich();
    for operand in &mut model.main.operands {
        operand.operand_type = OperandType::TENSOR_QUANT8_ASYMM;
        operand.scale = 1.0;
    }
    let mut activation = Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
    activation.number_of_consumers = 1;
    activation.location.length = 4;
    model.operand_values = vec![0; 4];
    model.main.operands.push(activation);
    model.main.operands[1].number_of_consumers = 2;
    model.main.operations = vec![
        operation(OperationType::RELU, &[0], 1),
        operation(OperationType::SUB, &[1, 1, 4], 2),
        operation(OperationType::RELU, &[2], 3),
    ];
    let refusals = valid(model).compliant_with(HalVersion::V1_1).operations;
    let expected = "SUB takes the 3 arguments TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM, INT32 since HAL 1.2";
    assert_eq!(refusals, [None, Some(expected.to_owned()), None]);
}

/// RELU, then an IF that runs the first of two graphs of one operation either way, or the second.
fn with_graphs(of_first: OperationType, of_second: OperationType, run: u32) -> Model {
    let branch = |operation_type| Subgraph {
        operands: vec![
            tensor(OperandLifeTime::SubgraphInput, 1),
            tensor(OperandLifeTime::SubgraphOutput, 0),
        ],
        operations: vec![operation(operation_type, &[0], 1)],
        input_indexes: vec![0],
        output_indexes: vec![1],
    };
    let mut graph_operand = Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph);
    graph_operand.location.offset = run;
    graph_operand.number_of_consumers = 2;
    let mut condition =
        Operand::new(OperandType::TENSOR_BOOL8, &[1]).with_lifetime(OperandLifeTime::SubgraphInput);
    condition.number_of_consumers = 1;
    let operands = vec![
        tensor(OperandLifeTime::SubgraphInput, 1),
        tensor(OperandLifeTime::SubgraphOutput, 1),
        condition,
        graph_operand,
        tensor(OperandLifeTime::SubgraphOutput, 0),
    ];
    let operations = vec![
        operation(OperationType::RELU, &[0], 1),
        operation(OperationType::IF, &[2, 3, 3, 1], 4),
    ];
    let mut model = graph(operands, operations, &[1, 4]);
    model.main.input_indexes = vec![0, 2];
    model.referenced = vec![branch(of_first), branch(of_second)];
    model
}

#[test]
fn control_flow_needs_what_the_graphs_need_that_it_runs() {
    let newer = with_graphs(OperationType::RSQRT, OperationType::RELU, 0);
    // 8-bit values came to RSQRT with feature level 7.
    let quantized = |mut model: Model| {
        let graphs = model.referenced.iter_mut().chain([&mut model.main]);
        for operand in graphs.flat_map(|graph| &mut graph.operands) {
            if operand.operand_type == OperandType::TENSOR_FLOAT32 {
                operand.operand_type = OperandType::TENSOR_QUANT8_ASYMM;
                operand.scale = 1.0;
            }
        }
        model
    };
    assert!(
        valid(newer.clone())
            .compliant_with(HalVersion::V1_3)
            .is_compliant()
    );
    let model = valid(quantized(newer));
    assert_eq!(model.version(), HalVersion::Level7);
    assert_eq!(
        model.compliant_with(HalVersion::V1_3).operations,
        [
            None,
            Some("IF runs a graph that needs HAL feature level 7".to_owned())
        ]
    );
    // The part of the older version keeps none of its graphs.
    let part = model.slice(HalVersion::V1_3).unwrap();
    assert_eq!((part.operations, part.model.referenced.len()), (vec![0], 0));
}

#[test]
fn part_keeps_the_graphs_that_it_runs_under_new_places() {
    let mut model = with_graphs(OperationType::RSQRT, OperationType::ABS, 1);
    model.referenced.swap(0, 1);
    model.referenced.push(model.referenced[1].clone());
    model.main.operands[3].location.offset = 2;
    // Reversed after the IF, which only level 7 can.
    let mut axis = Operand::new(OperandType::TENSOR_INT32, &[1]).with_lifetime(OperandLifeTime::ConstantCopy);
    axis.number_of_consumers = 1;
    axis.location.length = 4;
    model.operand_values = vec![0; 4];
    model.main.operands[4].number_of_consumers = 1;
    model
        .main
        .operands
        .extend([axis, tensor(OperandLifeTime::SubgraphOutput, 0)]);
    model
        .main
        .operations
        .push(operation(OperationType::REVERSE, &[4, 5], 6));
    model.main.output_indexes.push(6);
    let graph = model.referenced[2].clone();
    let whole = valid(model);
    assert_eq!(whole.version(), HalVersion::Level7);
    let part = whole.slice(HalVersion::V1_3).unwrap();
    assert_eq!(part.operations, [0, 1]);
    assert_eq!(part.model.referenced, [graph]);
    assert_eq!(valid(part.model).version(), HalVersion::V1_3);
    let refusals = whole.compliant_with(HalVersion::Level6).operations;
    let expected = "REVERSE came with HAL feature level 7";
    assert_eq!(refusals, [None, None, Some(expected.to_owned())]);
}
