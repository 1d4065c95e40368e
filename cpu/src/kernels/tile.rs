//! TILE: a tensor repeated along its axes.

use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::TILE, tile), (tflite::TILE, tile)];

fn tile(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, repeat(context))
}

/// Each axis of the output is walked as two: the repetitions, which stay where they are in the input, and the
/// input's own axis.
fn repeat<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let multiples = context.inputs.data::<i32>(1)?;
    let axes = 2 * input.shape.rank();
    let of_input = steps_of(input.dims());
    let mut extents = [0_u32; 2 * MAX_RANK];
    let mut steps = [0_isize; 2 * MAX_RANK];
    for (axis, (multiple, dim)) in multiples.iter().zip(input.dims()).enumerate() {
        // The shape rule has found them not negative.
        extents[2 * axis] = u32::try_from(*multiple).unwrap_or(0);
        extents[2 * axis + 1] = *dim;
        steps[2 * axis + 1] = of_input[axis];
    }
    copy_block(
        &extents[..axes],
        input.data::<T>()?,
        &Layout::new(0, &steps[..axes]),
        context.outputs.data::<T>(0)?,
        &Layout::whole(&extents[..axes]),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn tile(multiples: &[i32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        OneOperation::new(OperationType::TILE)
            .tensor(T::TENSOR_INT32, &[2, 2], &[1, 2, 3, 4])
            .tensor(T::TENSOR_INT32, &[multiples.len() as u32], multiples)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn every_axis_is_repeated() {
        assert_eq!(
            tile(&[2, 2]).unwrap(),
            (vec![4, 4], vec![1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4])
        );
        assert_eq!(tile(&[1, 1]).unwrap().1, [1, 2, 3, 4]);
        assert_eq!(tile(&[3, 0]).unwrap(), (vec![6, 0], vec![]));
    }

    #[test]
    fn multiples_that_are_negative_enormous_or_too_few_give_an_error() {
        assert!(tile(&[-1, 1]).unwrap_err().contains("(multiples) is -1"));
        assert!(tile(&[i32::MAX, i32::MAX]).is_err());
        assert!(tile(&[1 << 20, 1 << 20]).is_err());
        assert!(tile(&[2]).unwrap_err().contains("1 elements"));
    }

    #[test]
    fn truth_values_are_moved_by_every_operation_of_the_extension() {
        let input = |operation| OneOperation::new(operation).tensor(T::TENSOR_BOOL8, &[2], &[1_u8, 0]);
        let run = |operation: OneOperation| operation.output(T::TENSOR_BOOL8, &[]).run_one::<u8>().unwrap().1;
        let with = |operation: OneOperation, values: &[i32]| {
            operation.tensor(T::TENSOR_INT32, &[values.len() as u32], values)
        };
        assert_eq!(run(with(input(tflite::TILE), &[2])), [1, 0, 1, 0]);
        assert_eq!(run(with(input(tflite::REVERSE), &[0])), [0, 1]);
        assert_eq!(run(with(with(input(tflite::SLICE), &[1]), &[1])), [0]);
        assert_eq!(run(input(tflite::SPLIT).i32(0).i32(1)), [1, 0]);
        let pack = OneOperation::new(tflite::PACK).i32(1);
        let pack = pack
            .tensor(T::TENSOR_BOOL8, &[1], &[1_u8])
            .tensor(T::TENSOR_BOOL8, &[1], &[0_u8]);
        assert_eq!(run(pack), [1, 0]);
        let lookup = OneOperation::new(tflite::EMBEDDING_LOOKUP).tensor(T::TENSOR_INT32, &[1], &[1]);
        assert_eq!(run(lookup.tensor(T::TENSOR_BOOL8, &[2, 1], &[0_u8, 1])), [1]);
    }
}
