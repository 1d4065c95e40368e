//! REDUCE_WINDOW: one value for each place of a window.

use crate::ops::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Ty};
use crate::{OperandType as T, Shape, tflite};

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::REDUCE_WINDOW,
    variants: MOVED,
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::new("start", Ty::Var(0)),
        Param::integers("window"),
        Param::integers("window_strides"),
        Param::integers("window_dilations"),
        Param::scalar("combination", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(places),
}];

/// How REDUCE_WINDOW makes one value of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The smaller one.
    Minimum,
    /// The larger one.
    Maximum,
    /// Whether both are true.
    All,
    /// Whether one is true.
    Any,
}

impl Combination {
    /// That of a REDUCE_WINDOW.
    ///
    /// # Errors
    /// An unknown number, or one that the type has not.
    pub fn of(context: &dyn OperationContext) -> Result<Combination, ShapeIssue> {
        let truth = context.required(0)?.ty() == T::TENSOR_BOOL8;
        match (context.i32(5)?, truth) {
            (1, false) => Ok(Combination::Add),
            (2, false) => Ok(Combination::Multiply),
            (3, false) => Ok(Combination::Minimum),
            (4, false) => Ok(Combination::Maximum),
            (5, true) => Ok(Combination::All),
            (6, true) => Ok(Combination::Any),
            (other, _) => {
                let message = format!(
                    "(combination) is {other}, must be from 1 to 4 for numbers (sum, product, least, most), 5 or 6 for \
                     truth values (all, any)"
                );
                Err(OpError::input(5, message).into())
            }
        }
    }
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    context.check_single_element(1, "start")?;
    context.check_same_quantization(1, 0)?;
    unless_unknown(Combination::of(context))?;
    Ok(())
}

/// Along each axis as many as the window has places, none if it is longer than the axis.
fn places(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut shape = context.shape(0)?;
    let rank = shape.rank();
    let mut lists = [&[][..]; 3];
    for (number, (list, name)) in lists
        .iter_mut()
        .zip(["window", "window_strides", "window_dilations"])
        .enumerate()
    {
        *list = context.i32s(2 + number)?;
        if list.len() != rank || list.iter().any(|value| *value < 1) {
            let message = format!("({name}) is {list:?}, must have {rank} elements of at least 1");
            return Err(OpError::input(2 + number, message).into());
        }
    }
    let [window, strides, dilations] = lists;
    for (axis, extent) in shape.dims_mut().iter_mut().enumerate() {
        let [window, stride, dilation] = [window, strides, dilations].map(|list| i64::from(list[axis]));
        let room = i64::from(*extent) - ((window - 1) * dilation + 1);
        // At most the extent of the input.
        *extent = if room < 0 { 0 } else { (room / stride + 1) as u32 };
    }
    set(outputs, 0, shape_of(shape.dims())?)
}
