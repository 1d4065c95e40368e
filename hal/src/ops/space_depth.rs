//! DEPTH_TO_SPACE and SPACE_TO_DEPTH: blocks of pixels for channels, and back.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::padding::Extents;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Variant};
use super::windows::{IMAGE, IMAGE_RESULT, LAYOUT, image, positive};

use HalVersion::{V1_0, V1_2, V1_3};

const FORMS: &[Form] = &[Form::default(&[
    IMAGE,
    Param::scalar("blockSize", T::INT32),
    LAYOUT.trailing(V1_2),
])];

const TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const fn entry(
    operation: OperationType,
    infer: fn(&dyn OperationContext, &mut [Shape]) -> Result<(), ShapeIssue>,
) -> OperationEntry {
    OperationEntry {
        operation,
        variants: TYPES,
        forms: FORMS,
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(infer),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(OperationType::DEPTH_TO_SPACE, |context, outputs| {
        infer(context, outputs, depth_to_space)
    }),
    entry(OperationType::SPACE_TO_DEPTH, |context, outputs| {
        infer(context, outputs, space_to_depth)
    }),
];

/// Input and output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    /// The input.
    pub input: Extents,
    /// The output.
    pub output: Extents,
    /// Edge of a block of pixels.
    pub block: u32,
    /// Whether input and output are NCHW.
    pub nchw: bool,
}

/// The geometry of a DEPTH_TO_SPACE: the square of the block size divides the channels.
pub fn depth_to_space(context: &dyn OperationContext) -> Result<BlockGeometry, ShapeIssue> {
    geometry(context, |input, block| {
        let of_block = block.checked_mul(block)?;
        (input.channels % of_block == 0).then_some(())?;
        Some(Extents {
            height: input.height.checked_mul(block)?,
            width: input.width.checked_mul(block)?,
            channels: input.channels / of_block,
            ..input
        })
    })
}

/// The geometry of a SPACE_TO_DEPTH: the block size divides height and width.
pub fn space_to_depth(context: &dyn OperationContext) -> Result<BlockGeometry, ShapeIssue> {
    geometry(context, |input, block| {
        (input.height % block == 0 && input.width % block == 0).then_some(())?;
        Some(Extents {
            height: input.height / block,
            width: input.width / block,
            channels: input.channels.checked_mul(block)?.checked_mul(block)?,
            ..input
        })
    })
}

fn geometry(
    context: &dyn OperationContext,
    output: impl Fn(Extents, u32) -> Option<Extents>,
) -> Result<BlockGeometry, ShapeIssue> {
    let block = positive(context, 1, "blockSize")?;
    let nchw = context.bool_or(2, false)?;
    let input = image(context, 0, nchw)?;
    let output = output(input, block).ok_or_else(|| {
        let message = format!(
            "(blockSize) is {block}, which does not divide height {}, width {} and {} channels as it must, or makes \
             an extent beyond 32 bits",
            input.height, input.width, input.channels
        );
        OpError::input(1, message)
    })?;
    Ok(BlockGeometry {
        input,
        output,
        block,
        nchw,
    })
}

fn infer(
    context: &dyn OperationContext,
    outputs: &mut [Shape],
    geometry: fn(&dyn OperationContext) -> Result<BlockGeometry, ShapeIssue>,
) -> Result<(), ShapeIssue> {
    let geometry = geometry(context)?;
    set(outputs, 0, shape_of(&geometry.output.dims(geometry.nchw))?)
}
