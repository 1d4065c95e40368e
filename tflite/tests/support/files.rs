//! Writes files that no converter makes.

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Where the field with this number is named in a table.
const fn slot(number: VOffsetT) -> VOffsetT {
    4 + 2 * number
}

/// A tensor without a value. Its type is the format's number.
pub(crate) struct Tensor {
    pub(crate) ty: i8,
    pub(crate) dimensions: Vec<i32>,
    /// Its bytes, if constant.
    pub(crate) data: Vec<u8>,
}

/// A field of an options table.
pub(crate) enum Field {
    Absent,
    Byte(i8),
    Int(i32),
    Long(i64),
    Ints(Vec<i32>),
}

/// An options table: whether it is in the second union, its code there, and its fields in order.
pub(crate) struct Options {
    pub(crate) is_second: bool,
    pub(crate) code: u8,
    pub(crate) fields: Vec<Field>,
}

/// An operator, by the format's number.
pub(crate) struct Operator {
    pub(crate) code: i32,
    pub(crate) inputs: Vec<i32>,
    pub(crate) outputs: Vec<i32>,
    pub(crate) options: Option<Options>,
}

/// A graph.
pub(crate) struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) inputs: Vec<i32>,
    pub(crate) outputs: Vec<i32>,
    pub(crate) operators: Vec<Operator>,
}

/// A tensor without a value.
pub(crate) fn tensor(ty: i8, dimensions: &[i32]) -> Tensor {
    Tensor {
        ty,
        dimensions: dimensions.to_vec(),
        data: Vec::new(),
    }
}

/// An operator.
pub(crate) fn operator(code: i32, inputs: &[i32], outputs: &[i32], options: Option<Options>) -> Operator {
    Operator {
        code,
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        options,
    }
}

/// A file of these graphs.
pub(crate) fn file(graphs: &[Graph]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut parts = Parts::default();
    // The first one has no data.
    parts.buffers.push(buffer(&mut builder, &[]));
    let tables: Vec<Table> = graphs
        .iter()
        .map(|graph| parts.graph(&mut builder, graph))
        .collect();
    let graphs = builder.create_vector(&tables);
    let codes: Vec<Table> = parts
        .codes
        .iter()
        .map(|code| operator_code(&mut builder, *code))
        .collect();
    let codes = builder.create_vector(&codes);
    let buffers = builder.create_vector(&parts.buffers);
    let model = builder.start_table();
    builder.push_slot_always(slot(0), 3_u32);
    builder.push_slot_always(slot(1), codes);
    builder.push_slot_always(slot(2), graphs);
    builder.push_slot_always(slot(4), buffers);
    let model = builder.end_table(model);
    builder.finish(model, Some("TFL3"));
    builder.finished_data().to_vec()
}

/// What graphs share.
#[derive(Default)]
struct Parts {
    codes: Vec<i32>,
    buffers: Vec<Table>,
}

impl Parts {
    fn graph(&mut self, builder: &mut FlatBufferBuilder<'_>, graph: &Graph) -> Table {
        let tensors: Vec<Table> = graph
            .tensors
            .iter()
            .map(|tensor| self.tensor(builder, tensor))
            .collect();
        let tensors = builder.create_vector(&tensors);
        let operators: Vec<Table> = graph
            .operators
            .iter()
            .map(|operator| self.operator(builder, operator))
            .collect();
        let operators = builder.create_vector(&operators);
        let inputs = builder.create_vector(&graph.inputs);
        let outputs = builder.create_vector(&graph.outputs);
        let table = builder.start_table();
        builder.push_slot_always(slot(0), tensors);
        builder.push_slot_always(slot(1), inputs);
        builder.push_slot_always(slot(2), outputs);
        builder.push_slot_always(slot(3), operators);
        builder.end_table(table)
    }

    fn tensor(&mut self, builder: &mut FlatBufferBuilder<'_>, tensor: &Tensor) -> Table {
        let mut number = 0;
        if !tensor.data.is_empty() {
            number = self.buffers.len() as u32;
            self.buffers.push(buffer(builder, &tensor.data));
        }
        let shape = builder.create_vector(&tensor.dimensions);
        let table = builder.start_table();
        builder.push_slot_always(slot(0), shape);
        builder.push_slot_always(slot(1), tensor.ty);
        builder.push_slot_always(slot(2), number);
        builder.end_table(table)
    }

    fn operator(&mut self, builder: &mut FlatBufferBuilder<'_>, operator: &Operator) -> Table {
        let known = self.codes.iter().position(|code| *code == operator.code);
        let index = known.unwrap_or_else(|| {
            self.codes.push(operator.code);
            self.codes.len() - 1
        });
        let inputs = builder.create_vector(&operator.inputs);
        let outputs = builder.create_vector(&operator.outputs);
        let fields = operator.options.as_ref().map(|given| options(builder, given));
        let table = builder.start_table();
        builder.push_slot_always(slot(0), index as u32);
        builder.push_slot_always(slot(1), inputs);
        builder.push_slot_always(slot(2), outputs);
        if let (Some(given), Some(fields)) = (&operator.options, fields) {
            let place = if given.is_second { 11 } else { 3 };
            builder.push_slot_always(slot(place), given.code);
            builder.push_slot_always(slot(place + 1), fields);
        }
        builder.end_table(table)
    }
}

fn buffer(builder: &mut FlatBufferBuilder<'_>, data: &[u8]) -> Table {
    let data = (!data.is_empty()).then(|| builder.create_vector(data));
    let table = builder.start_table();
    if let Some(data) = data {
        builder.push_slot_always(slot(0), data);
    }
    builder.end_table(table)
}

fn operator_code(builder: &mut FlatBufferBuilder<'_>, code: i32) -> Table {
    let table = builder.start_table();
    builder.push_slot_always(slot(0), code.min(127) as i8);
    builder.push_slot_always(slot(2), 1_i32);
    builder.push_slot_always(slot(3), code);
    builder.end_table(table)
}

fn options(builder: &mut FlatBufferBuilder<'_>, options: &Options) -> Table {
    let lists: Vec<_> = options
        .fields
        .iter()
        .map(|field| match field {
            Field::Ints(list) => Some(builder.create_vector(list)),
            _ => None,
        })
        .collect();
    let table = builder.start_table();
    for ((number, field), list) in (0..).zip(&options.fields).zip(lists) {
        match (field, list) {
            (Field::Byte(value), _) => builder.push_slot_always(slot(number), *value),
            (Field::Int(value), _) => builder.push_slot_always(slot(number), *value),
            (Field::Long(value), _) => builder.push_slot_always(slot(number), *value),
            (_, Some(list)) => builder.push_slot_always(slot(number), list),
            (Field::Absent | Field::Ints(_), None) => {}
        }
    }
    builder.end_table(table)
}
