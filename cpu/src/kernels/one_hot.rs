//! ONE_HOT: for each index a list that has one value at the index and another elsewhere.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::filling::new_axis;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use super::index::{Index, by_index};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::ONE_HOT, one_hot)];

fn one_hot(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(2)?.ty();
    by_element_size!(ty, write(context))
}

fn write<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_index!(context, 0, write_by::<T>(context))
}

fn write_by<T: bytemuck::Pod, I: Index>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let indices = context.inputs.tensor(0)?;
    let value = |input: usize| match context.inputs.data::<T>(input)? {
        [value] => Ok(*value),
        values => Err(KernelError::from(OpError::input(
            input,
            format!("has {} elements, must have one", values.len()),
        ))),
    };
    let (on, off) = (value(2)?, value(3)?);
    let axis = new_axis(context.inputs.rules(), indices.shape.rank())?;
    let output = context.outputs.tensor(0)?;
    let depth = output.shape.dim(axis) as usize;
    let target = output.into_data::<T>()?;
    if target.is_empty() {
        return Ok(());
    }
    let behind = count_of(&indices.dims()[axis..]);
    let indices = indices.data::<I>()?.chunks_exact(behind);
    for (lists, indices) in target.chunks_exact_mut(depth * behind).zip(indices) {
        for (place, row) in lists.chunks_exact_mut(behind).enumerate() {
            for (to, index) in row.iter_mut().zip(indices) {
                *to = if index.below(depth) == Some(place) {
                    on
                } else {
                    off
                };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn one_hot(depth: i32, axis: i32) -> Result<(Vec<u32>, Vec<u8>), String> {
        OneOperation::new(tflite::ONE_HOT)
            .tensor(T::TENSOR_INT32, &[1, 3], &[2, -1, 0])
            .tensor(T::TENSOR_INT32, &[1], &[depth])
            .tensor(T::TENSOR_BOOL8, &[1], &[1_u8])
            .tensor(T::TENSOR_BOOL8, &[1], &[0_u8])
            .i32(axis)
            .output(T::TENSOR_BOOL8, &[])
            .run_one()
    }

    #[test]
    fn the_new_axis_may_be_last_or_before_any_other() {
        let rows = vec![0, 0, 1, 0, 0, 0, 1, 0, 0];
        assert_eq!(one_hot(3, -1).unwrap(), (vec![1, 3, 3], rows.clone()));
        assert_eq!(one_hot(3, 2).unwrap(), (vec![1, 3, 3], rows));
        let columns = vec![0, 0, 1, 0, 0, 0, 1, 0, 0];
        assert_eq!(one_hot(3, 0).unwrap(), (vec![3, 1, 3], columns));
        assert_eq!(one_hot(2, 1).unwrap(), (vec![1, 2, 3], vec![0, 0, 1, 0, 0, 0]));
        assert_eq!(one_hot(0, -1).unwrap(), (vec![1, 3, 0], vec![]));
    }

    #[test]
    fn indices_and_values_may_have_64_bits() {
        let found = OneOperation::new(tflite::ONE_HOT)
            .tensor(tflite::TENSOR_INT64, &[2], &[1_i64, 1 << 32])
            .tensor(T::TENSOR_INT32, &[1], &[2])
            .tensor(tflite::TENSOR_INT64, &[1], &[9_i64 << 40])
            .tensor(tflite::TENSOR_INT64, &[1], &[-1_i64])
            .i32(-1)
            .output(tflite::TENSOR_INT64, &[])
            .run_one::<i64>();
        assert_eq!(found.unwrap(), (vec![2, 2], vec![-1, 9 << 40, -1, -1]));
    }

    #[test]
    fn depths_and_axes_that_make_no_sense_give_an_error() {
        assert!(one_hot(-1, 0).unwrap_err().contains("(depth) is -1"));
        assert!(one_hot(i32::MAX, 0).is_err());
        for axis in [-2, 3, i32::MIN, i32::MAX] {
            assert!(one_hot(1, axis).unwrap_err().contains("(axis)"));
        }
    }
}
