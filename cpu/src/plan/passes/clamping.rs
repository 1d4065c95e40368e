//! RELU, RELU1 and RELU6 behind a layer without an activation: the layer clamps its results itself, as if the
//! activation were its own, and computes what the operation does.

use nnhal_hal::{Operand, OperandLifeTime, OperationType};

use crate::kernels::activation_range::Activation;
use crate::plan::declared::holds_the_same;
use crate::plan::graph::{Graph, Replacement, Rewrite};
use crate::plan::node::{Computed, Node};

pub(super) struct Clamping;

impl Rewrite for Clamping {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let (_, layer) = graph.from(at).next()?;
        layer.step()?;
        let &[sums] = &layer.operation.outputs[..] else {
            return None;
        };
        let operand = graph.operands.get(sums as usize)?;
        if operand.lifetime != OperandLifeTime::TemporaryVariable || operand.number_of_consumers != 1 {
            return None;
        }
        let (place, clamp) = graph.last_reader(sums)?;
        let activation = activation(clamp.operation.operation_type)?;
        let result = graph.operands.get(*clamp.operation.outputs.first()? as usize)?;
        if !(clamp.is_plain() && are_alike((operand, layer), (result, clamp))) {
            return None;
        }
        let does_clamp = graph.node_mut(at)?.clamp(activation);
        does_clamp.then(|| Replacement {
            places: vec![at, place],
            // Where the layer was: only what clamps reads its results, and all that it reads is there.
            at,
            node: Box::new(join),
        })
    }
}

/// The layer, with the result of what clamps that of its own.
fn join(mut both: Vec<Node>) -> Node {
    let clamp = both.remove(1);
    let mut layer = both.remove(0);
    layer.operation.outputs = clamp.operation.outputs;
    layer
        .computes
        .extend(clamp.computes.iter().map(|computed| Computed {
            number: computed.number,
            name: "as activation of the one before",
        }));
    layer
}

fn activation(operation: OperationType) -> Option<Activation> {
    match operation {
        OperationType::RELU => Some(Activation::Relu),
        OperationType::RELU1 => Some(Activation::Relu1),
        OperationType::RELU6 => Some(Activation::Relu6),
        _ => None,
    }
}

