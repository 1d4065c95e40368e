//! PAD before a convolution, as padding of the convolution: what is padded is no tensor.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OperationContext;

use crate::fast::{Around, PaddedLayer};
use crate::plan::declared::{Declared, holds_the_same};
use crate::plan::graph::{Graph, Replacement, Rewrite};
use crate::plan::node::Node;

pub(super) struct Padded;

impl Rewrite for Padded {
    fn rewrite(&self, graph: &mut Graph<'_>, at: usize) -> Option<Replacement> {
        let [(_, pad), (place, convolution)] = graph.pair(at)?;
        let (around, input) = around(&graph.declared(pad))?;
        let padded = *pad.operation.outputs.first()?;
        let mut operation = convolution.operation.clone();
        let reads = operation.inputs.iter().filter(|operand| **operand == padded);
        let is_only_input = reads.count() == 1 && operation.inputs.first() == Some(&padded);
        if !(is_only_input && graph.ends_at(padded, place)) {
            return None;
        }
        let step = PaddedLayer::of(convolution.layer()?, &around)?;
        operation.inputs[0] = input;
        let node = Box::new(|parts| Node::fused_as(operation, Box::new(step), parts));
        Some(Replacement::behind(vec![at, place], node))
    }
}

/// What a PAD of images puts around them, and its input; `None` for other paddings, and where not everything
/// is known.
fn around(pad: &Declared<'_>) -> Option<(Around, u32)> {
    if pad.operation.operation_type != OperationType::PAD {
        return None;
    }
    let (&input, &output) = (pad.operation.inputs.first()?, pad.operation.outputs.first()?);
    let [from, to] = [input, output].map(|at| &pad.operands[at as usize]);
    let shape = pad.input(0).filter(|input| input.shape_known)?.shape;
    let &[_, height, width, _] = shape.dims() else {
        return None;
    };
    let paddings: &[i32] = bytemuck::try_cast_slice(pad.input(1)?.bytes?).ok()?;
    let &[0, 0, top, bottom, left, right, 0, 0] = paddings else {
        return None;
    };
    let is_none_negative = [top, bottom, left, right].iter().all(|padding| *padding >= 0);
    (is_none_negative && holds_the_same(from, to)).then_some((
        Around {
            vertical: [top, bottom],
            horizontal: [left, right],
            height,
            width,
        },
        input,
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape, SubgraphIndex};

    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    const HEIGHT: u32 = 6;
    const WIDTH: u32 = 9;
    const CHANNELS: u32 = 20;

    /// A convolution behind PAD.
    #[derive(Clone, Copy)]
    struct Case {
        ty: OperandType,
        convolution: OperationType,
        paddings: [i32; 8],
        /// The square filter's, and the stride.
        filter: [u32; 2],
        dilation: u32,
        /// Whether the output of PAD is one of the model.
        is_output: bool,
    }

    const CASE: Case = Case {
        ty: OperandType::TENSOR_FLOAT32,
        convolution: OperationType::CONV_2D,
        paddings: [0, 0, 1, 2, 0, 1, 0, 0],
        filter: [3, 2],
        dilation: 1,
        is_output: false,
    };

    impl Case {
        fn tensor(&self, dims: &[u32]) -> Operand {
            let operand = Operand::new(self.ty, dims);
            match self.ty {
                OperandType::TENSOR_FLOAT32 => operand,
                _ => operand.with_quantization(0.5, 7),
            }
        }

        fn model(&self) -> Arc<ValidModel> {
            let mut graph = TestGraph::default();
            let [filter, stride] = self.filter;
            let around = self.paddings.map(|padding| padding as u32);
            let [before, behind, top, bottom, left, right, front, back] = around;
            let padded = [
                1 + before + behind,
                HEIGHT + top + bottom,
                WIDTH + left + right,
                CHANNELS + front + back,
            ];
            let input = graph.input(self.tensor(&[1, HEIGHT, WIDTH, CHANNELS]));
            let paddings = Operand::new(OperandType::TENSOR_INT32, &[4, 2]);
            let paddings = graph.constant(paddings, bytemuck::cast_slice(&self.paddings));
            let image = graph.operation(OperationType::PAD, &[input, paddings], self.tensor(&padded));
            let is_depthwise = self.convolution == OperationType::DEPTHWISE_CONV_2D;
            let weight_dims = if is_depthwise {
                [1, filter, filter, CHANNELS]
            } else {
                [CHANNELS, filter, filter, padded[3]]
            };
            let count = weight_dims.iter().product::<u32>();
            let bytes: Vec<u8> = (0..count).map(|at| (at * 31 % 17) as u8).collect();
            let floats: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) - 8.0).collect();
            let is_float = self.ty == OperandType::TENSOR_FLOAT32;
            let (values, bias) = if is_float {
                let bias = Operand::new(OperandType::TENSOR_FLOAT32, &[CHANNELS]);
                (bytemuck::cast_slice(&floats), bias)
            } else {
                let bias = Operand::new(OperandType::TENSOR_INT32, &[CHANNELS]);
                (&bytes[..], bias.with_quantization(0.25, 0))
            };
            let weights = graph.constant(self.tensor(&weight_dims), values);
            let bias = graph.constant(bias, &[0; 4 * CHANNELS as usize]);
            // VALID, strides, one output for each channel, no activation; not NCHW, dilations.
            let mut inputs = vec![image, weights, bias];
            inputs.extend([2, stride as i32, stride as i32].map(|value| graph.scalar(value)));
            if is_depthwise {
                inputs.push(graph.scalar(1));
            }
            inputs.push(graph.scalar(0));
            inputs.push(graph.constant(Operand::new(OperandType::BOOL, &[]), &[0]));
            inputs.extend([self.dilation as i32; 2].map(|value| graph.scalar(value)));
            let effective = (filter - 1) * self.dilation + 1;
            let extent = |padded: u32| (padded - effective) / stride + 1;
            let mut result = self.tensor(&[padded[0], extent(padded[1]), extent(padded[2]), CHANNELS]);
            result.scale *= 900.0;
            let result = graph.operation(self.convolution, &inputs, result);
            if self.is_output {
                graph.valid(&[image, result])
            } else {
                graph.valid(&[result])
            }
        }

        /// The result, and whether PAD is no operation of its own.
        fn run(&self, kernels: KernelSet) -> (Vec<Vec<u8>>, bool) {
            let program = Arc::new(Program::with_kernels(self.model(), &NoPools, kernels).unwrap());
            let mut execution = Execution::new(Arc::clone(&program));
            let input = execution
                .input(0, &Shape::new(&[1, HEIGHT, WIDTH, CHANNELS]).unwrap())
                .unwrap();
            if self.ty == OperandType::TENSOR_FLOAT32 {
                for (at, value) in input.chunks_exact_mut(4).enumerate() {
                    value.copy_from_slice(&((at * 7 % 23) as f32 - 9.0).to_ne_bytes());
                }
            } else {
                for (at, value) in input.iter_mut().enumerate() {
                    *value = (at * 7 % 251) as u8;
                }
            }
            execution.run(&RunOptions::default()).unwrap();
            let outputs = 0..program.model().model().main.output_indexes.len();
            let bytes = outputs.map(|at| execution.output(at).unwrap().1.to_vec());
            (
                bytes.collect(),
                program.computed_with(SubgraphIndex::Main, 1, 1) == Some(0),
            )
        }

        fn assert_folded(&self, is_folded: bool) {
            let (expected, _) = self.run(KernelSet::Reference);
            let (found, folded) = self.run(KernelSet::Fast);
            assert_eq!(folded, is_folded);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn convolutions_pad_their_inputs_themselves() {
        for ty in [
            OperandType::TENSOR_FLOAT32,
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ] {
            for convolution in [OperationType::CONV_2D, OperationType::DEPTHWISE_CONV_2D] {
                for paddings in [
                    [0, 0, 1, 2, 0, 1, 0, 0],
                    [0, 0, 0, 1, 0, 1, 0, 0],
                    [0, 0, 2, 0, 2, 2, 0, 0],
                ] {
                    for filter in [[3, 1], [3, 2], [5, 2]] {
                        Case {
                            ty,
                            convolution,
                            paddings,
                            filter,
                            ..CASE
                        }
                        .assert_folded(true);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_padding_of_a_convolution_is_left_as_it_is() {
        CASE.assert_folded(true);
        Case {
            is_output: true,
            ..CASE
        }
        .assert_folded(false);
        // Other axes, and a window in the padding as a whole.
        for axis in [0, 1, 6, 7] {
            let mut paddings = CASE.paddings;
            paddings[axis] = 1;
            Case { paddings, ..CASE }.assert_folded(false);
        }
        Case {
            paddings: [0, 0, 3, 0, 0, 0, 0, 0],
            dilation: 2,
            ..CASE
        }
        .assert_folded(true);
        Case {
            paddings: [0, 0, 3, 0, 0, 0, 0, 0],
            ..CASE
        }
        .assert_folded(false);
        Case {
            filter: [1, 1],
            ..CASE
        }
        .assert_folded(false);
    }
}
