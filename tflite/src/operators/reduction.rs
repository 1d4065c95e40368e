//! Reductions over axes, and indexes of extremes.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::floats::{Arithmetic, FixedPointFactor};
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::ReducerOptions;
use crate::graph::Id;
use crate::tensor::ElementType;

const IN_FLOATS: &str = "quantized operands in floats";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::MEAN,
        &[O::MEAN, O::REDUCE_SUM],
        "by REDUCE_SUM in floats, rounded as the file's runtime does, where 8-bit input and output differ in scale",
        |node| {
            let (input, output) = (
                node.tensor(0)?.quantization(),
                node.output_tensor(0)?.quantization(),
            );
            if input == output || node.tensor(0)?.element_type == ElementType::Int16 {
                reduce(node, O::MEAN)
            } else {
                mean_to_other_scale(node)
            }
        },
    ),
    Mapping::new(Builtin::SUM, &[O::REDUCE_SUM], IN_FLOATS, |node| {
        reduce_in_floats(node, O::REDUCE_SUM)
    }),
    Mapping::new(Builtin::REDUCE_PROD, &[O::REDUCE_PROD], IN_FLOATS, |node| {
        reduce_in_floats(node, O::REDUCE_PROD)
    }),
    Mapping::new(Builtin::REDUCE_MAX, &[O::REDUCE_MAX], "", |node| {
        reduce(node, O::REDUCE_MAX)
    }),
    Mapping::new(Builtin::REDUCE_MIN, &[O::REDUCE_MIN], "", |node| {
        reduce(node, O::REDUCE_MIN)
    }),
    Mapping::new(Builtin::REDUCE_ANY, &[O::REDUCE_ANY], "", |node| {
        reduce(node, O::REDUCE_ANY)
    }),
    Mapping::new(Builtin::REDUCE_ALL, &[O::REDUCE_ALL], "", |node| {
        reduce(node, O::REDUCE_ALL)
    }),
    Mapping::new(
        Builtin::ARG_MAX,
        &[O::ARGMAX, tflite::CAST],
        "constant axis; 64-bit indices by CAST",
        |node| arg_extreme(node, O::ARGMAX),
    ),
    Mapping::new(
        Builtin::ARG_MIN,
        &[O::ARGMIN, tflite::CAST],
        "constant axis; 64-bit indices by CAST",
        |node| arg_extreme(node, O::ARGMIN),
    ),
];

/// The axes, as a tensor of one dimension.
fn axes(node: &mut Node<'_, '_, '_, '_>) -> Result<Id, Refusal> {
    if !node.is_constant(1) {
        return node.input(1);
    }
    let axes = node.i32s(1)?;
    if axes.is_empty() {
        return Err("it reduces no axis, which NNAPI cannot say".into());
    }
    node.tensor_i32(&axes)
}

fn reduce(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let keep = node.options::<ReducerOptions>()?.keep_dims;
    let input = node.input(0)?;
    let inputs = [input, axes(node)?, keep_dims(node, kind, keep)?];
    // A mean may have another scale, where the extension computes it.
    let output = match kind {
        O::MEAN => node.output(0)?,
        _ => node.output_moved_from(0, input)?,
    };
    node.emit(kind, &inputs, &[output])
}

fn reduce_in_floats(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let keep = node.options::<ReducerOptions>()?.keep_dims;
    let inputs = [node.real_input(0)?, axes(node)?, keep_dims(node, kind, keep)?];
    let target = node.real_output(0)?;
    node.emit(kind, &inputs, &[target.id])?;
    node.settle(target)
}

/// A mean of integers to another scale, rounded as the file's runtime does: the sum times a factor, to the
/// nearest integer of some binary places, and those to the nearest integer of none.
fn mean_to_other_scale(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let (Some(from), Some(to)) = (
        node.tensor(0)?.quantization(),
        node.output_tensor(0)?.quantization(),
    ) else {
        return reduce_in_floats(node, O::MEAN);
    };
    let keep = node.options::<ReducerOptions>()?.keep_dims;
    let dimensions = node.dimensions(0)?;
    let mut axes = Vec::new();
    for axis in node.i32s(1)? {
        let axis = node.axis(axis, dimensions.len())?;
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    let count: u64 = axes.iter().map(|axis| u64::from(dimensions[*axis])).product();
    let factor = FixedPointFactor::of_mean(f64::from(from.scale) / f64::from(to.scale), count);
    let axes: Vec<i32> = axes.into_iter().map(|axis| axis as i32).collect();
    let (real, target) = (node.real_input(0)?, node.real_output(0)?);
    let mut arithmetic = Arithmetic::new(node)?;
    let sum = arithmetic.reduce(O::REDUCE_SUM, real, &axes, keep)?;
    let steps = arithmetic.with_constant(O::DIV, sum, from.scale)?;
    let steps = arithmetic.round(steps)?;
    let mean = arithmetic.scale_steps(steps, factor)?;
    let scale = arithmetic.constant(to.scale)?;
    let none = node.scalar_i32(0)?;
    node.emit(O::MUL, &[mean, scale, none], &[target.id])?;
    node.settle(target)
}

/// Whether reduced axes stay, with extent 1: a number for MEAN, a truth value for the others, which are
/// younger.
fn keep_dims(node: &mut Node<'_, '_, '_, '_>, kind: O, keep: bool) -> Result<Id, Refusal> {
    if kind == O::MEAN {
        node.scalar_i32(i32::from(keep))
    } else {
        node.scalar_bool(keep)
    }
}

fn arg_extreme(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let axis = node.single_i32(1)?;
    let axis = node.scalar_i32(axis)?;
    let output = node.output(0)?;
    node.emit(kind, &[input, axis], &[output])
}
