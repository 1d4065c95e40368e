//! The reference workload: for each thing that a device gives a performance figure for, a model that depends
//! on it.
//!
//! Tensor types whose arithmetic networks consist of have a small image network: a convolution of 3x3 over
//! 56x56 pixels, a depthwise convolution of 3x3, a pointwise convolution, the sum with what went in, the mean
//! over all pixels, a fully connected layer and a softmax. Other tensor types have what the HAL computes on
//! them, on 65,536 elements; scalar types an operation that takes one as a parameter.

use nnhal_client::{Model, ModelBuilder, OperandId, OperandType, OperationType, TensorType, f16};

use crate::Result;

/// Elements of models of one operation.
const ELEMENTS: u32 = 1 << 16;
/// The same in rows.
const ROWS: [u32; 2] = [64, 1024];
/// Edge of the image.
const PIXELS: u32 = 56;
/// Channels within the network.
const CHANNELS: u32 = 16;
/// How often the loop goes round.
const TURNS: i32 = 100;

/// What a model is for, and which.
#[derive(Debug)]
pub struct Workload {
    /// The key in the table of figures: the name of an operand type, or one of [`IF`], [`WHILE`],
    /// [`RELAXED_SCALAR`] and [`RELAXED_TENSOR`].
    pub key: String,
    /// What is computed, in words.
    pub what: &'static str,
    /// The model.
    pub model: Model,
}

/// Key of the overhead of IF.
pub const IF: &str = "IF";
/// Key of the overhead of WHILE.
pub const WHILE: &str = "WHILE";
/// Key of relaxed float32 scalars.
pub const RELAXED_SCALAR: &str = "relaxed FLOAT32";
/// Key of relaxed float32 tensors.
pub const RELAXED_TENSOR: &str = "relaxed TENSOR_FLOAT32";

/// All workloads. UINT32 has none: no operation takes one.
///
/// # Errors
/// Never: the models are sound.
pub fn all() -> Result<Vec<Workload>> {
    const NETWORK: &str = "image network";
    let mut workloads = Vec::new();
    let mut add = |key: &str, what, model: Result<Model>| {
        workloads.push(Workload {
            key: key.to_owned(),
            what,
            model: model?,
        });
        Ok::<_, crate::Error>(())
    };
    for (key, numbers) in [
        ("TENSOR_FLOAT32", Numbers::Float32),
        ("TENSOR_FLOAT16", Numbers::Float16),
        ("TENSOR_QUANT8_ASYMM", Numbers::Quant8),
        ("TENSOR_QUANT8_ASYMM_SIGNED", Numbers::Quant8Signed),
        ("TENSOR_QUANT8_SYMM_PER_CHANNEL", Numbers::PerChannel),
    ] {
        add(key, NETWORK, image_network(numbers, false))?;
    }
    add(RELAXED_TENSOR, NETWORK, image_network(Numbers::Float32, true))?;
    add("TENSOR_INT32", "MUL and ADD", integers())?;
    add("TENSOR_BOOL8", "LOGICAL_NOT and LOGICAL_AND", truths())?;
    add("TENSOR_QUANT8_SYMM", "DEQUANTIZE", dequantized())?;
    for (key, ty) in [
        ("TENSOR_QUANT16_SYMM", OperandType::TENSOR_QUANT16_SYMM),
        ("TENSOR_QUANT16_ASYMM", OperandType::TENSOR_QUANT16_ASYMM),
    ] {
        add(key, "CAST to itself", cast(ty))?;
    }
    add("FLOAT32", "SOFTMAX by beta", softmax(false))?;
    add(RELAXED_SCALAR, "SOFTMAX by beta", softmax(true))?;
    add("FLOAT16", "SOFTMAX by beta", softmax_of_halves())?;
    add("INT32", "ARGMAX along an axis", argmax())?;
    add("BOOL", "REDUCE_SUM keeping dimensions", reduced())?;
    add(IF, "IF with an ADD of one element in each branch", choice())?;
    add(WHILE, "WHILE that counts to 100", repetition())?;
    Ok(workloads)
}

/// What a network consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Float32,
    Float16,
    Quant8,
    Quant8Signed,
    /// Signed, with a scale for each filter.
    PerChannel,
}

const ACTIVATION_SCALE: f32 = 0.05;
const WEIGHT_SCALE: f32 = 0.01;

impl Numbers {
    fn is_signed(self) -> bool {
        matches!(self, Numbers::Quant8Signed | Numbers::PerChannel)
    }

    fn quantized(self, dimensions: &[u32], scale: f32, zero_point: i32) -> TensorType {
        if self.is_signed() {
            TensorType::quant8_asymm_signed(dimensions, scale, zero_point - 128)
        } else {
            TensorType::quant8_asymm(dimensions, scale, zero_point)
        }
    }

    fn activations(self, dimensions: &[u32]) -> TensorType {
        match self {
            Numbers::Float32 => TensorType::float32(dimensions),
            Numbers::Float16 => TensorType::float16(dimensions),
            _ => self.quantized(dimensions, ACTIVATION_SCALE, 128),
        }
    }

