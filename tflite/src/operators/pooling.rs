//! Pooling.

use nnhal_hal::OperationType as O;

use super::builtin::Builtin;
use super::convolution::padding_code;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::Pool2DOptions;

const RULE: &str = "NHWC, SAME or VALID padding; quantized anew where input and output differ in scale";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::AVERAGE_POOL_2D, &[O::AVERAGE_POOL_2D], RULE, |node| {
        pool(node, O::AVERAGE_POOL_2D)
    }),
    Mapping::new(Builtin::MAX_POOL_2D, &[O::MAX_POOL_2D], RULE, |node| {
        pool(node, O::MAX_POOL_2D)
    }),
    Mapping::new(
        Builtin::L2_POOL_2D,
        &[O::L2_POOL_2D],
        "NHWC, SAME or VALID padding",
        |node| pool(node, O::L2_POOL_2D),
    ),
];

fn pool(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let options = node.options::<Pool2DOptions>()?;
    let input = node.input(0)?;
    let mut inputs = vec![input, padding_code(node, options.padding)?];
    for value in [
        options.stride_w,
        options.stride_h,
        options.filter_width,
        options.filter_height,
    ] {
        inputs.push(node.scalar_i32(value)?);
    }
    if (0..=3).contains(&options.activation) {
        inputs.push(node.scalar_i32(i32::from(options.activation))?);
        let target = node.output_quantized_like(0, input)?;
        node.emit(kind, &inputs, &[target.id])?;
        return node.settle(target);
    }
    let (target, code) = node.activated_output(0, options.activation)?;
    inputs.push(code);
    node.emit(kind, &inputs, &[target.id])?;
    node.settle(target)
}
