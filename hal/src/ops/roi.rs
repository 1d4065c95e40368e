//! ROI_ALIGN and ROI_POOLING: regions of an image, all at the same size.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::boxes::{BOX_LENGTH, check_box_quantization, check_known, exact, positive_float};
use super::context::{OpError, OperationContext, OperationPart, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::padding::Extents;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::{IMAGE, IMAGE_RESULT, LAYOUT, image, positive};

use HalVersion::{V1_2, V1_3};

const ROIS: Param = Param::new("rois", Ty::Var(1)).rank(Rank::Is(2));
const BATCH_SPLIT: Param = Param::new("batchSplit", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1));
const OUTPUT_HEIGHT: Param = Param::scalar("outputHeight", T::INT32);
const OUTPUT_WIDTH: Param = Param::scalar("outputWidth", T::INT32);
const HEIGHT_STRIDE: Param = Param::new("heightStride", Ty::Var(2));
const WIDTH_STRIDE: Param = Param::new("widthStride", Ty::Var(2));

/// The image, the boxes, and scalars.
const TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(
        V1_2,
        &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT16_ASYMM, T::FLOAT32],
    ),
    Variant::new(
        V1_3,
        &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT16_ASYMM, T::FLOAT32],
    ),
];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::ROI_ALIGN,
        variants: TYPES,
        forms: &[Form::default(&[
            IMAGE,
            ROIS,
            BATCH_SPLIT,
            OUTPUT_HEIGHT,
            OUTPUT_WIDTH,
            HEIGHT_STRIDE,
            WIDTH_STRIDE,
            Param::scalar("heightSamples", T::INT32),
            Param::scalar("widthSamples", T::INT32),
            LAYOUT,
        ])],
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check: |context| {
            check_box_quantization(context, OperationPart::Input(1))?;
            check_known(context, align_geometry)
        },
        shape: ShapeRule::Infer(|context, outputs| {
            let (geometry, _) = align_geometry(context)?;
            geometry.set_output(outputs)
        }),
    },
    OperationEntry {
        operation: OperationType::ROI_POOLING,
        variants: TYPES,
        forms: &[Form::default(&[
            IMAGE,
            ROIS,
            BATCH_SPLIT,
            OUTPUT_HEIGHT,
            OUTPUT_WIDTH,
            HEIGHT_STRIDE,
            WIDTH_STRIDE,
            LAYOUT,
        ])],
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check: |context| {
            check_box_quantization(context, OperationPart::Input(1))?;
            keeps_quantization(context)?;
            check_known(context, pooling_geometry)
        },
        shape: ShapeRule::Infer(|context, outputs| pooling_geometry(context)?.set_output(outputs)),
    },
];

/// Most samples that a caller may ask for along one axis of a bin. Bins are seldom more than a few pixels
/// wide; a count of billions would only keep the device busy.
const MOST_SAMPLES: i32 = 1024;

/// Which regions of what become how large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionGeometry {
    /// The image.
    pub input: Extents,
    /// The output: one image for each region.
    pub output: Extents,
    /// How many units of the boxes' coordinates one row of the image is.
    pub height_stride: f32,
    /// How many units of the boxes' coordinates one column of the image is.
    pub width_stride: f32,
    /// Whether input and output are NCHW.
    pub nchw: bool,
}

impl RegionGeometry {
    fn new(context: &dyn OperationContext, layout: usize) -> Result<RegionGeometry, ShapeIssue> {
        let height = positive(context, 3, "outputHeight")?;
        let width = positive(context, 4, "outputWidth")?;
        let height_stride = positive_float(context, 5, "heightStride")?;
        let width_stride = positive_float(context, 6, "widthStride")?;
        let nchw = context.bool(layout)?;
        let input = image(context, 0, nchw)?;
        let regions = context.shape_of_rank(1, 2)?.dim(0);
        exact(context, 1, "rois", &[regions, BOX_LENGTH])?;
        exact(context, 2, "batchSplit", &[regions])?;
        Ok(RegionGeometry {
            input,
            output: Extents {
                batch: regions,
                height,
                width,
                channels: input.channels,
            },
            height_stride,
            width_stride,
            nchw,
        })
    }

    fn set_output(&self, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
        set(outputs, 0, shape_of(&self.output.dims(self.nchw))?)
    }
}

/// Samples along the height and the width of each bin; `None` for as many as there are pixels.
pub type Samples = [Option<u32>; 2];

/// The geometry of a call of ROI_ALIGN, and the samples it takes.
pub fn align_geometry(context: &dyn OperationContext) -> Result<(RegionGeometry, Samples), ShapeIssue> {
    let samples = [
        samples(context, 7, "heightSamples")?,
        samples(context, 8, "widthSamples")?,
    ];
    Ok((RegionGeometry::new(context, 9)?, samples))
}

/// The geometry of a call of ROI_POOLING.
pub fn pooling_geometry(context: &dyn OperationContext) -> Result<RegionGeometry, ShapeIssue> {
    RegionGeometry::new(context, 7)
}

fn samples(context: &dyn OperationContext, index: usize, name: &str) -> Result<Option<u32>, ShapeIssue> {
    match context.i32(index)? {
        0 => Ok(None),
        count @ 1..=MOST_SAMPLES => Ok(Some(count as u32)),
        count => Err(OpError::input(
            index,
            format!("({name}) is {count}, must be from 0 (as many as pixels) to {MOST_SAMPLES}"),
        )
        .into()),
    }
}
