//! Composites, which a file spells out as graphs that may have others inside.

#![forbid(unsafe_code)]

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};
use nnhal_hal::OperationType;

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Where the field with this number is named in a table.
const fn field(number: VOffsetT) -> VOffsetT {
    4 + 2 * number
}

/// The schema's numbers of operators and of the options of composites.
const CODES: [i32; 2] = [206, 59];
const COMPOSITE_OPTIONS: u8 = 21;

/// A file of graphs that are composites in a row, each given by the number of its graph. One without any is a
/// NEG.
fn file(graphs: &[&[i32]]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let tables: Vec<Table> = graphs
        .iter()
        .map(|composites| graph(&mut builder, composites))
        .collect();
    let graphs = builder.create_vector(&tables);
    let codes = CODES.map(|code| {
        let table = builder.start_table();
        builder.push_slot_always(field(0), code.min(127) as i8);
        builder.push_slot_always(field(2), 1_i32);
        builder.push_slot_always(field(3), code);
        builder.end_table(table)
    });
    let codes = builder.create_vector(&codes);
    let empty = builder.start_table();
    let empty = builder.end_table(empty);
    let buffers = builder.create_vector(&[empty]);
    let model = builder.start_table();
    builder.push_slot_always(field(0), 3_u32);
    builder.push_slot_always(field(1), codes);
    builder.push_slot_always(field(2), graphs);
    builder.push_slot_always(field(4), buffers);
    let model = builder.end_table(model);
    builder.finish(model, Some("TFL3"));
    builder.finished_data().to_vec()
}

fn graph(builder: &mut FlatBufferBuilder<'_>, composites: &[i32]) -> Table {
    let count = composites.len().max(1);
    let tensors: Vec<Table> = (0..=count)
        .map(|_| {
            let shape = builder.create_vector(&[2_i32]);
            let table = builder.start_table();
            builder.push_slot_always(field(0), shape);
            builder.end_table(table)
        })
        .collect();
    let tensors = builder.create_vector(&tensors);
    let operators: Vec<Table> = (0..count)
        .map(|at| {
            let inputs = builder.create_vector(&[at as i32]);
            let outputs = builder.create_vector(&[at as i32 + 1]);
            let options = composites.get(at).map(|number| {
                let table = builder.start_table();
                builder.push_slot_always(field(1), *number);
                builder.end_table(table)
            });
            let table = builder.start_table();
            builder.push_slot_always(field(0), u32::from(options.is_none()));
            builder.push_slot_always(field(1), inputs);
            builder.push_slot_always(field(2), outputs);
            if let Some(options) = options {
                builder.push_slot_always(field(11), COMPOSITE_OPTIONS);
                builder.push_slot_always(field(12), options);
            }
            builder.end_table(table)
        })
        .collect();
    let operators = builder.create_vector(&operators);
    let inputs = builder.create_vector(&[0_i32]);
    let outputs = builder.create_vector(&[count as i32]);
    let table = builder.start_table();
    builder.push_slot_always(field(0), tensors);
    builder.push_slot_always(field(1), inputs);
    builder.push_slot_always(field(2), outputs);
    builder.push_slot_always(field(3), operators);
    builder.end_table(table)
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
