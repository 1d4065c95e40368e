//! SHAPE: the dimensions of a tensor.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::SHAPE, shape)];

fn shape(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    for (to, extent) in context.outputs.data::<i32>(0)?.iter_mut().zip(input.dims()) {
        *to = i32::try_from(*extent).map_err(|_| {
            let message = format!("has an extent of {extent}, which does not fit TENSOR_INT32");
            OpError::input(0, message)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn shape(dims: &[u32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        let count = dims.iter().product::<u32>() as usize;
        OneOperation::new(tflite::SHAPE)
            .tensor(T::TENSOR_BOOL8, dims, &vec![0_u8; count])
            .output(T::TENSOR_INT32, &[0])
            .run_one()
    }

    #[test]
    fn dimensions_are_a_vector() {
        assert_eq!(shape(&[2, 1, 3]).unwrap(), (vec![3], vec![2, 1, 3]));
        assert_eq!(shape(&[0]).unwrap(), (vec![1], vec![0]));
    }

    #[test]
    fn extents_that_do_not_fit_give_an_error() {
        assert!(shape(&[0, 1 << 31]).unwrap_err().contains("2147483648"));
    }
}
