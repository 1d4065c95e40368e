//! Reductions of the rows of a tensor, segment by segment: SEGMENT_SUM and those of unsorted segments.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::blocks::count_of;
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::SEGMENT_SUM, sum),
    (tflite::UNSORTED_SEGMENT_SUM, sum),
    (tflite::UNSORTED_SEGMENT_PROD, product),
    (tflite::UNSORTED_SEGMENT_MAX, greatest),
    (tflite::UNSORTED_SEGMENT_MIN, least),
];

/// A number, with what the results of empty segments are. Integers wrap around.
trait Number: bytemuck::Pod + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const LEAST: Self;
    const GREATEST: Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! number {
    ($ty:ty, $zero:expr, $one:expr, |$left:ident, $right:ident| $plus:expr, $times:expr) => {
        impl Number for $ty {
            const ZERO: $ty = $zero;
            const ONE: $ty = $one;
            const LEAST: $ty = <$ty>::MIN;
            const GREATEST: $ty = <$ty>::MAX;

            fn plus(self, $right: $ty) -> $ty {
                let $left = self;
                $plus
            }

            fn times(self, $right: $ty) -> $ty {
                let $left = self;
                $times
            }
        }
    };
}

number!(f32, 0.0, 1.0, |left, right| left + right, left * right);
number!(
    f16,
    f16::ZERO,
    f16::ONE,
    |left, right| f16::from_f32(left.to_f32() + right.to_f32()),
    f16::from_f32(left.to_f32() * right.to_f32())
);
number!(
    i32,
    0,
    1,
    |left, right| left.wrapping_add(right),
    left.wrapping_mul(right)
);
number!(
    i64,
    0,
    1,
    |left, right| left.wrapping_add(right),
    left.wrapping_mul(right)
);

fn sum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    fn of<T: Number>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        reduce(context, T::ZERO, T::plus)
    }
    by_element!(context, { [f32, f16, i32, i64] => of(context) })
}

fn product(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    fn of<T: Number>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        reduce(context, T::ONE, T::times)
    }
    by_element!(context, { [f32, f16, i32, i64] => of(context) })
}

fn greatest(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    fn of<T: Number>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        reduce(
            context,
            T::LEAST,
            |left, right| if left < right { right } else { left },
        )
    }
    by_element!(context, { [f32, f16, i32, i64] => of(context) })
}

fn least(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    fn of<T: Number>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        reduce(
            context,
            T::GREATEST,
            |left, right| if right < left { right } else { left },
        )
    }
    by_element!(context, { [f32, f16, i32, i64] => of(context) })
}

