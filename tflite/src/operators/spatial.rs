//! Moves between space, depth and batch, and image resizing. All images are NHWC.

use nnhal_hal::{Operand, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{
    DepthToSpaceOptions, ResizeBilinearOptions, ResizeNearestNeighborOptions, SpaceToDepthOptions,
};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::DEPTH_TO_SPACE, &[O::DEPTH_TO_SPACE], "", |node| {
        let size = node.options::<DepthToSpaceOptions>()?.block_size;
        blocks(node, O::DEPTH_TO_SPACE, size)
    }),
    Mapping::new(Builtin::SPACE_TO_DEPTH, &[O::SPACE_TO_DEPTH], "", |node| {
        let size = node.options::<SpaceToDepthOptions>()?.block_size;
        blocks(node, O::SPACE_TO_DEPTH, size)
    }),
    Mapping::new(Builtin::SPACE_TO_BATCH_ND, &[O::SPACE_TO_BATCH_ND], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::SPACE_TO_BATCH_ND, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::BATCH_TO_SPACE_ND,
        &[O::BATCH_TO_SPACE_ND, O::SLICE],
        "constant crops; a SLICE where they are not zero",
        batch_to_space,
    ),
    Mapping::new(
        Builtin::RESIZE_BILINEAR,
        &[O::RESIZE_BILINEAR],
        "constant size; aligned corners and half-pixel centres passed on; int8 at positions in floats, where TFLite's have 10 \
         fractional bits",
        |node| {
            let options = node.options::<ResizeBilinearOptions>()?;
            resize(
                node,
                O::RESIZE_BILINEAR,
                options.align_corners,
                options.half_pixel_centers,
            )
        },
    ),
    Mapping::new(
        Builtin::RESIZE_NEAREST_NEIGHBOR,
        &[O::RESIZE_NEAREST_NEIGHBOR],
        "constant size; aligned corners and half-pixel centres passed on",
        |node| {
            let options = node.options::<ResizeNearestNeighborOptions>()?;
            resize(
                node,
                O::RESIZE_NEAREST_NEIGHBOR,
                options.align_corners,
                options.half_pixel_centers,
            )
        },
    ),
];

fn blocks(node: &mut Node<'_, '_, '_, '_>, kind: O, size: i32) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let size = node.scalar_i32(size)?;
    let output = node.output_moved_from(0, input)?;
    node.emit(kind, &[input, size], &[output])
}

fn batch_to_space(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let inputs = [node.input(0)?, node.input(1)?];
    let crops = node.i32s(2)?;
    let output = node.output_moved_from(0, inputs[0])?;
    if crops.iter().all(|crop| *crop == 0) {
        return node.emit(O::BATCH_TO_SPACE_ND, &inputs, &[output]);
    }
    let operand = node.graph.builder.operand(output).clone();
    let whole = node.temporary(Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    node.emit(O::BATCH_TO_SPACE_ND, &inputs, &[whole])?;
    let (begin, size) = match (node.graph.builder.dimensions(whole), crops.as_slice()) {
        (Some(&[_, height, width, _]), &[top, bottom, left, right]) => (
            [0, top, left, 0],
            [
                -1,
                remaining(height, top, bottom)?,
                remaining(width, left, right)?,
                -1,
            ],
        ),
        _ => return Err(node.input_error(2, "must crop two axes of an image whose dimensions are known")),
    };
    let slice = [whole, node.tensor_i32(&begin)?, node.tensor_i32(&size)?];
    node.emit(O::SLICE, &slice, &[output])
}

/// The extent that two crops leave.
fn remaining(extent: u32, head: i32, tail: i32) -> Result<i32, Refusal> {
    let left = i64::from(extent) - i64::from(head) - i64::from(tail);
    if head < 0 || tail < 0 || left < 1 {
        return Err(Refusal::Reason(format!(
            "it crops {head} and {tail} from extent {extent}; crops must be at least 0 and leave something"
        )));
    }
    i32::try_from(left).map_err(|error| Refusal::Reason(error.to_string()))
}

fn resize(
    node: &mut Node<'_, '_, '_, '_>,
    kind: O,
    align_corners: bool,
    half_pixel_centers: bool,
) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let size = node.i32s(1)?;
    let &[height, width] = size.as_slice() else {
        return Err(node.input_error(1, "must be height and width"));
    };
    // Older NNAPI versions have neither layout nor alignment here; they come only where they say something.
    let mut inputs = vec![input, node.scalar_i32(width)?, node.scalar_i32(height)?];
    let aligned = align_corners || half_pixel_centers;
    if aligned || kind == O::RESIZE_NEAREST_NEIGHBOR {
        inputs.push(node.scalar_bool(false)?);
    }
    if aligned {
        inputs.push(node.scalar_bool(align_corners)?);
        inputs.push(node.scalar_bool(half_pixel_centers)?);
    }
    let target = node.output_quantized_like(0, input)?;
    node.emit(kind, &inputs, &[target.id])?;
    node.settle(target)
}