/// Whether results mean the same, and have the same shapes.
fn are_alike((operand, layer): (&Operand, &Node), (result, clamp): (&Operand, &Node)) -> bool {
    let shape = |node: &Node| node.fixed.as_ref().and_then(|fixed| fixed.shape());
    let is_one_shape = match (shape(layer), shape(clamp)) {
        (Some(one), Some(other)) => one == other,
        _ => operand.dimensions == result.dimensions,
    };
    is_one_shape && holds_the_same(operand, result)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};

    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    const CHANNELS: u32 = 12;
    const CLAMPED: &str = "as activation of the one before";

    /// A layer, what clamps its results, and an operation behind that.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        layer: O,
        ty: T,
        clamp: O,
        activation: i32,
        /// Whether the layer's results are read by another operation, too.
        is_read_twice: bool,
        /// Whether what clamps gives an output of the model.
        is_output: bool,
        /// Whether the layer's input is padded before it, and another operation stands before what clamps.
        is_padded: bool,
    }

    const CASE: Case = Case {
        layer: O::CONV_2D,
        ty: T::TENSOR_FLOAT32,
        clamp: O::RELU6,
        activation: 0,
        is_read_twice: false,
        is_output: false,
        is_padded: false,
    };

    fn typed(ty: T, dims: &[u32], scale: f32) -> Operand {
        let mut operand = Operand::new(ty, dims);
        if ty != T::TENSOR_FLOAT32 {
            (operand.scale, operand.zero_point) = (scale, 7);
        }
        operand
    }

    impl Case {
        fn is_float(self) -> bool {
            self.ty == T::TENSOR_FLOAT32
        }

        fn values(self, count: u32) -> Vec<u8> {
            let value = |at: u32| (at * 37 % 23) as i32 - 11;
            if self.is_float() {
                (0..count)
                    .flat_map(|at| (value(at) as f32 / 4.0).to_ne_bytes())
                    .collect()
            } else {
                (0..count).map(|at| (value(at) + 7) as u8).collect()
            }
        }

        fn constant(self, graph: &mut TestGraph, dims: &[u32], scale: f32) -> u32 {
            let bytes = self.values(dims.iter().product());
            graph.constant(typed(self.ty, dims, scale), &bytes)
        }

        fn bias(self, graph: &mut TestGraph) -> u32 {
            if self.is_float() {
                return self.constant(graph, &[CHANNELS], 0.0);
            }
            let mut operand = Operand::new(T::TENSOR_INT32, &[CHANNELS]);
            operand.scale = 0.25 * 0.125;
            let steps: Vec<u8> = (0..CHANNELS as i32)
                .flat_map(|at| (9 * at - 40).to_ne_bytes())
                .collect();
            graph.constant(operand, &steps)
        }

        /// The model, and what its operations are computed by.
        fn program(self, kernels: KernelSet) -> Program {
            let mut graph = TestGraph::default();
            let is_flat = self.layer == O::FULLY_CONNECTED;
            let dims: &[u32] = if is_flat {
                &[3, CHANNELS]
            } else {
                &[1, 4, 5, CHANNELS]
            };
            let input = graph.input(typed(self.ty, dims, 0.25));
            let filter: &[u32] = match self.layer {
                O::FULLY_CONNECTED => &[CHANNELS, CHANNELS],
                O::DEPTHWISE_CONV_2D => &[1, 3, 3, CHANNELS],
                _ => &[CHANNELS, 3, 3, CHANNELS],
            };
            let image = if self.is_padded {
                let paddings = Operand::new(T::TENSOR_INT32, &[4, 2]);
                let ones = [0, 0, 1, 1, 1, 1, 0, 0_i32];
                let paddings = graph.constant(paddings, bytemuck::cast_slice(&ones));
                let padded = typed(self.ty, &[1, 6, 7, CHANNELS], 0.25);
                graph.operation(O::PAD, &[input, paddings], padded)
            } else {
                input
            };
            let filter = self.constant(&mut graph, filter, 0.125);
            let bias = self.bias(&mut graph);
            let padding = if self.is_padded { 2 } else { 1 };
            let scalars: &[i32] = match self.layer {
                O::FULLY_CONNECTED => &[],
                O::DEPTHWISE_CONV_2D => &[padding, 1, 1, 1],
                _ => &[padding, 1, 1],
            };
            let scalars: Vec<u32> = scalars
                .iter()
                .chain([&self.activation])
                .map(|value| graph.scalar(*value))
                .collect();
            let inputs = [&[image, filter, bias][..], &scalars].concat();
            let result = typed(self.ty, dims, 0.5);
            let sums = graph.operation(self.layer, &inputs, result.clone());
            let none = graph.scalar(0);
            let other = match (self.is_read_twice, self.is_padded) {
                (true, _) => sums,
                (_, true) => graph.operation(O::ADD, &[input, input, none], result.clone()),
                _ => input,
            };
            let clamp = graph.operation(self.clamp, &[sums], result.clone());
            let last = graph.operation(O::ADD, &[clamp, other, none], result);
            let outputs: &[u32] = if self.is_output { &[last, clamp] } else { &[last] };
            let model: Arc<ValidModel> = graph.valid(outputs);
            Program::with_kernels(model, &NoPools, kernels).unwrap()
        }

        fn results(self, kernels: KernelSet) -> Vec<Vec<u8>> {
            let program = self.program(kernels);
            let dims = program.model().model().main.operands[0].dimensions.clone();
            let mut execution = Execution::new(Arc::new(program));
            let shape = Shape::new(&dims).unwrap();
            let values = self.values(dims.iter().product());
            execution.input(0, &shape).unwrap().copy_from_slice(&values);
            execution.run(&RunOptions::default()).unwrap();
            let outputs = 0..1 + usize::from(self.is_output);
            outputs
                .map(|number| execution.output(number).unwrap().1.to_vec())
                .collect()
        }

        fn assert_as_reference(self) {
            let (found, expected) = (self.results(KernelSet::Fast), self.results(KernelSet::Reference));
            for (found, expected) in found.iter().zip(&expected) {
                if !self.is_float() {
                    assert_eq!(found, expected, "{self:?}");
                    continue;
                }
                let floats = |bytes: &[u8]| -> Vec<f32> {
                    let values = bytes.chunks_exact(size_of::<f32>());
                    values.map(bytemuck::pod_read_unaligned).collect()
                };
                let pairs = floats(found).into_iter().zip(floats(expected));
                pairs.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-4, "{self:?}"));
            }
        }

        fn clamped_by(self) -> &'static str {
            self.program(KernelSet::Fast)
                .kernel_name(SubgraphIndex::Main, 1, 1)
        }
    }

    #[test]
    fn layers_cut_what_they_give() {
        for layer in [O::CONV_2D, O::DEPTHWISE_CONV_2D, O::FULLY_CONNECTED] {
            for ty in [
                T::TENSOR_FLOAT32,
                T::TENSOR_QUANT8_ASYMM,
                T::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                for clamp in [O::RELU, O::RELU1, O::RELU6] {
                    let case = Case {
                        layer,
                        ty,
                        clamp,
                        ..CASE
                    };
                    case.assert_as_reference();
                    assert_eq!(case.clamped_by(), CLAMPED, "{case:?}");
                }
            }
        }
    }

    #[test]
    fn layers_that_pad_their_input_clamp_what_they_give() {
        for layer in [O::CONV_2D, O::DEPTHWISE_CONV_2D] {
            for ty in [
                T::TENSOR_FLOAT32,
                T::TENSOR_QUANT8_ASYMM,
                T::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                let case = Case {
                    layer,
                    ty,
                    clamp: O::RELU,
                    is_padded: true,
                    ..CASE
                };
                case.assert_as_reference();
                let program = case.program(KernelSet::Fast);
                // PAD, the layer, another one, and what clamps.
                let with = [0, 1, 2, 3].map(|at| program.computed_with(SubgraphIndex::Main, at, 1));
                assert_eq!(with, [Some(0), Some(0), Some(2), Some(0)], "{case:?}");
            }
        }
    }

    #[test]
    fn results_that_others_see_are_left_as_they_are() {
        for ty in [T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM] {
            let twice = Case {
                ty,
                is_read_twice: true,
                ..CASE
            };
            let activated = Case {
                ty,
                activation: 1,
                clamp: O::RELU1,
                ..CASE
            };
            for case in [twice, activated] {
                case.assert_as_reference();
                assert_ne!(case.clamped_by(), CLAMPED, "{case:?}");
            }
            Case {
                ty,
                is_output: true,
                ..CASE
            }
            .assert_as_reference();
        }
    }
}
