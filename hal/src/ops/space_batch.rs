//! BATCH_TO_SPACE_ND and SPACE_TO_BATCH_ND: blocks of pixels for batches, and back.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::pad::zero_means_zero;
use super::padding::Extents;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::{IMAGE, IMAGE_RESULT, LAYOUT, image};

use HalVersion::{V1_1, V1_2, V1_3};

const BLOCK_SHAPE: Param = Param::new("blockShape", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1));
const PADDINGS: Param = Param::new("paddings", Ty::Is(T::TENSOR_INT32)).late_rank(Rank::Is(2));

const BATCH_TO_SPACE_TYPES: &[Variant] = &[
    Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const SPACE_TO_BATCH_TYPES: &[Variant] = &[
    Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]).only_if(zero_means_zero),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::BATCH_TO_SPACE_ND,
        variants: BATCH_TO_SPACE_TYPES,
        forms: &[Form::default(&[IMAGE, BLOCK_SHAPE, LAYOUT.trailing(V1_2)])],
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(|context, outputs| infer(batch_to_space(context)?, outputs)),
    },
    OperationEntry {
        operation: OperationType::SPACE_TO_BATCH_ND,
        variants: SPACE_TO_BATCH_TYPES,
        forms: &[Form::default(&[
            IMAGE,
            BLOCK_SHAPE,
            PADDINGS,
            LAYOUT.trailing(V1_2),
        ])],
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(|context, outputs| infer(space_to_batch(context)?, outputs)),
    },
];

/// Input and output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchGeometry {
    /// The input.
    pub input: Extents,
    /// The output.
    pub output: Extents,
    /// Height and width of a block of pixels.
    pub block: [u32; 2],
    /// Padding of top and left.
    pub head: [u32; 2],
    /// Whether input and output are NCHW.
    pub nchw: bool,
}

/// The geometry of a BATCH_TO_SPACE_ND: the pixels of a block divide the batch.
pub fn batch_to_space(context: &dyn OperationContext) -> Result<BatchGeometry, ShapeIssue> {
    let block = block(context)?;
    let nchw = context.bool_or(2, false)?;
    let input = image(context, 0, nchw)?;
    let output = (|| {
        let of_block = block[0].checked_mul(block[1])?;
        (input.batch % of_block == 0).then_some(())?;
        Some(Extents {
            batch: input.batch / of_block,
            height: input.height.checked_mul(block[0])?,
            width: input.width.checked_mul(block[1])?,
            ..input
        })
    })()
    .ok_or_else(|| {
        let message = format!(
            "(blockShape) is {block:?}, its product must divide {}, the batch of input 0, and no extent may go beyond \
             32 bits",
            input.batch
        );
        OpError::input(1, message)
    })?;
    Ok(BatchGeometry {
        input,
        output,
        block,
        head: [0; 2],
        nchw,
    })
}

/// The geometry of a SPACE_TO_BATCH_ND: a block divides the padded image.
pub fn space_to_batch(context: &dyn OperationContext) -> Result<BatchGeometry, ShapeIssue> {
    let block = block(context)?;
    let [top, bottom, left, right] = paddings(context)?;
    let nchw = context.bool_or(3, false)?;
    let input = image(context, 0, nchw)?;
    let padded = |extent: u32, head: u32, tail| extent.checked_add(head)?.checked_add(tail);
    let output = (|| {
        let height = padded(input.height, top, bottom)?;
        let width = padded(input.width, left, right)?;
        (height % block[0] == 0 && width % block[1] == 0).then_some(())?;
        Some(Extents {
            batch: input
                .batch
                .checked_mul(block[0])?
                .checked_mul(block[1])?,
            height: height / block[0],
            width: width / block[1],
            ..input
        })
    })()
    .ok_or_else(|| {
        let message = format!(
            "(blockShape) is {block:?}, which must divide height {} + {top} + {bottom} and width {} + {left} + {right}, \
             and no extent may go beyond 32 bits",
            input.height, input.width
        );
        OpError::input(1, message)
    })?;
    Ok(BatchGeometry {
        input,
        output,
        block,
        head: [top, left],
        nchw,
    })
}

fn block(context: &dyn OperationContext) -> Result<[u32; 2], ShapeIssue> {
    let given = context.i32s(1)?;
    let positive = |value: i32| u32::try_from(value).ok().filter(|value| *value > 0);
    match *given {
        [height, width] => positive(height).zip(positive(width)),
        _ => None,
    }
    .map(|(height, width)| [height, width])
    .ok_or_else(|| {
        OpError::input(
            1,
            format!("(blockShape) is {given:?}, must be a height and a width of at least 1"),
        )
        .into()
    })
}

/// Top, bottom, left and right.
fn paddings(context: &dyn OperationContext) -> Result<[u32; 4], ShapeIssue> {
    let given = context.i32s(2)?;
    let refused = || {
        let message = format!(
            "(paddings) is {given:?}, must be top, bottom, left and right, none below 0, as a 2 by 2 tensor"
        );
        ShapeIssue::from(OpError::input(2, message))
    };
    let values = <[i32; 4]>::try_from(given).map_err(|_| refused())?;
    if context.shape(2)?.dims() != [2, 2] || values.iter().any(|value| *value < 0) {
        return Err(refused());
    }
    Ok(values.map(i32::unsigned_abs))
}

fn infer(geometry: BatchGeometry, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 0, shape_of(&geometry.output.dims(geometry.nchw))?)
}
