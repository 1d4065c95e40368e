//! CUMSUM of the extension: sums along an axis that grow element by element.

use half::f16;
use nnhal_hal::ops::shapes::resolve_axis;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::Lanes;
use super::element::{Float, Integer, by_element};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::CUMSUM, cumsum)];

fn cumsum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => floats(context),
        [i32, i64] => integers(context),
    })
}

fn floats<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    sum::<T, f32>(context, |sum, value| sum + value.to_f32(), T::from_f32)
}

/// Integers wrap.
fn integers<T: Integer>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    sum::<T, i64>(context, |sum, value| sum.wrapping_add(value.into()), T::wrap)
}

fn sum<T: bytemuck::Pod, S: Copy + Default>(
    context: &mut KernelContext<'_>,
    add: impl Fn(S, T) -> S,
    finish: impl Fn(S) -> T,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let axis = resolve_axis(1, context.inputs.i32(1)?, input.shape.rank())?;
    let is_exclusive = context.inputs.bool_or(2, false)?;
    let is_reverse = context.inputs.bool_or(3, false)?;
    let lanes = Lanes::along(&input.shape, axis);
    let values = input.data::<T>()?;
    let output = context.outputs.data::<T>(0)?;
    for start in lanes.starts() {
        let mut sum = S::default();
        for step in 0..lanes.extent {
            let place = if is_reverse { lanes.extent - 1 - step } else { step };
            let at = start + place * lanes.inner;
            let next = add(sum, values[at]);
            output[at] = finish(if is_exclusive { sum } else { next });
            sum = next;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn cumsum<E: bytemuck::Pod>(
        ty: T,
        values: &[E],
        axis: i32,
        is_exclusive: bool,
        is_reverse: bool,
    ) -> Result<Vec<E>, String> {
        let (_, data) = OneOperation::new(tflite::CUMSUM)
            .tensor(ty, &[2, values.len() as u32 / 2], values)
            .tensor(T::TENSOR_INT32, &[1], &[axis])
            .tensor(T::BOOL, &[], &[u8::from(is_exclusive)])
            .tensor(T::BOOL, &[], &[u8::from(is_reverse)])
            .output(ty, &[])
            .run_one::<E>()?;
        Ok(data)
    }

    #[test]
    fn sums_grow_along_either_axis_from_either_end() {
        let values = [1_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let of = |axis, is_exclusive, is_reverse| {
            cumsum(T::TENSOR_FLOAT32, &values, axis, is_exclusive, is_reverse).unwrap()
        };
        assert_eq!(of(1, false, false), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
        assert_eq!(of(-1, true, false), [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]);
        assert_eq!(of(1, false, true), [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]);
        assert_eq!(of(1, true, true), [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]);
        assert_eq!(of(0, false, false), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    }

    #[test]
    fn integers_wrap_and_nothing_has_no_sums() {
        let sums = |values: &[i32]| cumsum(T::TENSOR_INT32, values, 1, false, false).unwrap();
        assert_eq!(sums(&[i32::MAX, 1, 0, 2]), [i32::MAX, i32::MIN, 0, 2]);
        assert_eq!(sums(&[]), []);
        let wide = cumsum(tflite::TENSOR_INT64, &[i64::MAX, 1, 1 << 40, 2], 1, false, false);
        assert_eq!(wide.unwrap(), [i64::MAX, i64::MIN, 1 << 40, (1 << 40) + 2]);
    }

    #[test]
    fn axis_outside_the_rank_gives_an_error() {
        for axis in [2, -3, i32::MIN] {
            let error = cumsum(T::TENSOR_INT32, &[1, 2], axis, false, false).unwrap_err();
            assert!(error.contains("names axis"), "{error}");
        }
    }
}