    fn probabilities(self, dimensions: &[u32]) -> TensorType {
        match self {
            Numbers::Float32 | Numbers::Float16 => self.activations(dimensions),
            _ => self.quantized(dimensions, 1.0 / 256.0, 0),
        }
    }

    /// A filter; `channel_dim` is where its filters are counted.
    fn filter(self, model: &mut ModelBuilder, dimensions: &[u32], channel_dim: Option<u32>) -> OperandId {
        let count = dimensions.iter().product::<u32>();
        let steps = (0..count).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 25) as u8);
        let value = |step: u8| (f32::from(step) - 64.0) * WEIGHT_SCALE;
        match (self, channel_dim) {
            (Numbers::Float32, _) => {
                let values: Vec<f32> = steps.map(value).collect();
                model.constant(TensorType::float32(dimensions), &values)
            }
            (Numbers::Float16, _) => {
                let values: Vec<f16> = steps.map(|step| f16::from_f32(value(step))).collect();
                model.constant(TensorType::float16(dimensions), &values)
            }
            (Numbers::Quant8, _) => {
                let values: Vec<u8> = steps.collect();
                model.constant(TensorType::quant8_asymm(dimensions, WEIGHT_SCALE, 64), &values)
            }
            (Numbers::PerChannel, Some(channel_dim)) => {
                let scales = vec![WEIGHT_SCALE; dimensions[channel_dim as usize] as usize];
                let ty = TensorType::quant8_symm_per_channel(dimensions, &scales, channel_dim);
                let values: Vec<i8> = steps.map(|step| step as i8 - 64).collect();
                model.constant(ty, &values)
            }
            (Numbers::Quant8Signed | Numbers::PerChannel, _) => {
                let values: Vec<i8> = steps.map(|step| step as i8 - 64).collect();
                model.constant(
                    TensorType::quant8_asymm_signed(dimensions, WEIGHT_SCALE, 0),
                    &values,
                )
            }
        }
    }

    fn bias(self, model: &mut ModelBuilder, count: u32, is_per_channel: bool) -> OperandId {
        let length = count as usize;
        match self {
            Numbers::Float32 => model.constant(TensorType::float32(&[count]), &vec![0.5_f32; length]),
            Numbers::Float16 => {
                model.constant(TensorType::float16(&[count]), &vec![f16::from_f32(0.5); length])
            }
            _ => {
                let scale = if self == Numbers::PerChannel && is_per_channel {
                    0.0
                } else {
                    ACTIVATION_SCALE * WEIGHT_SCALE
                };
                let ty = TensorType::new(OperandType::TENSOR_INT32, &[count]).with_quantization(scale, 0);
                model.constant(ty, &vec![100_i32; length])
            }
        }
    }

    fn beta(self, model: &mut ModelBuilder) -> OperandId {
        match self {
            Numbers::Float16 => model.scalar(f16::from_f32(1.0)),
            _ => model.scalar(1.0_f32),
        }
    }
}

fn image_network(numbers: Numbers, is_relaxed: bool) -> Result<Model> {
    let mut model = ModelBuilder::new();
    model.relax_float32_to_float16(is_relaxed);
    let image = [1, PIXELS, PIXELS, CHANNELS];
    let input = model.input(numbers.activations(&[1, PIXELS, PIXELS, 8]));
    let [none, one, zero] = [0, 1, 0].map(|value| model.scalar(value));
    let same = model.scalar(1_i32);
    let filter = numbers.filter(&mut model, &[CHANNELS, 3, 3, 8], Some(0));
    let bias = numbers.bias(&mut model, CHANNELS, true);
    let first = model.temporary(numbers.activations(&image));
    let inputs = [input, filter, bias, same, one, one, one];
    model.operation(OperationType::CONV_2D, &inputs, &[first]);
    let filter = numbers.filter(&mut model, &[1, 3, 3, CHANNELS], Some(3));
    let bias = numbers.bias(&mut model, CHANNELS, true);
    let second = model.temporary(numbers.activations(&image));
    let inputs = [first, filter, bias, same, one, one, one, one];
    model.operation(OperationType::DEPTHWISE_CONV_2D, &inputs, &[second]);
    let filter = numbers.filter(&mut model, &[CHANNELS, 1, 1, CHANNELS], Some(0));
    let bias = numbers.bias(&mut model, CHANNELS, true);
    let third = model.temporary(numbers.activations(&image));
    let inputs = [second, filter, bias, same, one, one, none];
    model.operation(OperationType::CONV_2D, &inputs, &[third]);
    let sum = model.temporary(numbers.activations(&image));
    model.operation(OperationType::ADD, &[first, third, none], &[sum]);
    let edge = model.scalar(PIXELS as i32);
    let valid = model.scalar(2_i32);
    let mean = model.temporary(numbers.activations(&[1, 1, 1, CHANNELS]));
    let inputs = [sum, valid, one, one, edge, edge, zero];
    model.operation(OperationType::AVERAGE_POOL_2D, &inputs, &[mean]);
    let filter = numbers.filter(&mut model, &[10, CHANNELS], None);
    let bias = numbers.bias(&mut model, 10, false);
    let scores = model.temporary(numbers.activations(&[1, 10]));
    model.operation(
        OperationType::FULLY_CONNECTED,
        &[mean, filter, bias, none],
        &[scores],
    );
    let beta = numbers.beta(&mut model);
    let output = model.output(numbers.probabilities(&[1, 10]));
    model.operation(OperationType::SOFTMAX, &[scores, beta], &[output]);
    Ok(model.finish()?)
}

