//! For the unit tests of what computes operations together: graphs of convolutions of floats and what is
//! around them.

use std::cell::RefCell;
use std::sync::Arc;

use nnhal_hal::{NoPools, Operand, OperandType, OperationType as O, Shape, SubgraphIndex};
use nnhal_os::cores::OwnCores;

use crate::execute::{ObservedOperation, Observer};
use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

/// The name of what computes operations that are computed with one before.
pub(super) const OTHERS: &str = "with the one before";

/// Of each operation in turn, whether it was computed with one before: those take no time.
#[derive(Default)]
struct Observed(RefCell<Vec<bool>>);

impl Observer for Observed {
    fn operation_ended(&self, observed: &ObservedOperation) {
        self.0.borrow_mut().push(observed.started == observed.ended);
    }
}

/// A graph of convolutions on one image, all of the same padding.
pub(super) struct Network {
    graph: TestGraph,
    /// 1 for SAME, 2 for VALID.
    padding: i32,
}

impl Network {
    /// Its input is operand 0.
    pub(super) fn new(dims: [u32; 4], padding: i32) -> Network {
        let mut graph = TestGraph::default();
        graph.input(Operand::new(OperandType::TENSOR_FLOAT32, &dims));
        Network { graph, padding }
    }

    fn dims(&self, operand: u32) -> [u32; 4] {
        let dimensions = &self.graph.model.main.operands[operand as usize].dimensions;
        dimensions[..].try_into().unwrap()
    }

    pub(super) fn floats(&mut self, dims: &[u32]) -> u32 {
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

    /// A convolution with a square filter, clamped at 0 and 6.
    pub(super) fn convolution(&mut self, input: u32, filter: u32, stride: u32, channels: u32) -> u32 {
        self.layer(input, (filter, stride, channels), 3)
    }

    /// A convolution with a square filter and stride, so many channels, and this activation.
    pub(super) fn layer(
        &mut self,
        input: u32,
        (filter, stride, channels): (u32, u32, u32),
        activation: i32,
    ) -> u32 {
        let [batch, height, width, depth] = self.dims(input);
        let weights = self.floats(&[channels, filter, filter, depth]);
        let bias = self.floats(&[channels]);
        let rest = [self.padding, stride as i32, stride as i32, activation].map(|value| self.scalar(value));
        let [height, width] = [height, width].map(|extent| self.extent(extent, filter, stride));
        let inputs = [&[input, weights, bias][..], &rest].concat();
        self.operation(O::CONV_2D, &inputs, [batch, height, width, channels])
    }

    pub(super) fn depthwise(&mut self, input: u32, filter: u32, stride: u32) -> u32 {
        let [batch, height, width, channels] = self.dims(input);
        let weights = self.floats(&[1, filter, filter, channels]);
        let bias = self.floats(&[channels]);
        let rest = [self.padding, stride as i32, stride as i32, 1, 0].map(|value| self.scalar(value));
        let [height, width] = [height, width].map(|extent| self.extent(extent, filter, stride));
        let inputs = [&[input, weights, bias][..], &rest].concat();
        self.operation(O::DEPTHWISE_CONV_2D, &inputs, [batch, height, width, channels])
    }

    pub(super) fn pixels(&mut self, input: u32, channels: u32) -> u32 {
        self.convolution(input, 1, 1, channels)
    }

    pub(super) fn sum(&mut self, left: u32, right: u32) -> u32 {
        self.clamped_sum(left, right, 0)
    }

    /// With this activation.
    pub(super) fn clamped_sum(&mut self, left: u32, right: u32, activation: i32) -> u32 {
        let activation = self.scalar(activation);
        let dims = self.dims(left);
        self.operation(O::ADD, &[left, right, activation], dims)
    }

    /// As many channels, of which those that the operand does not have are zeros behind its own.
    pub(super) fn widened(&mut self, input: u32, channels: u32) -> u32 {
        self.widened_from(input, 0, channels)
    }

    /// The same with this many zeros before its own.
    pub(super) fn widened_from(&mut self, input: u32, before: u32, channels: u32) -> u32 {
        let [batch, height, width, depth] = self.dims(input);
        let behind = channels - depth - before;
        let paddings: [i32; 8] = [0, 0, 0, 0, 0, 0, before as i32, behind as i32];
        let operand = Operand::new(OperandType::TENSOR_INT32, &[4, 2]);
        let paddings = self.graph.constant(operand, bytemuck::cast_slice(&paddings));
        self.operation(O::PAD, &[input, paddings], [batch, height, width, channels])
    }

    /// At 0 and 6.
    pub(super) fn clamp(&mut self, input: u32) -> u32 {
        let dims = self.dims(input);
        self.operation(O::RELU6, &[input], dims)
    }

    pub(super) fn logistic(&mut self, input: u32) -> u32 {
        let dims = self.dims(input);
        self.operation(O::LOGISTIC, &[input], dims)
    }

    pub(super) fn prelu(&mut self, input: u32) -> u32 {
        let dims = self.dims(input);
        let slopes = self.floats(&dims[3..]);
        self.operation(O::PRELU, &[input, slopes], dims)
    }

    /// Runs it with these outputs, by one thread and three, twice; returns them and the names of what
    /// computes its operations.
    pub(super) fn run(&self, outputs: &[u32]) -> (Vec<Vec<u8>>, Vec<&'static str>) {
        self.run_by(KernelSet::Fast, outputs)
    }

    fn run_by(&self, kernels: KernelSet, outputs: &[u32]) -> (Vec<Vec<u8>>, Vec<&'static str>) {
        let program = self.program(kernels, outputs);
        let mut execution = Execution::new(Arc::clone(&program));
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        let threads = [Threads::ALONE, Threads::new(&helpers, &cores, 3)];
        let [results, again, parted] = [threads[0], threads[0], threads[1]].map(|threads| {
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            self.execute(&mut execution, &options);
            let output = |at| execution.output(at).unwrap().1.to_vec();
            (0..outputs.len()).map(output).collect::<Vec<_>>()
        });
        assert!(results == again && results == parted);
        (results, self.names(&program, 1))
    }

    fn program(&self, kernels: KernelSet, outputs: &[u32]) -> Arc<Program> {
        let valid = self.graph.valid(outputs);
        Arc::new(Program::with_kernels(valid, &NoPools, kernels).unwrap())
    }

    fn execute(&self, execution: &mut Execution, options: &RunOptions<'_>) {
        let input = execution.input(0, &Shape::new(&self.dims(0)).unwrap()).unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            let float = ((at * 7919) % 2003) as f32 * 0.01 - 10.0;
            value.copy_from_slice(&float.to_ne_bytes());
        }
        execution.run(options).unwrap();
    }

