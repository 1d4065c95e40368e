//! TRANSPOSE_CONV_2D: the gradient of a convolution with respect to its input, so its windows slide over the
//! output.
//!
//! The implicit form gives the output's shape. As in the HAL reference its height and width count, its batch
//! and channels follow from input and filter. The reference takes the smallest size that VALID padding allows
//! whatever the shape says; here the shape decides where it agrees with the input, so that outputs beyond the
//! last window, as TFLite has them, are kept.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::filters::{self, BIAS, FILTER};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::padding::{Extents, PaddingScheme};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty};
use super::windows::{
    self, ACTIVATION, IMAGE, IMAGE_RESULT, LAYOUT, PAD_BOTTOM, PAD_LEFT, PAD_RIGHT, PAD_TOP, PADDING_SCHEME,
    STRIDE_HEIGHT, STRIDE_WIDTH,
};

use HalVersion::V1_2;

const OUTPUT_SHAPE: Param = Param::new("outputShape", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1));

const FORMS: &[Form] = &[
    Form::named(
        "explicit padding",
        &[
            IMAGE,
            FILTER,
            BIAS,
            PAD_LEFT,
            PAD_RIGHT,
            PAD_TOP,
            PAD_BOTTOM,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            ACTIVATION,
            LAYOUT,
        ],
    )
    .since(V1_2),
    Form::named(
        "implicit padding",
        &[
            IMAGE,
            FILTER,
            BIAS,
            OUTPUT_SHAPE,
            PADDING_SCHEME,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            ACTIVATION,
            LAYOUT,
        ],
    )
    .since(V1_2),
];

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::TRANSPOSE_CONV_2D,
    variants: filters::SINCE_1_2,
    forms: FORMS,
    outputs: IMAGE_RESULT,
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(infer),
}];

/// One axis of a transposed convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposedWindow {
    /// Extent of the filter.
    pub filter: u32,
    /// Step between the windows of neighbouring inputs.
    pub stride: u32,
    /// Outputs that are cut off before the first one.
    pub head: u32,
}

/// What slides over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposedGeometry {
    /// The input.
    pub input: Extents,
    /// The output.
    pub output: Extents,
    /// The window along the height.
    pub vertical: TransposedWindow,
    /// The window along the width.
    pub horizontal: TransposedWindow,
    /// Whether input and output are NCHW.
    pub nchw: bool,
}

/// Number of arguments of the explicit form.
const EXPLICIT_COUNT: usize = 11;

/// Where the activation stands in this call.
#[must_use]
pub fn activation(context: &dyn OperationContext) -> usize {
    context.input_count().saturating_sub(2)
}

/// An axis whose stride is the argument `stride`.
struct Axis {
    input: u32,
    filter: u32,
    stride: usize,
}

impl Axis {
    /// The window and the output's extent, from padding arguments at `head` and after it.
    fn explicit(
        &self,
        context: &dyn OperationContext,
        head: usize,
    ) -> Result<(TransposedWindow, u32), ShapeIssue> {
        let stride = windows::positive(context, self.stride, "stride")?;
        let padding = |index| {
            let value = context.i32(index)?;
            u32::try_from(value).map_err(|_| {
                ShapeIssue::from(OpError::input(
                    index,
                    format!("(padding) is {value}, must not be negative"),
                ))
            })
        };
        let (head, tail) = (padding(head)?, padding(head + 1)?);
        let full = self.extent_of_all_windows(stride);
        let output = full - i64::from(head) - i64::from(tail);
        let output = u32::try_from(output).ok().filter(|output| *output > 0).ok_or_else(|| {
            OpError::operation(format!(
                "padding of {head} and {tail} leaves {output} of {full} outputs, must leave at least 1 and fit 32 bits"
            ))
        })?;
        Ok((self.window(stride, head), output))
    }

