//! Operations that converters put one behind the other, and layers of large images: what fast devices compute
//! together, and operations that are drawn one by one hardly ever make.

use nnhal_hal::ops;
use nnhal_hal::{Operand, OperandType, OperationType, Shape};

use super::choices::Choices;
use super::graph::{Drawn, Graph, Role};
use super::operation::{Adding, complete};
use super::types::some_quantization;
use super::values;

/// What patterns have beside all others: one in so many is of large images, which take as long as hundreds of
/// small models.
const LARGE_IMAGES: u32 = 12;

/// Elements of a large image with many channels.
const MOST_ELEMENTS: usize = 1 << 19;

/// Tries to add a pattern; the graph is as before if its arguments do not fit.
pub(super) fn try_pattern(graph: &mut Graph, choices: &mut Choices) -> bool {
    let (operands, operations) = (graph.operands.len(), graph.operations.len());
    let mut pattern = Pattern { graph, choices };
    let added = if pattern.choices.once_in(LARGE_IMAGES) {
        pattern.row_by_row()
    } else {
        match pattern.choices.below(4) {
            0 => pattern.padded_layer(),
            1 => pattern.followed_layer(),
            2 => pattern.layer_of_integers(),
            _ => pattern.offset(),
        }
    };
    if added.is_none() {
        graph.operands.truncate(operands);
        graph.operations.truncate(operations);
    }
    added.is_some()
}

/// How a convolution sees its image.
#[derive(Clone, Copy)]
struct Window {
    /// Height and width of the filter.
    filter: u32,
    stride: u32,
    is_padded: bool,
}

impl Window {
    const PIXEL: Window = Window {
        filter: 1,
        stride: 1,
        is_padded: false,
    };
}

/// A pattern while it is drawn.
struct Pattern<'a> {
    graph: &'a mut Graph,
    choices: &'a mut Choices,
}

