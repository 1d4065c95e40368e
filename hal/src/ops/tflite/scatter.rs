//! Operations on places of a tensor that other tensors name by their indices: GATHER_ND, SCATTER_ND,
//! SPARSE_TO_DENSE and DYNAMIC_UPDATE_SLICE.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::fill::shape_in;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{chained, set};
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::{Shape, tflite};

use super::types::{self, MOVED};

const INDICES: Param = Param::new("indices", types::INDICES);

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::GATHER_ND,
        variants: MOVED,
        forms: &[Form::default(&[Param::new("input", Ty::Var(0)), INDICES])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(gathered),
    },
    OperationEntry {
        operation: tflite::DYNAMIC_UPDATE_SLICE,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("update", Ty::Var(0)),
            Param::integers("start"),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| {
            context.check_same_quantization(0, 0)?;
            context.check_same_quantization(1, 0)
        },
        shape: ShapeRule::Infer(updated),
    },
    OperationEntry {
        operation: tflite::SCATTER_ND,
        variants: MOVED,
        forms: &[Form::default(&[
            INDICES,
            Param::new("updates", Ty::Var(0)),
            Param::integers("shape"),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| context.check_same_quantization(1, 0),
        shape: ShapeRule::Infer(scattered),
    },
    OperationEntry {
        operation: tflite::SPARSE_TO_DENSE,
        variants: MOVED,
        forms: &[Form::default(&[
            INDICES.rank(Rank::Between(1, 2)),
            Param::integers("shape"),
            Param::new("values", Ty::Var(0)).rank(Rank::Is(1)),
            Param::new("default", Ty::Var(0)),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| {
            context.check_same_quantization(2, 0)?;
            context.check_same_quantization(3, 0)
        },
        shape: ShapeRule::Infer(dense),
    },
];

/// How many indices name a place: the last extent of `indices`, which are input `input`. Each is along one of
/// the first axes of `shape`.
pub fn depth_of(input: usize, indices: &Shape, shape: &Shape) -> Result<usize, OpError> {
    let most = shape.rank();
    match indices.dims().last() {
        Some(depth) if *depth as usize <= most => Ok(*depth as usize),
        _ => {
            let message =
                format!("(indices) has dimensions {indices:?}, the last must be at most {most}, the rank");
            Err(OpError::input(input, message))
        }
    }
}

/// For each place what lies there.
fn gathered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, indices) = (context.shape(0)?, context.shape(1)?);
    set(outputs, 0, at_places(1, &indices, &shape)?)
}

/// The dimensions of all that lies at the places of a tensor which the indices name.
fn at_places(input: usize, indices: &Shape, shape: &Shape) -> Result<Shape, OpError> {
    let depth = depth_of(input, indices, shape)?;
    let places = indices.dims().split_last().map_or(&[][..], |(_, places)| places);
    chained(&[places, &shape.dims()[depth..]])
}

fn scattered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (indices, updates) = (context.shape(0)?, context.shape(1)?);
    let shape = shape_in(context, 2, "shape")?;
    let expected = at_places(0, &indices, &shape)?;
    if updates != expected {
        let message = format!("(updates) has dimensions {updates:?}, must have {expected:?}");
        return Err(OpError::input(1, message).into());
    }
    set(outputs, 0, shape)
}

/// The dimensions that input 1 holds. Each place has a value, or all have the same one.
fn dense(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let indices = context.shape(0)?;
    let shape = shape_in(context, 1, "shape")?;
    let depth = if indices.rank() == 2 { indices.dim(1) } else { 1 };
    if depth as usize != shape.rank() {
        let message = format!(
            "(indices) has {depth} indices for each place, must have {} as the output has axes",
            shape.rank()
        );
        return Err(OpError::input(0, message).into());
    }
    let (places, values) = (indices.dim(0), context.shape_of_rank(2, 1)?.dim(0));
    if values != places && values != 1 {
        let message = format!("(values) has {values} elements, must have {places} as there are places, or 1");
        return Err(OpError::input(2, message).into());
    }
    set(outputs, 0, shape)
}

/// The shape of the input, in which the update must have room.
fn updated(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, update, start) = (context.shape(0)?, context.shape(1)?, context.shape_of_rank(2, 1)?);
    let has_room = update.rank() == shape.rank()
        && update
            .dims()
            .iter()
            .zip(shape.dims())
            .all(|(inner, outer)| inner <= outer);
    if !has_room {
        let message =
            format!("(update) has dimensions {update:?}, must fit into those of input 0, {shape:?}");
        return Err(OpError::input(1, message).into());
    }
    if start.dim(0) as usize != shape.rank() {
        let message = format!(
            "(start) has {} elements, must have {} as input 0 has axes",
            start.dim(0),
            shape.rank()
        );
        return Err(OpError::input(2, message).into());
    }
    set(outputs, 0, shape)
}
