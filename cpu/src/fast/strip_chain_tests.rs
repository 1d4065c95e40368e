//! Convolutions that are computed together, beside the same ones alone.

use std::sync::Arc;

use nnhal::hal::{NoPools, Operand, OperandType, OperationType as O, Shape, SubgraphIndex};
use nnhal::ops::padding::Window;

use super::{advance, most_seen, seen};
use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, OwnCores, Program, RunOptions, Threads};

/// A graph of convolutions on one image, all of the same padding.
struct Network {
    graph: TestGraph,
    /// 1 for SAME, 2 for VALID.
    padding: i32,
}

impl Network {
    /// Its input is operand 0.
    fn new(dims: [u32; 4], padding: i32) -> Network {
        let mut graph = TestGraph::default();
        graph.input(Operand::new(OperandType::TENSOR_FLOAT32, &dims));
        Network { graph, padding }
    }

    fn dims(&self, operand: u32) -> [u32; 4] {
        let dimensions = &self.graph.model.main.operands[operand as usize].dimensions;
        dimensions[..].try_into().unwrap()
    }

    fn floats(&mut self, dims: &[u32]) -> u32 {
        let count = dims.iter().product::<u32>() as usize;
        let values: Vec<f32> = (0..count)
            .map(|at| ((at * 7919) % 211) as f32 / 64.0 - 1.5)
            .collect();
        let operand = Operand::new(OperandType::TENSOR_FLOAT32, dims);
        self.graph.constant(operand, bytemuck::cast_slice(&values))
    }

    fn scalar(&mut self, value: i32) -> u32 {
        self.graph.scalar(value)
    }

    /// One more operation; returns the operand of these dimensions that it computes.
    fn operation(&mut self, operation_type: O, inputs: &[u32], dims: [u32; 4]) -> u32 {
        let output = Operand::new(OperandType::TENSOR_FLOAT32, &dims);
        self.graph.operation(operation_type, inputs, output)
    }

    fn extent(&self, input: u32, filter: u32, stride: u32) -> u32 {
        match self.padding {
            1 => input.div_ceil(stride),
            _ => (input - filter) / stride + 1,
        }
    }

    /// A convolution with a square filter, cut at 0 and 6.
    fn convolution(&mut self, input: u32, filter: u32, stride: u32, channels: u32) -> u32 {
        let [batch, height, width, depth] = self.dims(input);
        let weights = self.floats(&[channels, filter, filter, depth]);
        let bias = self.floats(&[channels]);
        let rest = [self.padding, stride as i32, stride as i32, 3].map(|value| self.scalar(value));
        let [height, width] = [height, width].map(|extent| self.extent(extent, filter, stride));
        let inputs = [&[input, weights, bias][..], &rest].concat();
        self.operation(O::CONV_2D, &inputs, [batch, height, width, channels])
    }

    fn depthwise(&mut self, input: u32, filter: u32, stride: u32) -> u32 {
        let [batch, height, width, channels] = self.dims(input);
        let weights = self.floats(&[1, filter, filter, channels]);
        let bias = self.floats(&[channels]);
        let rest = [self.padding, stride as i32, stride as i32, 1, 0].map(|value| self.scalar(value));
        let [height, width] = [height, width].map(|extent| self.extent(extent, filter, stride));
        let inputs = [&[input, weights, bias][..], &rest].concat();
        self.operation(O::DEPTHWISE_CONV_2D, &inputs, [batch, height, width, channels])
    }

    fn pixels(&mut self, input: u32, channels: u32) -> u32 {
        self.convolution(input, 1, 1, channels)
    }

    fn sum(&mut self, left: u32, right: u32) -> u32 {
        let activation = self.scalar(0);
        let dims = self.dims(left);
        self.operation(O::ADD, &[left, right, activation], dims)
    }

    /// As from the image, less a few channels.
    fn widened(&mut self, input: u32, channels: u32) -> u32 {
        let [batch, height, width, depth] = self.dims(input);
        let paddings: [i32; 8] = [0, 0, 0, 0, 0, 0, 0, (channels - depth) as i32];
        let operand = Operand::new(OperandType::TENSOR_INT32, &[4, 2]);
        let paddings = self.graph.constant(operand, bytemuck::cast_slice(&paddings));
        self.operation(O::PAD, &[input, paddings], [batch, height, width, channels])
    }

