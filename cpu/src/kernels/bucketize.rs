//! BUCKETIZE of the extension: for each element the number of boundaries that are not above it.

use half::f16;
use nnhal_hal::{OperationType, tflite};

use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::BUCKETIZE, bucketize)];

/// Elements between two questions whether to go on.
const BLOCK: usize = 1 << 12;

fn bucketize(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32] => count(context, |value| value),
        [f16] => count(context, f16::to_f32),
        [i32] => count(context, |value| value as f32),
        [i64] => count(context, |value| value as f32),
    })
}

/// The boundaries rise. What is no number is above them all, as in TFLite's kernel.
fn count<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    real: impl Fn(T) -> f32,
) -> Result<(), KernelError> {
    let mut pace = context.pace();
    let (input, boundaries) = (context.inputs.data::<T>(0)?, context.inputs.data::<f32>(1)?);
    let output = context.outputs.data::<i32>(0)?;
    for (counts, values) in output.chunks_mut(BLOCK).zip(input.chunks(BLOCK)) {
        pace.work(values.len())?;
        for (count, value) in counts.iter_mut().zip(values) {
            let value = real(*value);
            *count = boundaries.partition_point(|boundary| value >= *boundary || value.is_nan()) as i32;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

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
        assert_eq!(
            bucketize(tflite::TENSOR_INT64, &[1_i64 << 40, 3], &[4.0, 1e12]),
            [2, 0]
        );
    }

    #[test]
    fn many_elements_end_by_the_deadline() {
        let count = 200_000_u32;
        let operation = OneOperation::new(tflite::BUCKETIZE)
            .tensor(T::TENSOR_INT32, &[count], &vec![5_i32; count as usize])
            .tensor(T::TENSOR_FLOAT32, &[2], &[0.0_f32, 4.5])
            .output(T::TENSOR_INT32, &[]);
        ends_by_the_deadline(operation);
    }

    #[test]
    fn boundaries_that_do_not_rise_give_some_number() {
        let found = bucketize(T::TENSOR_FLOAT32, &[1.0_f32, f32::NAN], &[3.0, f32::NAN, -1.0]);
        assert!(found.iter().all(|count| (0..=3).contains(count)), "{found:?}");
    }
}
