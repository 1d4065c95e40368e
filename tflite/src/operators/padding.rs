//! Padding.

use nnhal_hal::{Operand, OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{MirrorPadOptions, StablehloPadOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::PAD, &[O::PAD], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::PAD, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::PADV2,
        &[O::PAD, O::PAD_V2],
        "constant value; PAD where there is none",
        |node| {
            let inputs = [node.input(0)?, node.input(1)?];
            if !node.has(2) {
                let output = node.output_moved_from(0, inputs[0])?;
                return node.emit(O::PAD, &inputs, &[output]);
            }
            let value = pad_value(node, inputs[0])?;
            let output = node.output_moved_from(0, inputs[0])?;
            node.emit(O::PAD_V2, &[inputs[0], inputs[1], value], &[output])
        },
    ),
    Mapping::new(Builtin::MIRROR_PAD, &[O::MIRROR_PAD], "", |node| {
        let mode = i32::from(node.options::<MirrorPadOptions>()?.mode);
        let inputs = [node.input(0)?, node.input(1)?, node.scalar_i32(mode)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::MIRROR_PAD, &inputs, &[output])
    }),
    Mapping::new(Builtin::DILATE, &[tflite::DILATE], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?];
        let value = value_in(node, 2, inputs[0])?;
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(tflite::DILATE, &[inputs[0], inputs[1], value], &[output])
    }),
    Mapping::new(Builtin::STABLEHLO_PAD, &[tflite::DILATE], "", stablehlo_pad),
];

fn stablehlo_pad(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<StablehloPadOptions<'_>>()?;
    let interior = options.interior_padding.to_vec();
    let (low, high) = (
        options.edge_padding_low.to_vec(),
        options.edge_padding_high.to_vec(),
    );
    if low.len() != interior.len() || high.len() != interior.len() {
        return Err("its options pad different numbers of axes".into());
    }
    let edges = low.into_iter().zip(high).flat_map(|(low, high)| [low, high]);
    let edges = node.narrowed_values(edges)?;
    let input = node.input(0)?;
    let value = value_in(node, 1, input)?;
    let steps = node.narrowed(interior.iter().map(|room| room.saturating_add(1)))?;
    let edges = node.pairs_i32(&edges)?;
    let output = node.output_moved_from(0, input)?;
    node.emit(tflite::DILATE, &[input, steps, value, edges], &[output])
}

/// The value that fills the room, in the steps of the tensor, which a constant need not state.
pub(super) fn value_in(node: &mut Node<'_, '_, '_, '_>, number: usize, beside: Id) -> Result<Id, Refusal> {
    let operand = node.graph.builder.operand(beside).clone();
    let value = node.tensor(number)?;
    let is_unscaled = value.is_constant() && value.quantization().is_none();
    if !(is_unscaled && operand.operand_type.is_quantized_per_tensor()) {
        return node.input(number);
    }
    let index = node.input_index(number)?;
    let wanted =
        Operand::new(operand.operand_type, &[1]).with_quantization(operand.scale, operand.zero_point);
    let id = node.graph.requalified(index, wanted);
    id.map_err(|reason| node.input_error(number, reason))
}

/// The padding value as a scalar: a float beside floats, an integer in the units of quantized values.
fn pad_value(node: &mut Node<'_, '_, '_, '_>, input: Id) -> Result<Id, Refusal> {
    let value = node.tensor(2)?;
    let Some(bytes) = value.data.as_ref().map(|data| data.to_vec()) else {
        return Err(node.input_error(2, "must be constant"));
    };
    let ty = match node.ty(input) {
        OperandType::TENSOR_QUANT8_ASYMM
        | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
        | OperandType::TENSOR_QUANT16_SYMM => {
            let (input, value) = (node.tensor(0)?.quantization(), node.tensor(2)?.quantization());
            if input != value {
                return Err(node.input_error(2, "must have the scale and zero point of input 0"));
            }
            let value = node.single_i32(2)?;
            return node.scalar_i32(value);
        }
        OperandType::TENSOR_INT32 => {
            let value = node.single_i32(2)?;
            return node.scalar_i32(value);
        }
        // Of 64-bit integers there is no scalar.
        tflite::TENSOR_INT64 => return node.input(2),
        OperandType::TENSOR_BOOL8 => OperandType::BOOL,
        OperandType::TENSOR_FLOAT16 => OperandType::FLOAT16,
        _ => OperandType::FLOAT32,
    };
    if bytes.len() != ty.element_size() {
        return Err(node.input_error(2, format_args!("must be one element of {ty}")));
    }
    let graph = &mut *node.graph;
    Ok(graph.builder.scalar(&mut graph.model.store, ty, &bytes)?)
}