fn integers() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let ty = TensorType::int32(&[ELEMENTS]);
    let x = model.input(ty.clone());
    let none = model.scalar(0_i32);
    let square = model.temporary(ty.clone());
    let y = model.output(ty);
    model.operation(OperationType::MUL, &[x, x, none], &[square]);
    model.operation(OperationType::ADD, &[square, x, none], &[y]);
    Ok(model.finish()?)
}

fn truths() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let ty = TensorType::bool8(&[ELEMENTS]);
    let x = model.input(ty.clone());
    let not = model.temporary(ty.clone());
    let y = model.output(ty);
    model.operation(OperationType::LOGICAL_NOT, &[x], &[not]);
    model.operation(OperationType::LOGICAL_AND, &[x, not], &[y]);
    Ok(model.finish()?)
}

fn dequantized() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let ty = TensorType::new(OperandType::TENSOR_QUANT8_SYMM, &[ELEMENTS]).with_quantization(0.1, 0);
    let x = model.input(ty);
    let y = model.output(TensorType::float32(&[ELEMENTS]));
    model.operation(OperationType::DEQUANTIZE, &[x], &[y]);
    Ok(model.finish()?)
}

fn cast(operand_type: OperandType) -> Result<Model> {
    let mut model = ModelBuilder::new();
    let ty = TensorType::new(operand_type, &[ELEMENTS]).with_quantization(0.1, 0);
    let x = model.input(ty.clone());
    let y = model.output(ty);
    model.operation(OperationType::CAST, &[x], &[y]);
    Ok(model.finish()?)
}

fn softmax(is_relaxed: bool) -> Result<Model> {
    let mut model = ModelBuilder::new();
    model.relax_float32_to_float16(is_relaxed);
    let x = model.input(TensorType::float32(&ROWS));
    let beta = model.scalar(1.0_f32);
    let y = model.output(TensorType::float32(&ROWS));
    model.operation(OperationType::SOFTMAX, &[x, beta], &[y]);
    Ok(model.finish()?)
}

fn softmax_of_halves() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float16(&ROWS));
    let beta = model.scalar(f16::from_f32(1.0));
    let y = model.output(TensorType::float16(&ROWS));
    model.operation(OperationType::SOFTMAX, &[x, beta], &[y]);
    Ok(model.finish()?)
}

fn argmax() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&ROWS));
    let axis = model.scalar(1_i32);
    let y = model.output(TensorType::int32(&ROWS[..1]));
    model.operation(OperationType::ARGMAX, &[x, axis], &[y]);
    Ok(model.finish()?)
}

fn reduced() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&ROWS));
    let axes = model.constant(TensorType::int32(&[1]), &[1_i32]);
    let keeps_dimensions = model.constant(TensorType::new(OperandType::BOOL, &[]), &[1_u8]);
    let y = model.output(TensorType::float32(&[ROWS[0], 1]));
    model.operation(OperationType::REDUCE_SUM, &[x, axes, keeps_dimensions], &[y]);
    Ok(model.finish()?)
}

/// `output = input + input`.
fn doubled() -> ModelBuilder {
    let mut graph = ModelBuilder::new();
    let x = graph.input(TensorType::float32(&[1]));
    let none = graph.scalar(0_i32);
    let y = graph.output(TensorType::float32(&[1]));
    graph.operation(OperationType::ADD, &[x, x, none], &[y]);
    graph
}

fn choice() -> Result<Model> {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[1]));
    let condition = model.input(TensorType::bool8(&[1]));
    let branches = [doubled(), doubled()].map(|graph| model.graph(graph));
    let y = model.output(TensorType::float32(&[1]));
    model.operation(OperationType::IF, &[condition, branches[0], branches[1], x], &[y]);
    Ok(model.finish()?)
}

fn repetition() -> Result<Model> {
    let count = || TensorType::int32(&[1]);
    let mut condition = ModelBuilder::new();
    let x = condition.input(count());
    let most = condition.constant(count(), &[TURNS]);
    let goes_on = condition.output(TensorType::bool8(&[1]));
    condition.operation(OperationType::LESS, &[x, most], &[goes_on]);
    let mut body = ModelBuilder::new();
    let x = body.input(count());
    let one = body.constant(count(), &[1_i32]);
    let none = body.scalar(0_i32);
    let next = body.output(count());
    body.operation(OperationType::ADD, &[x, one, none], &[next]);
    let mut model = ModelBuilder::new();
    let x = model.input(count());
    let graphs = [condition, body].map(|graph| model.graph(graph));
    let y = model.output(count());
    model.operation(OperationType::WHILE, &[graphs[0], graphs[1], x], &[y]);
    Ok(model.finish()?)
}
