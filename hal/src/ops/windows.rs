//! The arguments that operations with a sliding window share, and the geometry that follows from them.
//!
//! Every such operation has an explicit form (padding left, right, top, bottom) and an implicit one (a
//! scheme). Both go on with the strides (width before height), what is the operation's own, the activation
//! and, if the operation has them, the layout and the dilation factors. An implicit call with dilation can
//! have as many arguments as an explicit one without layout; the type of one argument tells them apart, as in
//! the HAL: a `BOOL` stands where the implicit form has its layout.

use crate::{OperandType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::padding::{Extents, PaddingScheme, Window};
use super::shapes::{set, shape_of};
use super::signature::{DefaultValue, Param, Rank, Ty};

/// Padding of the left side.
pub const PAD_LEFT: Param = Param::scalar("padLeft", OperandType::INT32);
/// Padding of the right side.
pub const PAD_RIGHT: Param = Param::scalar("padRight", OperandType::INT32);
/// Padding of the top.
pub const PAD_TOP: Param = Param::scalar("padTop", OperandType::INT32);
/// Padding of the bottom.
pub const PAD_BOTTOM: Param = Param::scalar("padBottom", OperandType::INT32);
/// An implicit padding scheme; see [`PaddingScheme::from_code`].
pub const PADDING_SCHEME: Param = Param::scalar("paddingScheme", OperandType::INT32);
/// Step along the width.
pub const STRIDE_WIDTH: Param = Param::scalar("strideWidth", OperandType::INT32);
/// Step along the height.
pub const STRIDE_HEIGHT: Param = Param::scalar("strideHeight", OperandType::INT32);
/// A fused activation; see [`check_activation`].
pub const ACTIVATION: Param = Param::scalar("activation", OperandType::INT32);
/// Whether images are NCHW; NHWC where it is left off.
pub const LAYOUT: Param = Param::scalar("layout", OperandType::BOOL).default(DefaultValue::Bool(false));
/// Step between filter taps along the width.
pub const DILATION_WIDTH: Param =
    Param::scalar("dilationWidth", OperandType::INT32).default(DefaultValue::Int32(1));
/// Step between filter taps along the height.
pub const DILATION_HEIGHT: Param =
    Param::scalar("dilationHeight", OperandType::INT32).default(DefaultValue::Int32(1));
/// The tensor that the window slides over.
pub const IMAGE: Param = Param::new("input", Ty::Var(0)).rank(Rank::Is(4));
/// The only output of an operation with a sliding window.
pub const IMAGE_RESULT: &[Param] = &[Param::new("output", Ty::Var(0)).rank(Rank::Is(4))];

/// Where the arguments of a sliding window stand in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowArguments {
    /// Whether the padding is given side by side.
    pub explicit: bool,
    first: usize,
    own: usize,
}

/// An axis that a window slides along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Width,
    Height,
}

/// What slides over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowGeometry {
    /// The input.
    pub input: Extents,
    /// The output.
    pub output: Extents,
    /// The window along the height.
    pub vertical: Window,
    /// The window along the width.
    pub horizontal: Window,
    /// Whether input and output are NCHW.
    pub nchw: bool,
}

impl WindowArguments {
    /// The places in this call, for an operation whose padding starts at input `first` and that has `own`
    /// arguments of its own between strides and activation.
    #[must_use]
    pub fn of(context: &dyn OperationContext, first: usize, own: usize) -> WindowArguments {
        let implicit = WindowArguments {
            explicit: false,
            first,
            own,
        };
        let beyond = implicit.layout();
        let is_layout = |index| {
            context
                .input(index)
                .is_none_or(|input| input.ty() == OperandType::BOOL)
        };
        WindowArguments {
            explicit: context.has(beyond) && !is_layout(beyond),
            ..implicit
        }
    }

    fn strides(&self) -> usize {
        self.first + if self.explicit { 4 } else { 1 }
    }

    /// The first of the operation's own arguments.
    #[must_use]
    pub fn own(&self) -> usize {
        self.strides() + 2
    }

