//! SLICE and STRIDED_SLICE: a part of a tensor.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape, tflite};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_1, V1_2, V1_3};

const INPUT: Param = Param::new("input", Ty::Var(0));
const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::SLICE,
        variants: &[
            Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
            Variant::new(V1_2, &[T::TENSOR_INT32]),
            Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        forms: &[Form::default(&[
            INPUT,
            Param::integers("begin"),
            Param::integers("size"),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(sliced),
    },
    OperationEntry {
        operation: OperationType::STRIDED_SLICE,
        variants: &[
            Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
            Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        forms: &[Form::default(&[
            INPUT.rank(Rank::Between(1, 4)),
            Param::integers("begin"),
            Param::integers("end"),
            Param::integers("strides"),
            Param::scalar("begin_mask", T::INT32),
            Param::scalar("end_mask", T::INT32),
            Param::scalar("shrink_axis_mask", T::INT32),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(strided),
    },
];

/// The elements that a slice takes along one axis: `count` of them from `start` on, `stride` apart. All lie
/// inside the axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First element.
    pub start: u32,
    /// Distance from one to the next; negative to walk backwards.
    pub stride: i32,
    /// Number of elements.
    pub count: u32,
    /// Whether the output has no axis for this one.
    pub shrunk: bool,
}

fn is_slice(context: &dyn OperationContext) -> bool {
    matches!(context.operation(), OperationType::SLICE | tflite::SLICE)
}

/// The ranges of SLICE or STRIDED_SLICE along each axis of input 0, which has this shape.
pub fn ranges(context: &dyn OperationContext, shape: &Shape) -> Result<[Range; MAX_RANK], ShapeIssue> {
    let mut ranges = [Range::default(); MAX_RANK];
    for (axis, range) in ranges[..shape.rank()].iter_mut().enumerate() {
        *range = if is_slice(context) {
            range_from_size(context, shape, axis)?
        } else {
            range_from_end(context, shape, axis)?
        };
    }
    Ok(ranges)
}

/// The element for `axis` of a vector input, which must have one for each axis of `shape`. The extension's
/// STRIDED_SLICE may have fewer, as many in each of its vectors, and is asked for those only.
fn element(
    context: &dyn OperationContext,
    input: usize,
    shape: &Shape,
    axis: usize,
) -> Result<i32, ShapeIssue> {
    let values = context.i32s(input)?;
    let (expected, counted) = match context.operation() {
        tflite::STRIDED_SLICE => (
            context.i32s(1)?.len().min(shape.rank()),
            "input 1 has elements or input 0 axes",
        ),
        _ => (shape.rank(), "input 0 has axes"),
    };
    match values.get(axis) {
        Some(value) if values.len() == expected => Ok(*value),
        _ => {
            let message = format!("has {} elements, must have {expected} as {counted}", values.len());
            Err(OpError::input(input, message).into())
        }
    }
}

/// SLICE: `begin` and `size`, where -1 takes the rest.
fn range_from_size(context: &dyn OperationContext, shape: &Shape, axis: usize) -> Result<Range, ShapeIssue> {
    let (begin, size) = (
        element(context, 1, shape, axis)?,
        element(context, 2, shape, axis)?,
    );
    let extent = shape.dim(axis);
    let start = u32::try_from(begin)
        .ok()
        .filter(|start| *start <= extent)
        .ok_or_else(|| {
            let message =
                format!("(begin) is {begin} for axis {axis}, must be from 0 to its extent {extent}");
            OpError::input(1, message)
        })?;
    let rest = extent - start;
    let count = if size == -1 {
        Some(rest)
    } else {
        u32::try_from(size).ok()
    };
    let count = count.filter(|count| *count <= rest).ok_or_else(|| {
        let message =
            format!("(size) is {size} for axis {axis}, must be -1 or from 0 to what is left, {rest}");
        OpError::input(2, message)
    })?;
    Ok(Range {
        start,
        stride: 1,
        count,
        shrunk: false,
    })
}

/// STRIDED_SLICE: `begin`, `end` and `stride` with negative positions counted from the end, and positions
/// outside cut to the axis (HAL text and reference). A mask's bit takes the bound as far as the axis goes.
///
/// The extension's takes whole axes behind its bounds, and of an axis that vanishes the element `begin`,
/// whatever the end is (as TFLite does). Its ends may be counted from the begins.
fn range_from_end(context: &dyn OperationContext, shape: &Shape, axis: usize) -> Result<Range, ShapeIssue> {
    let is_wider = context.operation() == tflite::STRIDED_SLICE;
    if is_wider && axis >= context.i32s(1)?.len() {
        return Ok(Range {
            start: 0,
            stride: 1,
            count: shape.dim(axis),
            shrunk: false,
        });
    }
    let bit = 1_i32 << axis;
    let stride = element(context, 3, shape, axis)?;
    if stride == 0 {
        return Err(OpError::input(3, format!("(strides) is 0 for axis {axis}")).into());
    }
    let extent = i64::from(shape.dim(axis));
    // Walking backwards, the place before the first element is a bound as well.
    let (first, last) = if stride > 0 { (0, extent) } else { (-1, extent - 1) };
    let bound = |value: i64| {
        let value = if value < 0 { value + extent } else { value };
        value.clamp(first, last.max(first))
    };
    let (begin, end) = (
        element(context, 1, shape, axis)?,
        element(context, 2, shape, axis)?,
    );
    let (from, to) = if stride > 0 { (first, last) } else { (last, first) };
    let begin = if context.i32(4)? & bit != 0 {
        from
    } else {
        bound(begin.into())
    };
    let shrunk = context.i32(6)? & bit != 0;
    let end = if shrunk && is_wider {
        (begin + 1).min(last)
    } else if context.i32(5)? & bit != 0 {
        to
    } else if is_wider && context.bool_or(7, false)? {
        bound(begin + i64::from(end))
    } else {
        bound(end.into())
    };
    let distance = (end - begin) * i64::from(stride.signum());
    let apart = i64::from(stride).abs();
    // At most the extent, which fits 32 bits.
    let count = distance.max(0).div_euclid(apart) + i64::from(distance.max(0).rem_euclid(apart) != 0);
    if shrunk && (stride < 0 || count != 1) {
        let message = format!(
            "(shrink_axis_mask) drops axis {axis}, of which {count} elements are taken with stride {stride}; must be \
             one with a stride above 0"
        );
        return Err(OpError::input(6, message).into());
    }
    Ok(Range {
        start: if count == 0 { 0 } else { begin as u32 },
        stride,
        count: count as u32,
        shrunk,
    })
}

fn sliced(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut shape = context.shape(0)?;
    let ranges = ranges(context, &shape)?;
    for (extent, range) in shape.dims_mut().iter_mut().zip(ranges) {
        *extent = range.count;
    }
    set(outputs, 0, shape)
}

/// The counts of the axes that are not dropped; [1] if all are.
fn strided(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let ranges = ranges(context, &shape)?;
    let mut dims = [1_u32; MAX_RANK];
    let mut rank = 0;
    for range in ranges[..shape.rank()].iter().filter(|range| !range.shrunk) {
        dims[rank] = range.count;
        rank += 1;
    }
    set(outputs, 0, shape_of(&dims[..rank.max(1)])?)
}
