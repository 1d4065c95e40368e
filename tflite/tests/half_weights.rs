//! Weights that a file keeps as 16-bit floats, for which DEQUANTIZE stands before what reads them: they
//! become constants of exactly their values, whoever and however many read them.

#![forbid(unsafe_code)]

mod support;

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};
use half::f16;
use nnhal_cpu::KernelSet;
use nnhal_hal::OperationType;
use support::Runner;

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Where the field with this number is named in a table.
const fn field(number: VOffsetT) -> VOffsetT {
    4 + 2 * number
}

/// The schema's numbers of operators and types.
const ADD: i32 = 0;
const DEQUANTIZE: i32 = 6;
const MUL: i32 = 18;
const FLOAT32: i8 = 0;
const FLOAT16: i8 = 1;

/// A file while it is written.
#[derive(Default)]
struct File<'a> {
    builder: FlatBufferBuilder<'a>,
    tensors: Vec<Table>,
    operators: Vec<Table>,
}

impl File<'_> {
    /// One more tensor; buffer 0 is that of all that are no constants.
    fn tensor(&mut self, (extent, element_type): (usize, i8), buffer: u32) -> i32 {
        let shape = self.builder.create_vector(&[extent as i32]);
        let number = self.tensors.len() as i32;
        let name = self.builder.create_string(&format!("tensor {number}"));
        let table = self.builder.start_table();
        self.builder.push_slot_always(field(0), shape);
        self.builder.push_slot_always(field(1), element_type);
        self.builder.push_slot_always(field(2), buffer);
        self.builder.push_slot_always(field(3), name);
        self.tensors.push(self.builder.end_table(table));
        number
    }

    fn operator(&mut self, code: u32, inputs: &[i32], output: i32) {
        let inputs = self.builder.create_vector(inputs);
        let outputs = self.builder.create_vector(&[output]);
        let table = self.builder.start_table();
        self.builder.push_slot_always(field(0), code);
        self.builder.push_slot_always(field(1), inputs);
        self.builder.push_slot_always(field(2), outputs);
        self.operators.push(self.builder.end_table(table));
    }

    /// The file, whose operators have these codes and whose buffer 1 has these bytes.
    fn finish(mut self, codes: &[i32], bytes: &[u8], (inputs, outputs): (&[i32], &[i32])) -> Vec<u8> {
        let builder = &mut self.builder;
        let tensors = builder.create_vector(&self.tensors);
        let operators = builder.create_vector(&self.operators);
        let (inputs, outputs) = (builder.create_vector(inputs), builder.create_vector(outputs));
        let graph = builder.start_table();
        builder.push_slot_always(field(0), tensors);
        builder.push_slot_always(field(1), inputs);
        builder.push_slot_always(field(2), outputs);
        builder.push_slot_always(field(3), operators);
        let graph = builder.end_table(graph);
        let graphs = builder.create_vector(&[graph]);
        let codes: Vec<Table> = codes
            .iter()
            .map(|code| {
                let table = builder.start_table();
                builder.push_slot_always(field(0), *code as i8);
                builder.push_slot_always(field(2), 1_i32);
                builder.push_slot_always(field(3), *code);
                builder.end_table(table)
            })
            .collect();
        let codes = builder.create_vector(&codes);
        let data = builder.create_vector(bytes);
        let empty = builder.start_table();
        let empty = builder.end_table(empty);
        let filled = builder.start_table();
        builder.push_slot_always(field(0), data);
        let filled = builder.end_table(filled);
        let buffers = builder.create_vector(&[empty, filled]);
        let model = builder.start_table();
        builder.push_slot_always(field(0), 3_u32);
        builder.push_slot_always(field(1), codes);
        builder.push_slot_always(field(2), graphs);
        builder.push_slot_always(field(4), buffers);
        let model = builder.end_table(model);
        builder.finish(model, Some("TFL3"));
        builder.finished_data().to_vec()
    }
}

/// A sum and a product with all 16-bit floats there are; with the floats themselves, if they are an output,
/// too.
fn model(is_output: bool) -> Vec<u8> {
    const COUNT: usize = 1 << 16;
    let mut file = File::default();
    let x = file.tensor((1, FLOAT32), 0);
    let halves = file.tensor((COUNT, FLOAT16), 1);
    let [values, sum, product] = [(); 3].map(|()| file.tensor((COUNT, FLOAT32), 0));
    file.operator(0, &[halves], values);
    file.operator(1, &[x, values], sum);
    file.operator(2, &[values, x], product);
    let outputs = if is_output {
        vec![sum, product, values]
    } else {
        vec![sum, product]
    };
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    file.finish(&[DEQUANTIZE, ADD, MUL], &bytes, (&[x], &outputs))
}

fn assert_values(found: &[u8], of: impl Fn(f32) -> f32, what: &str) {
    for (bits, found) in (0..=u16::MAX).zip(found.as_chunks().0) {
        let (found, expected) = (f32::from_le_bytes(*found), of(f16::from_bits(bits).to_f32()));
        let are_alike = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(
            are_alike,
            "{what} of half {bits:#06x}: {found:e}, expected {expected:e}"
        );
    }
}

/// Subnormal ones, infinities, both zeros and NaNs are among them.
#[test]
fn every_half_has_its_value_for_two_readers_and_as_an_output() {
    for is_output in [false, true] {
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let imported = nnhal_tflite::import(&model(is_output)).unwrap();
            let operations = imported.model.main.operations.iter();
            let types: Vec<OperationType> = operations.map(|operation| operation.operation_type).collect();
            assert!(!types.contains(&OperationType::DEQUANTIZE), "{types:?}");
            let mut runner = Runner::with_kernels(imported, kernels).unwrap();
            let outputs = runner.run(&[&(-2.0_f32).to_le_bytes()]);
            let what = |output| format!("the {output} by {kernels:?} kernels");
            assert_values(&outputs[0], |value| -2.0 + value, &what("sum"));
            assert_values(&outputs[1], |value| value * -2.0, &what("product"));
            if is_output {
                assert_values(&outputs[2], |value| value, &what("value"));
            }
        }
    }
}
