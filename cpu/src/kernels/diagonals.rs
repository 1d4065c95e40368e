//! MATRIX_DIAG and MATRIX_SET_DIAG: matrices that have given diagonals.

use nnhal_hal::{OperationType, tflite};

use super::blocks::by_element_size;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::MATRIX_DIAG, matrix_diag),
    (tflite::MATRIX_SET_DIAG, matrix_set_diag),
];

fn matrix_diag(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, among_zeros(context))
}

/// Zero is where all bits are, whatever the zero point.
fn among_zeros<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let diagonals = context.inputs.data::<T>(0)?;
    context.outputs.data::<T>(0)?.fill(T::zeroed());
    write(context, diagonals)
}

fn matrix_set_diag(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, among_others(context))
}

fn among_others<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let diagonals = context.inputs.data::<T>(1)?;
    let matrices = context.inputs.data::<T>(0)?;
    context.outputs.data::<T>(0)?.copy_from_slice(matrices);
    write(context, diagonals)
}

/// Writes the diagonals into the matrices of the output.
fn write<T: bytemuck::Pod>(context: &mut KernelContext<'_>, diagonals: &[T]) -> Result<(), KernelError> {
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let target = output.into_data::<T>()?;
    let (false, [.., rows, columns]) = (target.is_empty(), shape.dims()) else {
        return Ok(());
    };
    let (rows, columns) = (*rows as usize, *columns as usize);
    let matrices = target.chunks_exact_mut(rows * columns);
    for (matrix, diagonal) in matrices.zip(diagonals.chunks_exact(rows.min(columns))) {
        for (to, from) in matrix.iter_mut().step_by(columns + 1).zip(diagonal) {
            *to = *from;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn diagonals_stand_among_zeros() {
        let found = OneOperation::new(tflite::MATRIX_DIAG)
            .tensor(T::TENSOR_INT32, &[2, 2], &[1, 2, 3, 4])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert_eq!(found.unwrap(), (vec![2, 2, 2], vec![1, 0, 0, 2, 3, 0, 0, 4]));
        let found = OneOperation::new(tflite::MATRIX_DIAG)
            .tensor::<i32>(T::TENSOR_INT32, &[2, 0], &[])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert_eq!(found.unwrap(), (vec![2, 0, 0], vec![]));
    }

    fn set(dims: &[u32], diagonal: &[u32]) -> Result<Vec<f32>, String> {
        let count = |dims: &[u32]| dims.iter().product::<u32>() as usize;
        OneOperation::new(tflite::MATRIX_SET_DIAG)
            .tensor(T::TENSOR_FLOAT32, dims, &vec![1_f32; count(dims)])
            .tensor(T::TENSOR_FLOAT32, diagonal, &vec![7_f32; count(diagonal)])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .map(|(_, data)| data)
    }

    #[test]
    fn matrices_need_not_be_square() {
        assert_eq!(set(&[2, 3], &[2]).unwrap(), [7.0, 1.0, 1.0, 1.0, 7.0, 1.0]);
        assert_eq!(set(&[3, 2], &[2]).unwrap(), [7.0, 1.0, 1.0, 7.0, 1.0, 1.0]);
        assert_eq!(set(&[2, 1, 2], &[2, 1]).unwrap(), [7.0, 1.0, 7.0, 1.0]);
        assert_eq!(set(&[0, 2], &[0]).unwrap(), []);
    }

    #[test]
    fn diagonals_of_other_lengths_give_an_error() {
        assert!(set(&[2, 3], &[3]).unwrap_err().contains("(diagonal)"));
        assert!(set(&[2, 2, 2], &[2]).unwrap_err().contains("(diagonal)"));
        assert!(set(&[2], &[1]).unwrap_err().contains("rank"));
    }
}
