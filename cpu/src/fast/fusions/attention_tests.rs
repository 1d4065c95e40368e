use std::sync::Arc;

use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};
use nnhal_os::cores::OwnCores;

use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

const FUSED: &str = "f32 attention row by row, with the next";

/// Attention of some extents, and what is done with its scores.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: u32,
    rows: u32,
    width: u32,
    /// Places that are attended to.
    columns: u32,
    /// Columns of the values.
    values: u32,
    /// Whether keys are stored row by row.
    transposed: bool,
    scaled: bool,
    masked: bool,
    /// Whether the weights are an output of the model.
    is_output: bool,
}

const CASE: Case = Case {
    heads: 3,
    rows: 37,
    width: 20,
    columns: 45,
    values: 24,
    transposed: false,
    scaled: true,
    masked: false,
    is_output: false,
};

impl Case {
    fn inputs(self) -> [Vec<u32>; 4] {
        let Case {
            heads,
            rows,
            width,
            columns,
            ..
        } = self;
        let key = if self.transposed {
            [1, heads, columns, width]
        } else {
            [1, heads, width, columns]
        };
        [
            vec![1, heads, rows, width],
            key.to_vec(),
            vec![1, heads, columns, self.values],
            vec![1, 1, 1, columns],
        ]
    }

    fn program(self, kernels: KernelSet) -> Arc<Program> {
        let floats = |dims: &[u32]| Operand::new(T::TENSOR_FLOAT32, dims);
        let mut graph = TestGraph::default();
        let [query, key, value, mask] = self.inputs().map(|dims| graph.input(floats(&dims)));
        let [no, transposed] = [false, self.transposed]
            .map(|flag| graph.constant(Operand::new(T::BOOL, &[]), &[u8::from(flag)]));
        let scores = floats(&[1, self.heads, self.rows, self.columns]);
        let mut last = graph.operation(O::BATCH_MATMUL, &[query, key, no, transposed], scores.clone());
        let none = graph.scalar(0);
        if self.scaled {
            let scale = graph.constant(floats(&[1]), &0.125_f32.to_ne_bytes());
            last = graph.operation(O::MUL, &[last, scale, none], scores.clone());
        }
        if self.masked {
            last = graph.operation(O::ADD, &[last, mask, none], scores.clone());
        }
        let beta = graph.constant(Operand::new(T::FLOAT32, &[]), &0.75_f32.to_ne_bytes());
        let weights = graph.operation(O::SOFTMAX, &[last, beta], scores);
        // Has nothing to do with it but that the values come of it.
        let value = graph.operation(O::NEG, &[value], floats(&self.inputs()[2]));
        let result = floats(&[1, self.heads, self.rows, self.values]);
        let result = graph.operation(O::BATCH_MATMUL, &[weights, value, no, no], result);
        let mut outputs = vec![result];
        if self.is_output {
            outputs.push(weights);
        }
        Arc::new(Program::with_kernels(graph.valid(&outputs), &NoPools, kernels).unwrap())
    }

    /// The results, by one thread and three.
    fn results(self, program: &Arc<Program>) -> [Vec<f32>; 2] {
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        [Threads::ALONE, Threads::new(&helpers, &cores, 3)].map(|threads| {
            let mut execution = Execution::new(Arc::clone(program));
            for (number, dims) in self.inputs().into_iter().enumerate() {
                let input = execution.input(number, &Shape::new(&dims).unwrap()).unwrap();
                for (at, value) in bytemuck::cast_slice_mut::<_, f32>(input).iter_mut().enumerate() {
                    *value = ((at * 7919 + number * 31) % 251) as f32 / 125.0 - 1.0;
                }
            }
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            execution.run(&options).unwrap();
            bytemuck::cast_slice(execution.output(0).unwrap().1).to_vec()
        })
    }

    fn assert_fused(self, is_fused: bool) {
        let [fast, reference] = [KernelSet::Fast, KernelSet::Reference].map(|set| self.program(set));
        let name = fast.kernel_name(SubgraphIndex::Main, 0, 1);
        assert_eq!(name == FUSED, is_fused, "{self:?}: {name}");
        let [exact, _] = self.results(&reference);
        for found in self.results(&fast) {
            assert_eq!(found.len(), exact.len());
            let close = |(found, exact): (&f32, &f32)| (found - exact).abs() < 1e-5;
            assert!(found.iter().zip(&exact).all(close), "{self:?}");
        }
    }
}

#[test]
fn results_are_near_the_reference() {
    for (scaled, masked) in [(true, true), (true, false), (false, true), (false, false)] {
        for transposed in [false, true] {
            Case {
                transposed,
                scaled,
                masked,
                ..CASE
            }
            .assert_fused(true);
        }
    }
}

#[test]
fn scores_of_many_rows_come_in_blocks() {
    Case {
        heads: 1,
        rows: 100,
        columns: 1500,
        ..CASE
    }
    .assert_fused(true);
    Case {
        heads: 5,
        rows: 1,
        width: 1,
        columns: 1,
        values: 1,
        ..CASE
    }
    .assert_fused(true);
}

#[test]
fn weights_that_others_read_are_a_tensor() {
    Case {
        is_output: true,
        ..CASE
    }
    .assert_fused(false);
}
