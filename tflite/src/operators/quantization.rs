//! Conversions between types, and between quantized and real values.

use nnhal_hal::{Operand, OperandType as T, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::{floats, random, sparse};
use crate::file::options::FakeQuantOptions;
use crate::graph::Id;
use crate::tensor::{ElementType, Quantization};
use crate::values;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::QUANTIZE,
        &[O::QUANTIZE, O::DEQUANTIZE, tflite::QUANTIZE],
        "from one 8-bit scale to another by way of floats, rounded as the file's runtime does; 16-bit ones by the \
         extension's QUANTIZE",
        quantize,
    ),
    Mapping::new(
        Builtin::DEQUANTIZE,
        &[O::DEQUANTIZE, O::CAST],
        "constant float16 becomes constant float32; other float16 by CAST",
        dequantize,
    ),
    Mapping::new(
        Builtin::CAST,
        &[O::CAST, O::DEQUANTIZE, O::SELECT, O::NOT_EQUAL],
        "from bool by SELECT, to bool by NOT_EQUAL, from plain int8 by DEQUANTIZE",
        cast,
    ),
    Mapping::new(
        Builtin::DENSIFY,
        &[],
        "a constant: sparse constants are spelled out",
        |node| {
            let index = node.input_index(0)?;
            let graph = node.graph.number();
            let table = &node.graph.model.file.graphs()[graph].tensors[index];
            let data = match (&node.tensor(0)?.data, &table.sparsity) {
                (Some(data), Some(sparsity)) => {
                    let dimensions = &node.tensor(0)?.dimensions;
                    let size = node
                        .tensor(0)?
                        .element_type
                        .size()
                        .ok_or("its elements have no fixed size")?;
                    sparse::densify(sparsity, dimensions, size, data)
                        .map_err(|reason| node.input_error(0, reason))?
                }
                (Some(data), None) => data.to_vec(),
                (None, _) => return Err(node.input_error(0, "must be constant")),
            };
            let dimensions = node.tensor(0)?.dimensions.clone();
            node.set_constant(0, dimensions, data)
        },
    ),
    Mapping::new(
        Builtin::FAKE_QUANT,
        &[tflite::FAKE_QUANT],
        "without narrow range, as in the file's runtime",
        |node| {
            let options = node.options::<FakeQuantOptions>()?;
            if options.narrow_range {
                return Err("it has a narrow range, which the file's runtime refuses".into());
            }
            let inputs = [
                node.input(0)?,
                node.scalar_float(options.min, T::TENSOR_FLOAT32)?,
                node.scalar_float(options.max, T::TENSOR_FLOAT32)?,
                node.scalar_i32(options.num_bits)?,
            ];
            let output = node.output(0)?;
            node.emit(tflite::FAKE_QUANT, &inputs, &[output])
        },
    ),
    Mapping::new(
        Builtin::BITCAST,
        &[tflite::BITCAST, O::RESHAPE],
        "a RESHAPE where the input is a scalar",
        bitcast,
    ),
];

fn quantize(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let operand = node.graph.builder.operand(input).clone();
    let wanted = node.output_operand(0)?;
    let same = operand.operand_type == wanted.operand_type
        && operand.scale == wanted.scale
        && operand.zero_point == wanted.zero_point;
    if same {
        let output = node.output(0)?;
        return node.emit(O::CAST, &[input], &[output]);
    }
    let output = node.output(0)?;
    let is_eight_bit = |operand: &Operand| operand.operand_type.element_size() == 1;
    if operand.operand_type.is_quantized_per_tensor() && is_eight_bit(&operand) && is_eight_bit(&wanted) {
        return floats::requantize(node, input, output);
    }
    if wanted.operand_type == T::TENSOR_INT32 {
        let quantization = node.output_tensor(0)?.quantization();
        match quantization {
            Some(Quantization { scale, zero_point: 0 }) => {
                node.graph.builder.operand_mut(output).scale = scale
            }
            _ => return Err(node.output_error(0, "must have one scale, and zero point 0")),
        }
    }
    node.emit(O::QUANTIZE, &[input], &[output])
}

