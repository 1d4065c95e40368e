//! Padding.

use nnhal_hal::{OperandType, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::MirrorPadOptions;
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
];

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