    fn prelu(&mut self, input: u32) -> u32 {
        let dims = self.dims(input);
        let slopes = self.floats(&dims[3..]);
        self.operation(O::PRELU, &[input, slopes], dims)
    }

    /// Runs it with these outputs, by one thread and three, twice; returns them and the names of what computes its
    /// operations.
    fn run(&self, outputs: &[u32]) -> (Vec<Vec<u8>>, Vec<&'static str>) {
        self.run_by(KernelSet::Fast, outputs)
    }

    fn run_by(&self, kernels: KernelSet, outputs: &[u32]) -> (Vec<Vec<u8>>, Vec<&'static str>) {
        let valid = self.graph.valid(outputs);
        let program = Arc::new(Program::with_kernels(valid, &NoPools, kernels).unwrap());
        let mut execution = Execution::new(Arc::clone(&program));
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        let threads = [Threads::ALONE, Threads::new(&helpers, &cores, 3)];
        let [results, again, parted] = [threads[0], threads[0], threads[1]].map(|threads| {
            let input = execution.input(0, &Shape::new(&self.dims(0)).unwrap()).unwrap();
            for (at, value) in input.chunks_exact_mut(4).enumerate() {
                let float = ((at * 7919) % 2003) as f32 * 0.01 - 10.0;
                value.copy_from_slice(&float.to_ne_bytes());
            }
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            execution.run(&options).unwrap();
            let output = |at| execution.output(at).unwrap().1.to_vec();
            (0..outputs.len()).map(output).collect::<Vec<_>>()
        });
        assert!(results == again && results == parted);
        let operations = 0..self.graph.model.main.operations.len();
        let names = operations.map(|at| program.kernel_name(SubgraphIndex::Main, at));
        (results, names.collect())
    }

    /// Asserts that all operations are computed together, with the same results as each alone.
    fn assert_together(&self) {
        let last = self.graph.model.main.operations.len() - 1;
        let outputs = self
            .graph
            .model
            .main
            .operations
            .iter()
            .map(|operation| operation.outputs[0]);
        let all: Vec<u32> = outputs.collect();
        let (together, names) = self.run(&all[last..]);
        assert_eq!(names[0], FIRST);
        assert!(names[1..].iter().all(|name| *name == OTHERS), "{names:?}");
        let (alone, names) = self.run(&all);
        assert!(!names.contains(&OTHERS), "{names:?}");
        assert!(together[0] == alone[last]);
        let (exact, _) = self.run_by(KernelSet::Reference, &all[last..]);
        let [found, exact]: [&[f32]; 2] = [&together[0], &exact[0]].map(|bytes| bytemuck::cast_slice(bytes));
        for (found, exact) in found.iter().zip(exact) {
            let most = 1e-3 + exact.abs() * 1e-4;
            assert!((found - exact).abs() <= most, "{found} in place of {exact}");
        }
    }
}

const FIRST: &str = "f32 row by row, with the next";
const OTHERS: &str = "with the one before";

#[test]
fn layers_are_computed_together_as_alone() {
    for padding in [1, 2] {
        for (filter, stride) in [(3, 1), (3, 2), (5, 2)] {
            let mut network = Network::new([1, 131, 133, 3], padding);
            let first = network.convolution(0, 3, 2, 36);
            let second = network.depthwise(first, 3, 1);
            let third = network.pixels(second, 40);
            network.depthwise(third, filter, stride);
            network.assert_together();
        }
    }
}

#[test]
fn first_layer_may_be_depthwise_and_images_many() {
    let mut network = Network::new([2, 41, 97, 36], 1);
    let first = network.depthwise(0, 5, 1);
    network.pixels(first, 8);
    network.assert_together();
}