impl Pattern<'_> {
    /// One of some things, the first of which is the simplest.
    fn one_of<T: Copy, const N: usize>(&mut self, items: [T; N]) -> T {
        items[self.choices.below(N as u32) as usize]
    }

    /// An operand whose value is known before the execution.
    fn add(&mut self, operand: Operand, value: nnhal_os::buffer::AlignedBuffer, role: Role) -> u32 {
        let shape = Shape::new(&operand.dimensions).unwrap_or_default();
        self.graph.add(Drawn {
            operand,
            shape: Some(shape),
            value: Some(value),
            role,
        })
    }

    /// A tensor with some values.
    fn data(&mut self, ty: OperandType, dims: &[u32], role: Role) -> u32 {
        let mut operand = Operand::new(ty, dims);
        some_quantization(self.choices, &mut operand);
        let value = values::some(self.choices, ty, dims.iter().product::<u32>() as usize);
        self.add(operand, value, role)
    }

    /// A constant vector of floats.
    fn floats(&mut self, all: &[f64]) -> u32 {
        let ty = OperandType::TENSOR_FLOAT32;
        let operand = Operand::new(ty, &[all.len() as u32]);
        self.add(
            operand,
            values::encode(ty, all.iter().copied()),
            Role::ConstantCopy,
        )
    }

    fn scalar(&mut self, value: i32) -> u32 {
        let operand = Operand::new(OperandType::INT32, &[]);
        self.add(operand, values::integers(&[value]), Role::ConstantCopy)
    }

    fn operand(&self, index: u32) -> &Operand {
        &self.graph.operands[index as usize].operand
    }

    fn dims(&self, index: u32) -> Option<Vec<u32>> {
        Some(self.graph.operands.get(index as usize)?.shape?.dims().to_vec())
    }

    /// An operation with one output, which is of the type, scale and zero point of this operand.
    fn operation(&mut self, operation: OperationType, inputs: &[u32], like: &Operand) -> Option<u32> {
        let entry = ops::entry(operation)?;
        let mut output = Operand::new(like.operand_type, &[]);
        (output.scale, output.zero_point) = (like.scale, like.zero_point);
        let adding = Adding {
            entry,
            most_elements: MOST_ELEMENTS,
        };
        complete(self.graph, self.choices, adding, (inputs.to_vec(), vec![output]))?;
        self.graph.operations.last()?.outputs.first().copied()
    }

    /// An operation on floats.
    fn float(&mut self, operation: OperationType, inputs: &[u32]) -> Option<u32> {
        let float = Operand::new(OperandType::TENSOR_FLOAT32, &[]);
        self.operation(operation, inputs, &float)
    }

    /// One on two of them that has an activation.
    fn binary(&mut self, operation: OperationType, both: [u32; 2], activation: i32) -> Option<u32> {
        let activation = self.scalar(activation);
        self.float(operation, &[both[0], both[1], activation])
    }

    /// A convolution with so many filters, or a depthwise one without a number, which cuts to a range or not.
    fn convolution(
        &mut self,
        image: u32,
        columns: Option<u32>,
        window: Window,
        activation: i32,
    ) -> Option<u32> {
        let channels = *self.dims(image)?.last()?;
        let ty = self.operand(image).operand_type;
        let Window {
            filter,
            stride,
            is_padded,
        } = window;
        let (operation, dims, depth) = match columns {
            Some(columns) => (
                OperationType::CONV_2D,
                [columns, filter, filter, channels],
                channels,
            ),
            None => (OperationType::DEPTHWISE_CONV_2D, [1, filter, filter, channels], 1),
        };
        let weights = self.data(ty, &dims, Role::ConstantCopy);
        let bias = self.bias([image, weights], columns.unwrap_or(channels));
        let mut inputs = vec![image, weights, bias, self.scalar(if is_padded { 1 } else { 2 })];
        inputs.extend([self.scalar(stride as i32), self.scalar(stride as i32)]);
        if columns.is_none() {
            inputs.push(self.scalar(1));
        }
        inputs.push(self.scalar(activation));
        let output = self.sums_of([image, weights], filter * filter * depth);
        self.operation(operation, &inputs, &output)
    }

    /// The bias of an image and a filter.
    fn bias(&mut self, of: [u32; 2], columns: u32) -> u32 {
        if self.operand(of[0]).operand_type == OperandType::TENSOR_FLOAT32 {
            return self.data(OperandType::TENSOR_FLOAT32, &[columns], Role::ConstantCopy);
        }
        let ty = OperandType::TENSOR_INT32;
        let mut operand = Operand::new(ty, &[columns]);
        operand.scale = of.map(|operand| self.operand(operand).scale).iter().product();
        let value = values::some(self.choices, ty, columns as usize);
        self.add(operand, value, Role::ConstantCopy)
    }

    /// What holds the sums of so many products without cutting most of them.
    fn sums_of(&self, of: [u32; 2], products: u32) -> Operand {
        let [image, weights] = of.map(|operand| self.operand(operand));
        let mut output = image.clone();
        output.scale = image.scale * weights.scale * 100.0 * (products as f32).sqrt();
        output
    }

    /// PAD of an image and a convolution, of floats or of 8-bit values.
    fn padded_layer(&mut self) -> Option<()> {
        let ty = self.one_of([
            OperandType::TENSOR_FLOAT32,
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ]);
        let dims = [1 + self.choices.below(2), 5, 6, self.one_of([8, 3, 16, 20])];
        let image = self.data(ty, &dims, Role::Input);
        let [top, bottom, left, right] = [(); 4].map(|()| self.choices.below(3) as i32);
        let paddings = self.add(
            Operand::new(OperandType::TENSOR_INT32, &[4, 2]),
            values::integers(&[0, 0, top, bottom, left, right, 0, 0]),
            Role::ConstantCopy,
        );
        let like = self.operand(image).clone();
        let padded = self.operation(OperationType::PAD, &[image, paddings], &like)?;
        let window = Window {
            filter: 3,
            stride: 1 + self.choices.below(2),
            is_padded: self.choices.once_in(8),
        };
        let columns = self.one_of([Some(8), None, Some(20)]);
        let activation = self.choices.below(4) as i32;
        self.convolution(padded, columns, window, activation).map(drop)
    }

    /// A convolution of floats, ADD and PRELU.
    fn followed_layer(&mut self) -> Option<()> {
        let ty = OperandType::TENSOR_FLOAT32;
        let columns = self.one_of([16, 32]);
        let image = self.data(ty, &[1, 5, 6, 8], Role::Input);
        let window = Window {
            filter: self.one_of([1, 3]),
            is_padded: true,
            ..Window::PIXEL
        };
        let sums = self.convolution(image, Some(columns), window, 0)?;
        self.followers(sums).map(drop)
    }

    /// What follows on a layer of floats: ADD, PRELU or both.
    fn followers(&mut self, sums: u32) -> Option<u32> {
        let ty = OperandType::TENSOR_FLOAT32;
        let dims = self.dims(sums)?;
        let which = self.choices.below(3);
        let mut result = sums;
        if which != 1 {
            let addend = self.data(ty, &dims, Role::Input);
            let activation = self.choices.below(4) as i32;
            result = self.binary(OperationType::ADD, [result, addend], activation)?;
        }
        if which != 0 {
            let slopes = self.data(ty, &[1, 1, *dims.last()?], Role::ConstantCopy);
            result = self.float(OperationType::PRELU, &[result, slopes])?;
        }
        Some(result)
    }

    /// Layers of a large image: one that gives many channels, a depthwise one, and one that gives few.
    fn row_by_row(&mut self) -> Option<()> {
        let ty = OperandType::TENSOR_FLOAT32;
        let (channels, filter) = self.one_of([(16, 1), (3, 3)]);
        let (height, width) = (37 + self.choices.below(6), 61 + self.choices.below(6));
        let image = self.data(ty, &[1, height, width, channels], Role::Input);
        let window = Window {
            filter,
            stride: 1,
            is_padded: self.choices.once_in(2),
        };
        let columns = self.one_of([64, 72]);
        let activation = self.choices.below(4) as i32;
        let many = self.convolution(image, Some(columns), window, activation)?;
        let window = Window {
            filter: self.one_of([3, 5]),
            stride: self.one_of([1, 2]),
            is_padded: self.choices.once_in(2),
        };
        let activation = self.choices.below(4) as i32;
        let apart = self.convolution(many, None, window, activation)?;
        if window.stride > 1 {
            return Some(());
        }
        let columns = self.one_of([16, 24, 35]);
        let few = self.convolution(apart, Some(columns), Window::PIXEL, 0)?;
        if self.choices.once_in(2) {
            self.followers(few)?;
        }
        Some(())
    }

    /// A layer of floats whose weights and input are integers: what rounds the input, the layer, and what
    /// scales its sums.
    fn layer_of_integers(&mut self) -> Option<()> {
        let ty = OperandType::TENSOR_FLOAT32;
        let (columns, channels) = (self.one_of([8, 20]), self.one_of([12, 8, 3]));
        let image = self.data(ty, &[1, 5, 6, channels], Role::Input);
        let by = self.steps_of(image)?;
        let scaled = self.binary(OperationType::MUL, [image, by], 0)?;
        let rounded = self.rounded(scaled)?;
        let filter = self.one_of([1, 3]);
        let dims = [columns, filter, filter, channels];
        let weights = self.integers(&dims);
        let bias = self.floats(&vec![0.0; columns as usize]);
        let mut inputs = vec![rounded, weights, bias];
        inputs.extend([1, 1, 1, 0].map(|value| self.scalar(value)));
        let sums = self.float(OperationType::CONV_2D, &inputs)?;
        let scales: Vec<f64> = (1..=columns).map(|column| f64::from(column) / 65_536.0).collect();
        let scales = self.floats(&scales);
        let result = self.binary(OperationType::MUL, [sums, scales], 0)?;
        if self.choices.once_in(2) {
            return Some(());
        }
        let addend = self.data(ty, &[columns], Role::ConstantCopy);
        let activation = self.choices.below(4) as i32;
        self.binary(OperationType::ADD, [result, addend], activation)
            .map(drop)
    }

    /// What makes an image fit signed bytes: a constant, or what its largest magnitude leaves.
    fn steps_of(&mut self, image: u32) -> Option<u32> {
        if !self.choices.once_in(2) {
            return Some(self.floats(&[50.0]));
        }
        let magnitudes = self.float(OperationType::ABS, &[image])?;
        let axes = self.add(
            Operand::new(OperandType::TENSOR_INT32, &[4]),
            values::integers(&[0, 1, 2, 3]),
            Role::ConstantCopy,
        );
        let keeps = OperandType::BOOL;
        let keeps = self.add(
            Operand::new(keeps, &[]),
            values::encode(keeps, std::iter::once(1.0)),
            Role::ConstantCopy,
        );
        let largest = self.float(OperationType::REDUCE_MAX, &[magnitudes, axes, keeps])?;
        let least = self.floats(&[1e-6]);
        let largest = self.float(OperationType::MAXIMUM, &[largest, least])?;
        let most = self.floats(&[127.0]);
        self.binary(OperationType::DIV, [most, largest], 0)
    }

    /// Floats rounded to integers, ties away from zero: what is left of two sums that are rounded down, one
    /// of the positive numbers and one of the negative ones.
    fn rounded(&mut self, value: u32) -> Option<u32> {
        let negative = self.float(OperationType::NEG, &[value])?;
        let half = self.floats(&[0.5]);
        let mut whole = |value| {
            let positive = self.float(OperationType::RELU, &[value])?;
            let sum = self.binary(OperationType::ADD, [positive, half], 0)?;
            self.float(OperationType::FLOOR, &[sum])
        };
        let (below, above) = (whole(negative)?, whole(value)?);
        self.binary(OperationType::SUB, [above, below], 0)
    }

    /// Integers from -127 to 127 as floats.
    fn integers(&mut self, dims: &[u32]) -> u32 {
        let seed = self.choices.below(255);
        let count = dims.iter().product::<u32>();
        let all: Vec<f64> = (0..count)
            .map(|at| f64::from((at * 37 + seed) % 255) - 127.0)
            .collect();
        let ty = OperandType::TENSOR_FLOAT32;
        let values = values::encode(ty, all.into_iter());
        self.add(Operand::new(ty, dims), values, Role::ConstantCopy)
    }

    /// DEQUANTIZE and QUANTIZE that together add 128 to signed values, or take it from unsigned ones.
    fn offset(&mut self) -> Option<()> {
        let types = [
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ];
        let from = self.choices.below(2) as usize;
        let values = self.data(types[from], &[1, 5, 6, 3], Role::Input);
        let reals = self.float(OperationType::DEQUANTIZE, &[values])?;
        let mut output = self.operand(values).clone();
        output.operand_type = types[1 - from];
        output.zero_point += if from == 0 { -128 } else { 128 };
        self.operation(OperationType::QUANTIZE, &[reals], &output)
            .map(drop)
    }
}
