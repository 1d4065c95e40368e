//! CUMSUM, RANGE and BUCKETIZE.

use crate::ops::context::unless_unknown;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{resolve_axis, same_as_input, set, shape_of};
use crate::ops::signature::{Form, Param, Rank, Ty, Variant};
use crate::ops::{OpError, OperationContext, ShapeIssue};
use crate::{HalVersion, OperandType as T, Shape, tflite};

use HalVersion::V1_2;

use super::types::NUMBERS;

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::CUMSUM,
        variants: NUMBERS,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("axis", Ty::Is(T::TENSOR_INT32)),
            Param::scalar("exclusive", T::BOOL),
            Param::scalar("reverse", T::BOOL),
        ])],
        outputs: &[Param::new("output", Ty::Var(0))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(summed),
    },
    OperationEntry {
        operation: tflite::RANGE,
        variants: &[
            Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_INT32]),
            Variant::new(V1_2, &[tflite::TENSOR_INT64]),
        ],
        forms: &[Form::default(&[
            Param::new("start", Ty::Var(0)),
            Param::new("limit", Ty::Var(0)),
            Param::new("step", Ty::Var(0)),
        ])],
        outputs: &[Param::new("output", Ty::Var(0))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(counted),
    },
    OperationEntry {
        operation: tflite::BUCKETIZE,
        variants: NUMBERS,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::new("boundaries", Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(1)),
        ])],
        outputs: &[Param::new("output", Ty::Is(T::TENSOR_INT32))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(same_as_input),
    },
];

/// The shape of the input, once the axis is legal.
fn summed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    if let Some(axis) = unless_unknown(context.i32(1))? {
        resolve_axis(1, axis, shape.rank())?;
    }
    same_as_input(context, outputs)
}

/// One extent: how many steps there are from the start to before the limit.
fn counted(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let count = match context.required(0)?.ty() {
        T::TENSOR_INT32 => {
            let [start, limit, step] = [context.i32(0)?, context.i32(1)?, context.i32(2)?];
            whole_steps(start.into(), limit.into(), step.into())
        }
        tflite::TENSOR_INT64 => whole_steps(whole(context, 0)?, whole(context, 1)?, whole(context, 2)?),
        _ => real_steps(real(context, 0)?, real(context, 1)?, real(context, 2)?),
    };
    let Some(count) = count else {
        let message = "(step) is 0 or leads away from the limit, must lead from the start to the limit in steps that \
                       can be counted";
        return Err(OpError::input(2, message).into());
    };
    set(outputs, 0, shape_of(&[count])?)
}

fn whole_steps(start: i64, limit: i64, step: i64) -> Option<u32> {
    let distance = i128::from(limit) - i128::from(start);
    if step == 0 || (distance != 0 && (distance < 0) != (step < 0)) {
        return None;
    }
    let count = distance.unsigned_abs().div_ceil(step.unsigned_abs().into());
    u32::try_from(count).ok()
}

fn real_steps(start: f32, limit: f32, step: f32) -> Option<u32> {
    let leads_on = (start <= limit && step > 0.0) || (start >= limit && step < 0.0);
    let count = ((limit - start) / step).abs().ceil();
    (leads_on && count < u32::MAX as f32).then_some(count as u32)
}

/// The value of an input of one float.
fn real(context: &dyn OperationContext, index: usize) -> Result<f32, ShapeIssue> {
    one(context, index, "float").map(f32::from_ne_bytes)
}

/// The value of an input of one 64-bit integer.
fn whole(context: &dyn OperationContext, index: usize) -> Result<i64, ShapeIssue> {
    one(context, index, "integer").map(i64::from_ne_bytes)
}

/// The bytes of an input of one element.
fn one<const N: usize>(
    context: &dyn OperationContext,
    index: usize,
    name: &str,
) -> Result<[u8; N], ShapeIssue> {
    let bytes = context.bytes(index)?;
    bytes.try_into().map_err(|_| {
        let message = format!("has {} bytes, must be one {name} of {N}", bytes.len());
        OpError::input(index, message).into()
    })
}

#[cfg(test)]
mod tests {
    use super::{real_steps, whole_steps};

    #[test]
    fn steps_are_counted_to_before_the_limit() {
        assert_eq!(whole_steps(0, 5, 2), Some(3));
        assert_eq!(whole_steps(5, 0, -5), Some(1));
        assert_eq!(whole_steps(3, 3, 1), Some(0));
        assert_eq!(whole_steps(i32::MIN.into(), i32::MAX.into(), 1), Some(u32::MAX));
        assert_eq!(whole_steps(i64::MIN, i64::MAX, i64::MAX), Some(3));
        assert_eq!(real_steps(0.0, 1.0, 0.3), Some(4));
        assert_eq!(real_steps(1.0, 0.0, -0.5), Some(2));
    }

    #[test]
    fn steps_that_never_arrive_are_refused() {
        assert_eq!(whole_steps(0, 5, 0), None);
        assert_eq!(whole_steps(0, 5, -1), None);
        assert_eq!(whole_steps(5, 0, i32::MAX.into()), None);
        assert_eq!(real_steps(0.0, 5.0, 0.0), None);
        assert_eq!(real_steps(0.0, f32::INFINITY, 1.0), None);
        assert_eq!(real_steps(0.0, 1.0, 1e-30), None);
        assert_eq!(real_steps(f32::NAN, 1.0, 1.0), None);
    }
}