/// Combines each row with what its segment has so far, at first `initial`. Unsorted, a row below all segments
/// is left out.
fn reduce<T: Number>(
    context: &mut KernelContext<'_>,
    initial: T,
    combine: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    let may_be_left_out = context.inputs.operation.operation_type != tflite::SEGMENT_SUM;
    let (data, ids) = (context.inputs.tensor(0)?, context.inputs.data::<i32>(1)?);
    let output = context.outputs.tensor(0)?;
    let segments = output.shape.dim(0);
    let target = output.into_data::<T>()?;
    target.fill(initial);
    let wrong = ids.iter().find(|id| match u32::try_from(**id) {
        Ok(id) => id >= segments,
        Err(_) => !may_be_left_out,
    });
    if let Some(id) = wrong {
        let message = format!("(segment_ids) holds {id}, must be below {segments}, the number of segments");
        let message = if may_be_left_out {
            message
        } else {
            message + ", and not below 0"
        };
        return Err(OpError::input(1, message).into());
    }
    let rows = data.data::<T>()?;
    if rows.is_empty() {
        return Ok(());
    }
    let run = count_of(&data.dims()[1..]);
    for (row, id) in rows.chunks_exact(run).zip(ids) {
        let Ok(id) = usize::try_from(*id) else { continue };
        for (to, from) in target[id * run..][..run].iter_mut().zip(row) {
            *to = combine(*to, *from);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn sum(ids: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(tflite::SEGMENT_SUM)
            .tensor(T::TENSOR_FLOAT32, &[3, 2], &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .tensor(T::TENSOR_INT32, &[ids.len() as u32], ids)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn rows_are_added_and_the_last_one_names_the_last_segment() {
        assert_eq!(sum(&[0, 0, 1]).unwrap(), (vec![2, 2], vec![4.0, 6.0, 5.0, 6.0]));
        assert_eq!(
            sum(&[0, 2, 2]).unwrap(),
            (vec![3, 2], vec![1.0, 2.0, 0.0, 0.0, 8.0, 10.0])
        );
    }

    #[test]
    fn segments_out_of_range_give_an_error() {
        assert!(sum(&[0, 2, 1]).unwrap_err().contains("(segment_ids) holds 2"));
        assert!(sum(&[-1, 0, 1]).unwrap_err().contains("not below 0"));
        assert!(sum(&[0, 1]).unwrap_err().contains("has 2 elements"));
        assert!(sum(&[0, 0, i32::MIN]).is_err());
        assert!(sum(&[0, 0, i32::MAX]).is_err());
    }

    fn unsorted(operation: OperationType, ids: &[i32], count: i32) -> Result<Vec<i32>, String> {
        OneOperation::new(operation)
            .tensor(T::TENSOR_INT32, &[4, 1], &[3, -2, 5, 7])
            .tensor(T::TENSOR_INT32, &[ids.len() as u32], ids)
            .tensor(T::TENSOR_INT32, &[1], &[count])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()
            .map(|(_, data)| data)
    }

    #[test]
    fn unsorted_rows_may_be_left_out_and_segments_empty() {
        let ids = [2, 0, 2, -1];
        let of = |operation| unsorted(operation, &ids, 3).unwrap();
        assert_eq!(of(tflite::UNSORTED_SEGMENT_SUM), [-2, 0, 8]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_PROD), [-2, 1, 15]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_MAX), [-2, i32::MIN, 5]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_MIN), [-2, i32::MAX, 3]);
        let sum = |ids: &[i32], count| unsorted(tflite::UNSORTED_SEGMENT_SUM, ids, count);
        assert!(
            sum(&[0, 1, 2, 3], 3)
                .unwrap_err()
                .contains("(segment_ids) holds 3")
        );
        assert!(sum(&ids, -1).unwrap_err().contains("-1 segments"));
        assert!(sum(&ids, 0).is_err());
        assert_eq!(sum(&[-1; 4], 0).unwrap(), []);
    }

    #[test]
    fn integers_of_64_bits_are_combined_at_all_their_bits() {
        let of = |operation| {
            OneOperation::new(operation)
                .tensor(tflite::TENSOR_INT64, &[3], &[3_i64 << 40, -(5 << 40), 7])
                .tensor(T::TENSOR_INT32, &[3], &[0, 0, 2])
                .tensor(T::TENSOR_INT32, &[1], &[3])
                .output(tflite::TENSOR_INT64, &[])
                .run_one::<i64>()
                .unwrap()
                .1
        };
        assert_eq!(of(tflite::UNSORTED_SEGMENT_SUM), [-(2 << 40), 0, 7]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_PROD), [0, 1, 7]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_MAX), [3 << 40, i64::MIN, 7]);
        assert_eq!(of(tflite::UNSORTED_SEGMENT_MIN), [-(5 << 40), i64::MAX, 7]);
    }

    #[test]
    fn halves_are_numbers_too() {
        let halves = [1.0, 2.0, 0.5].map(f16::from_f32);
        let found = OneOperation::new(tflite::UNSORTED_SEGMENT_MIN)
            .tensor(T::TENSOR_FLOAT16, &[3], &halves)
            .tensor(T::TENSOR_INT32, &[3], &[0, 0, 0])
            .tensor(T::TENSOR_INT32, &[1], &[2])
            .output(T::TENSOR_FLOAT16, &[])
            .run_one::<f16>();
        assert_eq!(found.unwrap(), (vec![2], vec![f16::from_f32(0.5), f16::MAX]));
    }
}