#[test]
fn layers_with_many_channels_are_computed_together_as_alone() {
    for padding in [1, 2] {
        let mut network = Network::new([1, 131, 67, 50], padding);
        let first = network.depthwise(0, 3, 1);
        let second = network.pixels(first, 83);
        let third = network.depthwise(second, 3, 2);
        network.pixels(third, 64);
        network.assert_together();
    }
}

#[test]
fn element_wise_operations_follow_row_by_row() {
    let mut network = Network::new([2, 68, 64, 32], 1);
    let first = network.depthwise(0, 5, 1);
    let second = network.pixels(first, 32);
    let sum = network.sum(second, 0);
    network.prelu(sum);
    network.assert_together();
    // In between, and with an operand that has fewer channels.
    let mut network = Network::new([1, 68, 64, 24], 1);
    let first = network.pixels(0, 36);
    let cut = network.prelu(first);
    let second = network.depthwise(cut, 3, 1);
    let widened = network.widened(0, 36);
    network.sum(widened, second);
    network.assert_together();
}

#[test]
fn what_others_read_is_a_tensor() {
    let mut network = Network::new([1, 68, 64, 32], 1);
    let first = network.depthwise(0, 3, 1);
    let second = network.pixels(first, 32);
    let third = network.depthwise(second, 3, 1);
    let last = network.sum(third, first);
    let (_, names) = network.run(&[last]);
    // The first is read at the end.
    assert_eq!(names[1..], [FIRST, OTHERS, OTHERS]);
    assert!(names[0] != FIRST);
}

#[test]
fn small_images_and_large_matrices_are_left_to_the_layers() {
    for (dims, channels) in [([1, 16, 16, 32], 32), ([1, 16, 32, 512], 512)] {
        let mut network = Network::new(dims, 1);
        let first = network.depthwise(0, 3, 1);
        let last = network.pixels(first, channels);
        let (_, names) = network.run(&[last]);
        assert!(!names.contains(&OTHERS), "{names:?}");
    }
}

#[test]
fn networks_along_one_axis_are_left_to_the_layers() {
    let mut network = Network::new([1, 8, 4096, 8], 1);
    let first = network.pixels(0, 16);
    let second = network.prelu(first);
    let last = network.depthwise(second, 3, 1);
    let (_, names) = network.run(&[last]);
    assert!(!names.contains(&OTHERS), "{names:?}");
}

#[test]
fn rows_that_windows_see_are_those_of_their_taps() {
    for height in [1, 2, 7, 12] {
        for (filter, dilation) in [(1, 1), (3, 1), (2, 3), (5, 1)] {
            for (stride, head) in [(1, 0), (2, 1), (3, 2), (1, 9)] {
                let window = Window::explicit(filter, stride, dilation, head, 9).unwrap();
                for start in 0..9 {
                    for end in start + 1..12 {
                        let taps = (start..end).flat_map(|row| {
                            let first = row as i64 * i64::from(stride) - i64::from(head);
                            (0..i64::from(filter)).map(move |tap| first + tap * i64::from(dilation))
                        });
                        let inside = taps.filter(|row| (0..height).contains(row));
                        let rows = seen(&window, height as usize, &(start..end));
                        for row in inside {
                            assert!(rows.contains(&(row as usize)), "{window:?} {start}..{end}");
                        }
                        assert!(rows.len() <= most_seen(&window, height as usize, end - start));
                    }
                }
            }
        }
    }
}

#[test]
fn strips_keep_what_is_seen_again() {
    let mut strip = [0; 8].map(|_: i32| 0.0);
    let mut held = 0..0;
    assert_eq!(advance((&mut strip, 2), &mut held, 1..4), 1..4);
    assert_eq!(held, 1..4);
    strip = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 0.0, 0.0];
    assert_eq!(advance((&mut strip, 2), &mut held, 3..6), 4..6);
    assert_eq!((&strip[..2], held.clone()), (&[3.0, 3.5][..], 3..6));
    // Nothing new, and a step over rows that nobody sees.
    assert_eq!(advance((&mut strip, 2), &mut held, 5..6), 6..6);
    assert_eq!(advance((&mut strip, 2), &mut held, 8..9), 8..9);
    assert_eq!(held, 8..9);
}