fn dequantize(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let tensor = node.tensor(0)?;
    if tensor.element_type == ElementType::Float16 {
        if tensor.is_constant() {
            let bytes = values::widen(tensor).map_err(|reason| node.input_error(0, reason))?;
            let dimensions = tensor.dimensions.clone();
            return node.set_constant(0, dimensions, bytes);
        }
        let input = node.input(0)?;
        let output = node.output(0)?;
        return node.emit(O::CAST, &[input], &[output]);
    }
    let input = node.input(0)?;
    let output = node.output(0)?;
    node.emit(O::DEQUANTIZE, &[input], &[output])
}

fn bitcast(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    if node.tensor(0)?.is_unsigned() || node.output_tensor(0)?.is_unsigned() {
        return random::bitcast(node);
    }
    let input = node.input(0)?;
    let is_scalar = node.tensor(0)?.dimensions.is_empty() && node.dimensions(0)? == [1];
    let output = node.output(0)?;
    let operand = node.graph.builder.operand(output).clone();
    let parts = node.ty(input).element_size() / operand.operand_type.element_size();
    if !is_scalar || parts < 2 {
        return node.emit(tflite::BITCAST, &[input], &[output]);
    }
    // A scalar has one dimension in the model, which the result has then, too.
    let row = node.temporary(Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    node.emit(tflite::BITCAST, &[input], &[row])?;
    node.emit_reshape(row, output, &[parts as u32])
}

fn cast(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let (from, to) = (node.tensor(0)?.element_type, node.output_tensor(0)?.element_type);
    let input = node.input(0)?;
    let mut kind = O::CAST;
    match (from, to) {
        (ElementType::Bool, ElementType::Bool) => {}
        (ElementType::Bool, _)
            if is_choosable(node.output_operand(0)?.operand_type) && node.dimensions(0).is_ok() =>
        {
            return from_bool(node, input);
        }
        (_, ElementType::Bool) if is_choosable(node.ty(input)) => return to_bool(node, input),
        (ElementType::Int8, ElementType::Float32 | ElementType::Float16) => {
            // NNAPI's CAST does not take signed bytes; DEQUANTIZE in steps of one is the same.
            let operand = node.graph.builder.operand(input);
            if operand.scale == 1.0 && operand.zero_point == 0 {
                kind = O::DEQUANTIZE;
            }
        }
        // NNAPI's CAST clamps where the file's runtime wraps.
        (ElementType::Int32, ElementType::Uint8) => kind = tflite::CAST,
        _ => {}
    }
    let output = node.output(0)?;
    node.emit(kind, &[input], &[output])
}

/// Whether NNAPI's SELECT and NOT_EQUAL take the type.
fn is_choosable(ty: T) -> bool {
    one_and_zero(ty).is_ok()
}

/// One and zero of a type that SELECT has, as bytes.
fn one_and_zero(ty: T) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    match ty {
        T::TENSOR_FLOAT32 => Ok((1_f32.to_le_bytes().to_vec(), vec![0; 4])),
        T::TENSOR_FLOAT16 => Ok((half::f16::ONE.to_le_bytes().to_vec(), vec![0; 2])),
        T::TENSOR_INT32 => Ok((1_i32.to_le_bytes().to_vec(), vec![0; 4])),
        T::TENSOR_QUANT8_ASYMM | T::TENSOR_QUANT8_ASYMM_SIGNED => Ok((vec![1], vec![0])),
        other => Err(Refusal::Reason(format!(
            "it converts truth values to {other}, which NNAPI cannot"
        ))),
    }
}

/// Truth values as numbers: a choice between ones and zeros.
fn from_bool(node: &mut Node<'_, '_, '_, '_>, input: Id) -> Result<(), Refusal> {
    let operand = Operand {
        dimensions: node.dimensions(0)?,
        ..node.output_operand(0)?
    };
    let (one, zero) = one_and_zero(operand.operand_type)?;
    let choices = [node.filled(operand.clone(), &one)?, node.filled(operand, &zero)?];
    let output = node.output(0)?;
    node.emit(O::SELECT, &[input, choices[0], choices[1]], &[output])
}

/// Numbers as truth values: whether they differ from zero.
fn to_bool(node: &mut Node<'_, '_, '_, '_>, input: Id) -> Result<(), Refusal> {
    let operand = node.graph.builder.operand(input).clone();
    let operand = Operand {
        dimensions: vec![1],
        ..operand
    };
    // Integers count by what is stored, whatever their scale.
    let (_, zero) = one_and_zero(operand.operand_type)?;
    let zero = node.filled(operand, &zero)?;
    let output = node.output(0)?;
    node.emit(O::NOT_EQUAL, &[input, zero], &[output])
}
