//! Float layers with integer weights.
//!
//! The file's runtime quantizes the input of such a layer anew in each execution, one image or vector at a
//! time, multiplies integers, and scales the result back. NNAPI has no such layers, but its operations on
//! floats can say the same: the integers are floats without a fraction, and products of 8-bit integers are
//! exact in them. Taking the weights for what they stand for and the input as it is would be more precise,
//! and different from the results that the model was evaluated with: by about a hundredth in a small network.

use nnhal_hal::{Operand, OperandType, OperationType as O};

use super::floats::Arithmetic;
use super::node::{Node, Refusal};
use crate::graph::Id;
use crate::tensor::{ElementType, Parameters};
use crate::values;

/// How the runtime quantizes the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To -127 to 127, zero at 0.
    Symmetric,
    /// To -128 to 127, zero where the values need it.
    Asymmetric,
}

/// A quantized input: integers as floats, zero at 0, and the real size of their steps for each image or
/// vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantizedInput {
    pub(super) steps: Id,
    scale: Id,
}

/// Whether the layer takes floats and has constant integer weights that the runtime multiplies as integers.
pub(super) fn is_hybrid(node: &Node<'_, '_, '_, '_>, input: usize, weights: usize) -> Result<bool, Refusal> {
    let weights = node.tensor(weights)?;
    Ok(node.tensor(input)?.element_type == ElementType::Float32
        && matches!(weights.element_type, ElementType::Int8 | ElementType::Int4)
        && matches!(
            weights.parameters,
            Parameters::PerTensor(_) | Parameters::PerChannel { .. }
        )
        && weights.is_constant())
}

/// The weights as they are stored, in floats of these dimensions.
pub(super) fn stored_weights(
    node: &mut Node<'_, '_, '_, '_>,
    number: usize,
    dimensions: &[u32],
) -> Result<Id, Refusal> {
    let bytes =
        values::operand_bytes(node.tensor(number)?).map_err(|reason| node.input_error(number, reason))?;
    let floats: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| f32::from(*byte as i8).to_le_bytes())
        .collect();
    let note =
        "the input of this float layer with integer weights is quantized in each execution, as the file's \
                runtime does, by operations on floats"
            .to_owned();
    node.graph.note(node.index(), note);
    Ok(node
        .graph
        .constant(Operand::new(OperandType::TENSOR_FLOAT32, dimensions), &floats)?)
}

/// Quantizes an input over all axes but the first.
pub(super) fn quantize_input(
    node: &mut Node<'_, '_, '_, '_>,
    input: Id,
    rounding: Rounding,
) -> Result<QuantizedInput, Refusal> {
    let rank = match node.graph.builder.dimensions(input) {
        Some(dimensions) => dimensions.len(),
        None => return Err("its input has dimensions that are not known before execution".into()),
    };
    let mut arithmetic = Arithmetic::new(node)?;
    let axes: Vec<i32> = (1..rank as i32).collect();
    match rounding {
        Rounding::Symmetric => symmetric(&mut arithmetic, input, &axes),
        Rounding::Asymmetric => asymmetric(&mut arithmetic, input, &axes),
    }
}

/// Smallest range that is told from zero: an input that is zero throughout has steps of 0, whatever their
/// size. The inverse of a step must still be a float.
const LEAST_RANGE: f32 = 1e-30;

fn symmetric(
    arithmetic: &mut Arithmetic<'_, '_, '_, '_, '_>,
    input: Id,
    axes: &[i32],
) -> Result<QuantizedInput, Refusal> {
    let magnitudes = arithmetic.unary(O::ABS, input)?;
    let range = arithmetic.reduce(O::REDUCE_MAX, magnitudes, axes, true)?;
    let range = arithmetic.with_constant(O::MAXIMUM, range, LEAST_RANGE)?;
    let most = arithmetic.constant(127.0)?;
    let inverse = arithmetic.binary(O::DIV, most, range)?;
    let scaled = arithmetic.binary(O::MUL, input, inverse)?;
    Ok(QuantizedInput {
        steps: arithmetic.round(scaled)?,
        scale: arithmetic.with_constant(O::DIV, range, 127.0)?,
    })
}

fn asymmetric(
    arithmetic: &mut Arithmetic<'_, '_, '_, '_, '_>,
    input: Id,
    axes: &[i32],
) -> Result<QuantizedInput, Refusal> {
    let low = arithmetic.reduce(O::REDUCE_MIN, input, axes, true)?;
    let low = arithmetic.with_constant(O::MINIMUM, low, 0.0)?;
    let high = arithmetic.reduce(O::REDUCE_MAX, input, axes, true)?;
    let high = arithmetic.with_constant(O::MAXIMUM, high, 0.0)?;
    let range = arithmetic.binary(O::SUB, high, low)?;
    let range = arithmetic.with_constant(O::MAXIMUM, range, LEAST_RANGE)?;
    let scale = arithmetic.with_constant(O::DIV, range, 255.0)?;
    // The zero point is where the low end says: both ends agree to rounding.
    let below = arithmetic.binary(O::DIV, low, scale)?;
    let lowest = arithmetic.constant(-128.0)?;
    let zero_point = arithmetic.binary(O::SUB, lowest, below)?;
    let zero_point = arithmetic.round(zero_point)?;
    let one = arithmetic.constant(1.0)?;
    let inverse = arithmetic.binary(O::DIV, one, scale)?;
    let scaled = arithmetic.binary(O::MUL, input, inverse)?;
    let shifted = arithmetic.binary(O::ADD, scaled, zero_point)?;
    let rounded = arithmetic.round(shifted)?;
    let rounded = arithmetic.with_constant(O::MAXIMUM, rounded, -128.0)?;
    let rounded = arithmetic.with_constant(O::MINIMUM, rounded, 127.0)?;
    Ok(QuantizedInput {
        steps: arithmetic.binary(O::SUB, rounded, zero_point)?,
        scale,
    })
}

/// What the integer result of a layer stands for: times the scales of input and weights.
pub(super) fn real_result(
    node: &mut Node<'_, '_, '_, '_>,
    result: Id,
    input: QuantizedInput,
    weights: usize,
) -> Result<Id, Refusal> {
    let scales = match &node.tensor(weights)?.parameters {
        Parameters::PerTensor(quantization) => vec![quantization.scale],
        Parameters::PerChannel { scales, .. } => scales.clone(),
        _ => return Err(node.input_error(weights, "has no scale")),
    };
    let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let operand = Operand::new(OperandType::TENSOR_FLOAT32, &[scales.len() as u32]);
    let scales = node.graph.constant(operand, &bytes)?;
    let mut arithmetic = Arithmetic::new(node)?;
    let scale = arithmetic.binary(O::MUL, input.scale, scales)?;
    arithmetic.binary(O::MUL, result, scale)
}
