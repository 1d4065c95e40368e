//! RANGE of the extension. The shape rule counts the steps; each is added to the number before, as TFLite
//! does.

use nnhal_hal::{OperationType, tflite};

use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::RANGE, range)];

fn range(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32] => count(context, |value, step| value + step),
        [i32] => count(context, i32::wrapping_add),
        [i64] => count(context, i64::wrapping_add),
    })
}

fn count<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    next: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    let (start, step) = (context.inputs.data::<T>(0)?, context.inputs.data::<T>(2)?);
    let mut value = start.first().copied().unwrap_or_else(T::zeroed);
    let step = step.first().copied().unwrap_or_else(T::zeroed);
    for result in context.outputs.data::<T>(0)? {
        *result = value;
        value = next(value, step);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn range<E: bytemuck::Pod>(ty: T, bounds: [E; 3]) -> Result<Vec<E>, String> {
        let given = bounds
            .iter()
            .fold(OneOperation::new(tflite::RANGE), |operation, value| {
                operation.tensor(ty, &[1], &[*value])
            });
        Ok(given.output(ty, &[]).run_one::<E>()?.1)
    }

    #[test]
    fn numbers_stop_before_the_limit() {
        assert_eq!(range(T::TENSOR_INT32, [2, 9, 3]).unwrap(), [2, 5, 8]);
        assert_eq!(range(T::TENSOR_INT32, [2, -1, -1]).unwrap(), [2, 1, 0]);
        assert_eq!(range(T::TENSOR_INT32, [2, 2, 1]).unwrap(), []);
        assert_eq!(
            range(tflite::TENSOR_INT64, [i64::MAX, i64::MAX - 3, -2]).unwrap(),
            [i64::MAX, i64::MAX - 2]
        );
        assert_eq!(
            range(T::TENSOR_FLOAT32, [0.0_f32, 1.0, 0.25]).unwrap(),
            [0.0, 0.25, 0.5, 0.75]
        );
    }

    #[test]
    fn steps_that_lead_nowhere_and_more_than_one_number_give_an_error() {
        for bounds in [[0, 1, 0], [0, 1, -1], [1, 0, 1]] {
            let error = range(T::TENSOR_INT32, bounds).unwrap_err();
            assert!(error.contains("(step)"), "{error}");
        }
        assert!(range(T::TENSOR_FLOAT32, [0.0_f32, f32::NAN, 1.0]).is_err());
        assert!(range(tflite::TENSOR_INT64, [0, i64::MAX, 1]).is_err());
        for ty in [T::TENSOR_FLOAT32, T::TENSOR_INT32, tflite::TENSOR_INT64] {
            let one = vec![0_u8; ty.element_size()];
            let error = OneOperation::new(tflite::RANGE)
                .tensor(ty, &[2], &one.repeat(2))
                .tensor(ty, &[1], &one)
                .tensor(ty, &[1], &one)
                .output(ty, &[])
                .run()
                .unwrap_err();
            assert!(error.contains("must be one"), "{error}");
        }
    }
}
