//! CONV_3D and CONV_3D_TRANSPOSE: a window that slides over a volume, and the reverse.
//!
//! Volumes are `[batch, depth, height, width, channels]`; arguments for each axis come in that order.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::fill::shape_in;
use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::padding::{PaddingScheme, Window};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank, Ty, join};
use crate::ops::windows::{ACTIVATION, PADDING_SCHEME, check_activation};
use crate::{OperandType as T, Shape, tflite};

const fn volume(name: &'static str) -> Param {
    Param::new(name, Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(5))
}

const BIAS: Param = Param::new("bias", Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(1));

const STRIDES: [Param; 3] = [
    Param::scalar("strideDepth", T::INT32),
    Param::scalar("strideHeight", T::INT32),
    Param::scalar("strideWidth", T::INT32),
];

const DILATIONS: [Param; 3] = [
    Param::scalar("dilationDepth", T::INT32),
    Param::scalar("dilationHeight", T::INT32),
    Param::scalar("dilationWidth", T::INT32),
];

const INPUTS: [Param; 11] = join(&[
    &[volume("input"), volume("filter"), BIAS, PADDING_SCHEME],
    &STRIDES,
    &DILATIONS,
    &[ACTIVATION],
]);

const TRANSPOSE_INPUTS: [Param; 12] = join(&[&INPUTS, &[Param::integers("outputShape")]]);

const CONV_3D: OperationEntry = OperationEntry {
    operation: tflite::CONV_3D,
    variants: &[],
    forms: &[Form::default(&INPUTS)],
    outputs: &[volume("output")],
    outputs_repeat: false,
    check: |context| check_activation(context, 10),
    shape: ShapeRule::Infer(|context, outputs| geometry(context)?.set_output(outputs)),
};

pub(super) const ENTRIES: &[OperationEntry] = &[
    CONV_3D,
    OperationEntry {
        operation: tflite::CONV_3D_TRANSPOSE,
        forms: &[Form::default(&TRANSPOSE_INPUTS)],
        shape: ShapeRule::Infer(|context, outputs| transposed_geometry(context)?.set_output(outputs)),
        ..CONV_3D
    },
];

/// What slides over what.
#[derive(Clone, Copy, Debug)]
pub struct VolumeGeometry {
    /// The input.
    pub input: Shape,
    /// The output.
    pub output: Shape,
    /// The windows along depth, height and width.
    pub windows: [Window; 3],
}

impl VolumeGeometry {
    fn set_output(&self, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
        set(outputs, 0, self.output)
    }
}

/// The geometry of CONV_3D, whose filter is `[depth, height, width, input channels, output channels]`.
pub fn geometry(context: &dyn OperationContext) -> Result<VolumeGeometry, ShapeIssue> {
    let (input, filter) = (volume_at(context, 0)?, volume_at(context, 1)?);
    check_channels(context, &filter, (3, input.dim(4)), filter.dim(4))?;
    let windows = windows(context, &input, &filter)?;
    let mut dims = [input.dim(0), 0, 0, 0, filter.dim(4)];
    for (axis, window) in windows.iter().enumerate() {
        dims[axis + 1] = window.output_extent(input.dim(axis + 1))?;
    }
    Ok(VolumeGeometry {
        input,
        output: shape_of(&dims)?,
        windows,
    })
}

/// The geometry of CONV_3D_TRANSPOSE, whose filter is `[depth, height, width, output channels, input
/// channels]`. The window slides over the output, which has the dimensions that the last input holds. It must
/// have as many places there as the input has.
pub fn transposed_geometry(context: &dyn OperationContext) -> Result<VolumeGeometry, ShapeIssue> {
    let (input, filter) = (volume_at(context, 0)?, volume_at(context, 1)?);
    check_channels(context, &filter, (4, input.dim(4)), filter.dim(3))?;
    let output = shape_in(context, 11, "outputShape")?;
    let fits = output.rank() == 5 && output.dim(0) == input.dim(0) && output.dim(4) == filter.dim(3);
    if !fits || output.dims()[1..].contains(&0) {
        let message = format!(
            "(outputShape) is {output:?}, must be [{}, depth, height, width, {}] by the other inputs",
            input.dim(0),
            filter.dim(3)
        );
        return Err(OpError::input(11, message).into());
    }
    let windows = windows(context, &output, &filter)?;
    for (axis, window) in (1..).zip(&windows) {
        let places = window.output_extent(output.dim(axis))?;
        if places != input.dim(axis) {
            let message = format!(
                "(outputShape) is {output:?}, over which the window has {places} places along axis {axis}, \
                 must have {} as input 0",
                input.dim(axis)
            );
            return Err(OpError::input(11, message).into());
        }
    }
    Ok(VolumeGeometry {
        input,
        output,
        windows,
    })
}

/// An input of five axes; only the first one may be empty.
fn volume_at(context: &dyn OperationContext, input: usize) -> Result<Shape, ShapeIssue> {
    let shape = context.shape_of_rank(input, 5)?;
    if shape.dims()[1..].contains(&0) || (input > 0 && shape.dim(0) == 0) {
        let message = format!("has dimensions {shape:?}, only the batch may be 0");
        return Err(OpError::input(input, message).into());
    }
    Ok(shape)
}

/// The filter must have that many input channels along its axis of them, and the bias an element for each
/// result.
fn check_channels(
    context: &dyn OperationContext,
    filter: &Shape,
    (axis, channels): (usize, u32),
    results: u32,
) -> Result<(), ShapeIssue> {
    if filter.dim(axis) != channels {
        let message = format!(
            "(filter) has dimensions {filter:?}, must have {channels} along axis {axis}, the channels of input 0"
        );
        return Err(OpError::input(1, message).into());
    }
    let bias = context.shape_of_rank(2, 1)?.dim(0);
    if bias != results {
        let message = format!("(bias) has {bias} elements, must have {results}, one for each output channel");
        return Err(OpError::input(2, message).into());
    }
    Ok(())
}

/// The windows of the filter over a volume.
fn windows(context: &dyn OperationContext, over: &Shape, filter: &Shape) -> Result<[Window; 3], ShapeIssue> {
    let scheme = PaddingScheme::from_code(3, context.i32(3)?)?;
    let window = |axis: usize| -> Result<Window, ShapeIssue> {
        let (stride, dilation) = (context.i32(4 + axis)?, context.i32(7 + axis)?);
        let (extent, taps) = (over.dim(axis + 1), filter.dim(axis));
        Ok(Window::implicit(scheme, extent, taps, stride, dilation)?)
    };
    Ok([window(0)?, window(1)?, window(2)?])
}
