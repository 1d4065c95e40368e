//! BUCKETIZE of the extension: for each element the number of boundaries that are not above it.

use half::f16;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::unary;
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::BUCKETIZE, bucketize)];

fn bucketize(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32] => count(context, |value| value),
        [f16] => count(context, f16::to_f32),
        [i32] => count(context, |value| value as f32),
    })
}

/// The boundaries rise. What is no number is above them all, as in TFLite's kernel.
fn count<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    real: impl Fn(T) -> f32,
) -> Result<(), KernelError> {
    let boundaries = context.inputs.data::<f32>(1)?;
    unary::<T, i32>(context, |value| {
        let value = real(value);
        boundaries.partition_point(|boundary| value >= *boundary || value.is_nan()) as i32
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn bucketize<E: bytemuck::Pod>(ty: T, values: &[E], boundaries: &[f32]) -> Vec<i32> {
        OneOperation::new(tflite::BUCKETIZE)
            .tensor(ty, &[values.len() as u32], values)
            .tensor(T::TENSOR_FLOAT32, &[boundaries.len() as u32], boundaries)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()
            .unwrap()
            .1
    }

    #[test]
    fn boundaries_that_are_reached_count() {
        let values = [-5.0_f32, 0.0, 9.9, 10.0, f32::INFINITY, f32::NAN];
        assert_eq!(
            bucketize(T::TENSOR_FLOAT32, &values, &[0.0, 10.0, 10.0]),
            [0, 1, 1, 3, 3, 3]
        );
        assert_eq!(bucketize(T::TENSOR_INT32, &[-1, 0, 5], &[0.0, 4.5]), [0, 1, 2]);
        assert_eq!(bucketize(T::TENSOR_INT32, &[1], &[]), [0]);
    }

    #[test]
    fn boundaries_that_do_not_rise_give_some_number() {
        let found = bucketize(T::TENSOR_FLOAT32, &[1.0_f32, f32::NAN], &[3.0, f32::NAN, -1.0]);
        assert!(found.iter().all(|count| (0..=3).contains(count)), "{found:?}");
    }
}