    /// The names of what computes the operations, by so many threads.
    fn names(&self, program: &Program, threads: usize) -> Vec<&'static str> {
        let operations = 0..self.graph.model.main.operations.len();
        let names = operations.map(|at| program.kernel_name(SubgraphIndex::Main, at, threads));
        names.collect()
    }

    /// The names of what computes the operations, by so many threads. Runs it by as many, and asserts that it
    /// is so and that one thread has the same results.
    pub(super) fn names_by(&self, threads: usize, outputs: &[u32]) -> Vec<&'static str> {
        let program = self.program(KernelSet::Fast, outputs);
        let mut execution = Execution::new(Arc::clone(&program));
        let (helpers, cores) = (Helpers::new(threads - 1), OwnCores::new(threads));
        let observed = Observed::default();
        let options = |observer| RunOptions {
            threads: Threads::new(&helpers, &cores, threads),
            observer,
            ..RunOptions::default()
        };
        self.execute(&mut execution, &RunOptions::default());
        let results = |execution: &Execution| {
            let output = |at| execution.output(at).unwrap().1.to_vec();
            (0..outputs.len()).map(output).collect::<Vec<_>>()
        };
        let alone = results(&execution);
        // How much there is to part is known from the first of these on.
        self.execute(&mut execution, &options(None));
        self.execute(&mut execution, &options(Some(&observed)));
        assert!(results(&execution) == alone, "{threads} threads");
        let names = self.names(&program, threads);
        let with_others: Vec<bool> = names
            .iter()
            .map(|name| name.ends_with("the one before"))
            .collect();
        assert_eq!(observed.0.into_inner(), with_others);
        names
    }

    /// Asserts that all operations are computed together, with the same results as each alone; returns the
    /// name of what does.
    pub(super) fn assert_grouped(&self) -> &'static str {
        let names = self.assert_as_alone();
        assert!(names[1..].iter().all(|name| *name == OTHERS), "{names:?}");
        names[0]
    }

    /// Asserts that results are those of each operation alone, whichever are computed together; returns what
    /// does.
    pub(super) fn assert_as_alone(&self) -> Vec<&'static str> {
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
        let (alone, names_alone) = self.run(&all);
        assert!(!names_alone.contains(&OTHERS), "{names_alone:?}");
        assert!(together[0] == alone[last]);
        let (exact, _) = self.run_by(KernelSet::Reference, &all[last..]);
        let [found, exact]: [&[f32]; 2] = [&together[0], &exact[0]].map(|bytes| bytemuck::cast_slice(bytes));
        let largest = exact
            .iter()
            .fold(0.0_f32, |largest, exact| largest.max(exact.abs()));
        for (found, exact) in found.iter().zip(exact) {
            let most = 1e-3 + largest * 1e-6 + exact.abs() * 1e-4;
            assert!((found - exact).abs() <= most, "{found} in place of {exact}");
        }
        names
    }
}
