//! DILATE: room between the elements of a tensor, and around them.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::{HalVersion, MAX_RANK, OperandType as T, Shape, tflite};

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::DILATE,
    variants: MOVED,
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::integers("dilations"),
        Param::new("value", Ty::Var(0)),
        Param::new("edges", Ty::Is(T::TENSOR_INT32))
            .rank(Rank::Is(2))
            .trailing(HalVersion::V1_2),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: |context| {
        keeps_quantization(context)?;
        context.check_single_element(2, "value")?;
        context.check_same_quantization(2, 0)
    },
    shape: ShapeRule::Infer(dilated),
}];

/// Where the elements along an axis go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The place of the first one; below 0 it is left out.
    pub first: i64,
    /// From one place to the next.
    pub step: i64,
    /// How many places there are.
    pub extent: u32,
}

/// The axes of the output.
pub fn spreads(context: &dyn OperationContext) -> Result<[Spread; MAX_RANK], ShapeIssue> {
    let shape = context.shape(0)?;
    let rank = shape.rank();
    let dilations = context.i32s(1)?;
    if dilations.len() != rank {
        let message = format!(
            "(dilations) has {} elements, must have {rank} as input 0 has axes",
            dilations.len()
        );
        return Err(OpError::input(1, message).into());
    }
    let edges = if context.has(3) {
        context.i32s(3)?
    } else {
        &[0; 2 * MAX_RANK][..2 * rank]
    };
    if edges.len() != 2 * rank {
        let message = format!(
            "(edges) has {} elements, must have two for each of {rank} axes",
            edges.len()
        );
        return Err(OpError::input(3, message).into());
    }
    let mut spreads = [Spread::default(); MAX_RANK];
    let axes = shape.dims().iter().zip(dilations).zip(edges.chunks_exact(2));
    for (spread, ((&extent, &step), around)) in spreads.iter_mut().zip(axes) {
        if step < 1 {
            let message = format!("(dilations) has the element {step}, must be at least 1");
            return Err(OpError::input(1, message).into());
        }
        let (first, behind) = (i64::from(around[0]), i64::from(around[1]));
        let step = i64::from(step);
        // At most 32 bits times 31.
        let inner = if extent == 0 {
            0
        } else {
            i64::from(extent - 1) * step + 1
        };
        let all = (inner + first + behind).max(0);
        let extent = u32::try_from(all).map_err(|_| {
            let message = format!("an extent would be {all}, which is beyond 32 bits");
            OpError::operation(message)
        })?;
        *spread = Spread { first, step, extent };
    }
    Ok(spreads)
}

fn dilated(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut shape = context.shape(0)?;
    for (extent, spread) in shape.dims_mut().iter_mut().zip(spreads(context)?) {
        *extent = spread.extent;
    }
    set(outputs, 0, shape_of(shape.dims())?)
}