    /// The activation.
    #[must_use]
    pub fn activation(&self) -> usize {
        self.own() + self.own
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> usize {
        self.activation() + 1
    }

    /// Whether images are NCHW.
    pub fn nchw(&self, context: &dyn OperationContext) -> Result<bool, ShapeIssue> {
        context.bool_or(self.layout(), false)
    }

    /// The window along an axis with `input` elements.
    fn window(
        &self,
        context: &dyn OperationContext,
        axis: Axis,
        input: u32,
        filter: u32,
    ) -> Result<Window, ShapeIssue> {
        let (sides, after_width) = match axis {
            Axis::Width => (self.first, 0),
            Axis::Height => (self.first + 2, 1),
        };
        let stride = context.i32(self.strides() + after_width)?;
        let dilation = context.i32_or(self.layout() + 1 + after_width, 1)?;
        let window = if self.explicit {
            let (head, tail) = (context.i32(sides)?, context.i32(sides + 1)?);
            Window::explicit(filter, stride, dilation, head, tail)?
        } else {
            let scheme = PaddingScheme::from_code(self.first, context.i32(self.first)?)?;
            Window::implicit(scheme, input, filter, stride, dilation)?
        };
        // Otherwise a window could lie in the padding as a whole.
        if i64::from(window.head.max(window.tail)) >= window.effective() {
            let message = format!(
                "padding is {} and {}, must be below {}, the extent of the filter",
                window.head,
                window.tail,
                window.effective()
            );
            return Err(OpError::operation(message).into());
        }
        Ok(window)
    }

    /// The geometry of a window of `filter_height` by `filter_width` over input 0, with this many output
    /// channels.
    pub fn geometry(
        &self,
        context: &dyn OperationContext,
        [filter_height, filter_width]: [u32; 2],
        channels: u32,
    ) -> Result<WindowGeometry, ShapeIssue> {
        if channels == 0 {
            return Err(OpError::input(1, "(filter) gives no output channels").into());
        }
        let nchw = self.nchw(context)?;
        let input = image(context, 0, nchw)?;
        let vertical = self.window(context, Axis::Height, input.height, filter_height)?;
        let horizontal = self.window(context, Axis::Width, input.width, filter_width)?;
        let output = Extents {
            batch: input.batch,
            height: vertical.output_extent(input.height)?,
            width: horizontal.output_extent(input.width)?,
            channels,
        };
        Ok(WindowGeometry {
            input,
            output,
            vertical,
            horizontal,
            nchw,
        })
    }
}

impl WindowGeometry {
    /// Sets output 0 to the shape that follows.
    pub fn set_output(&self, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
        set(outputs, 0, shape_of(&self.output.dims(self.nchw))?)
    }
}

/// The extents of input `index`, an image; only the batch may be empty.
pub fn image(context: &dyn OperationContext, index: usize, nchw: bool) -> Result<Extents, ShapeIssue> {
    let shape = context.shape_of_rank(index, 4)?;
    let extents = Extents::of(&shape, nchw);
    if extents.height == 0 || extents.width == 0 || extents.channels == 0 {
        let message = format!("has dimensions {shape:?}, only the batch may be 0");
        return Err(OpError::input(index, message).into());
    }
    Ok(extents)
}

/// An argument that the arithmetic needs above 0.
pub fn positive(context: &dyn OperationContext, index: usize, name: &str) -> Result<u32, ShapeIssue> {
    let value = context.i32(index)?;
    u32::try_from(value)
        .ok()
        .filter(|value| *value > 0)
        .ok_or_else(|| OpError::input(index, format!("({name}) is {value}, must be at least 1")).into())
}

/// The activation code at this input must exist.
pub fn check_activation(context: &dyn OperationContext, index: usize) -> Result<(), OpError> {
    match unless_unknown(context.i32(index))? {
        Some(code) if !(0..=3).contains(&code) => Err(OpError::input(
            index,
            format!("(activation) is {code}, must be 0 (NONE), 1 (RELU), 2 (RELU1) or 3 (RELU6)"),
        )),
        _ => Ok(()),
    }
}