    /// The window for an output of `output` elements.
    fn implicit(
        &self,
        context: &dyn OperationContext,
        scheme: PaddingScheme,
        output: i32,
    ) -> Result<(TransposedWindow, u32), ShapeIssue> {
        let stride = windows::positive(context, self.stride, "stride")?;
        let output = u32::try_from(output)
            .ok()
            .filter(|output| *output > 0)
            .ok_or_else(|| {
                OpError::input(
                    3,
                    format!("(outputShape) has an extent of {output}, must be at least 1"),
                )
            })?;
        let (full, extent, step) = (
            self.extent_of_all_windows(stride),
            i64::from(output),
            i64::from(stride),
        );
        let (fits, head) = match scheme {
            PaddingScheme::Same => {
                let windows = i64::from(output.div_ceil(stride));
                (windows == i64::from(self.input), (full - extent).max(0) / 2)
            }
            PaddingScheme::Valid => ((full..full + step).contains(&extent), 0),
        };
        if !fits {
            let message = format!(
                "(outputShape) has an extent of {output}, which does not follow from {} inputs with a stride of \
                 {stride} and a filter of {}",
                self.input, self.filter
            );
            return Err(OpError::input(3, message).into());
        }
        // Half of what exceeds the output, so below the extent of the filter.
        Ok((self.window(stride, head as u32), output))
    }

    fn window(&self, stride: u32, head: u32) -> TransposedWindow {
        TransposedWindow {
            filter: self.filter,
            stride,
            head,
        }
    }

    fn extent_of_all_windows(&self, stride: u32) -> i64 {
        (i64::from(self.input) - 1) * i64::from(stride) + i64::from(self.filter)
    }
}

/// What slides over what: the filter is `[output channels, height, width, input channels]` in either layout.
pub fn geometry(context: &dyn OperationContext) -> Result<TransposedGeometry, ShapeIssue> {
    let activation = activation(context);
    let nchw = context.bool_or(activation + 1, false)?;
    let filter = context.shape_of_rank(1, 4)?;
    filters::check_bias_length(context, filter.dim(0))?;
    if !filter.is_fully_specified() {
        return Err(OpError::input(1, format!("(filter) has dimensions {filter:?}, none may be 0")).into());
    }
    let input = windows::image(context, 0, nchw)?;
    if input.channels != filter.dim(3) {
        let message = format!(
            "(filter) has dimensions {filter:?}, the last must be {}, the channels of input 0",
            input.channels
        );
        return Err(OpError::input(1, message).into());
    }
    let axis = |input, filter, stride| Axis {
        input,
        filter,
        stride,
    };
    // The strides stand before the activation, width first.
    let rows = axis(input.height, filter.dim(1), activation - 1);
    let columns = axis(input.width, filter.dim(2), activation - 2);
    let ((vertical, height), (horizontal, width)) = if context.input_count() == EXPLICIT_COUNT {
        (rows.explicit(context, 5)?, columns.explicit(context, 3)?)
    } else {
        let scheme = PaddingScheme::from_code(4, context.i32(4)?)?;
        let [height, width] = output_size(context, nchw)?;
        (
            rows.implicit(context, scheme, height)?,
            columns.implicit(context, scheme, width)?,
        )
    };
    Ok(TransposedGeometry {
        input,
        output: Extents {
            batch: input.batch,
            height,
            width,
            channels: filter.dim(0),
        },
        vertical,
        horizontal,
        nchw,
    })
}

/// Height and width in the implicit form's output shape.
fn output_size(context: &dyn OperationContext, nchw: bool) -> Result<[i32; 2], ShapeIssue> {
    match *context.i32s(3)? {
        [_, height, width, _] if !nchw => Ok([height, width]),
        [_, _, height, width] => Ok([height, width]),
        ref other => Err(OpError::input(
            3,
            format!("(outputShape) has {} elements, must have 4", other.len()),
        )
        .into()),
    }
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let geometry = geometry(context)?;
    set(outputs, 0, shape_of(&geometry.output.dims(geometry.nchw))?)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    filters::check_quantization(context)?;
    windows::check_activation(context, activation(context))
}
