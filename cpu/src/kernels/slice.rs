//! SLICE and STRIDED_SLICE: a part of a tensor.

use nnhal_hal::ops::slice::ranges;
use nnhal_hal::ops::{OperationContext, ShapeIssue};
use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{BlockCopy, Layout, by_element_size, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::SLICE, slice),
    (tflite::SLICE, slice),
    (OperationType::STRIDED_SLICE, slice),
    (tflite::STRIDED_SLICE, slice),
];

fn slice(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, take(context))
}

fn take<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let copy = copy_of(context.inputs.rules())?;
    let from = context.inputs.data::<T>(0)?;
    copy.copy(from, context.outputs.data::<T>(0)?)
}

/// What a SLICE or STRIDED_SLICE copies.
pub(crate) fn copy_of(context: &dyn OperationContext) -> Result<BlockCopy, ShapeIssue> {
    let shape = context.shape(0)?;
    let rank = shape.rank();
    let ranges = ranges(context, &shape)?;
    let mut steps = [0; MAX_RANK];
    let mut start = 0_isize;
    for ((step, range), of_one) in steps.iter_mut().zip(&ranges[..rank]).zip(steps_of(shape.dims())) {
        // Too large only beside an extent of 0, and then nothing is taken.
        start = of_one.saturating_mul(range.start as isize).saturating_add(start);
        *step = of_one.saturating_mul(range.stride as isize);
    }
    let counts = ranges.map(|range| range.count);
    let counts = &counts[..rank];
    Ok(BlockCopy::new(
        counts,
        &Layout::new(start, &steps[..rank]),
        &Layout::whole(counts),
    ))
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn slice(begin: &[i32], size: &[i32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        OneOperation::new(OperationType::SLICE)
            .tensor(T::TENSOR_INT32, &[2, 3], &[1, 2, 3, 4, 5, 6])
            .tensor(T::TENSOR_INT32, &[begin.len() as u32], begin)
            .tensor(T::TENSOR_INT32, &[size.len() as u32], size)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn size_of_minus_1_takes_the_rest_and_0_nothing() {
        assert_eq!(slice(&[0, 1], &[-1, 2]).unwrap(), (vec![2, 2], vec![2, 3, 5, 6]));
        assert_eq!(slice(&[2, 0], &[-1, 3]).unwrap(), (vec![0, 3], vec![]));
        assert_eq!(slice(&[1, 1], &[1, 0]).unwrap().0, [1, 0]);
    }

    #[test]
    fn slices_outside_the_input_give_an_error() {
        assert!(
            slice(&[0, -1], &[1, 1])
                .unwrap_err()
                .contains("(begin) is -1 for axis 1")
        );
        assert!(slice(&[3, 0], &[-1, 1]).is_err());
        assert!(
            slice(&[1, 0], &[2, 1])
                .unwrap_err()
                .contains("(size) is 2 for axis 0")
        );
        assert!(slice(&[0, 0], &[-2, 1]).is_err());
        assert!(slice(&[0, i32::MAX], &[1, i32::MAX]).is_err());
        assert!(slice(&[0], &[1, 1]).unwrap_err().contains("input 1"));
        assert!(slice(&[0, 0], &[1, 1, 1]).unwrap_err().contains("input 2"));
    }

    /// Begin, end and stride for each axis of [[1, 2, 3], [4, 5, 6]], then the begin, end and shrink masks.
    fn strided(axes: [[i32; 3]; 2], masks: [i32; 3]) -> Result<(Vec<u32>, Vec<f32>), String> {
        let vector = |number: usize| axes.map(|axis| axis[number]);
        OneOperation::new(OperationType::STRIDED_SLICE)
            .tensor(T::TENSOR_FLOAT32, &[2, 3], &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .tensor(T::TENSOR_INT32, &[2], &vector(0))
            .tensor(T::TENSOR_INT32, &[2], &vector(1))
            .tensor(T::TENSOR_INT32, &[2], &vector(2))
            .i32(masks[0])
            .i32(masks[1])
            .i32(masks[2])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn strides_walk_backwards_to_the_first_element() {
        let result = strided([[-1, -3, -1], [9, -9, -2]], [0; 3]).unwrap();
        assert_eq!(result, (vec![2, 2], vec![6.0, 4.0, 3.0, 1.0]));
        let masked = strided([[0, 0, -1], [0, 0, -2]], [3, 3, 0]).unwrap();
        assert_eq!(masked, result);
    }

    #[test]
    fn bounds_in_the_wrong_order_take_nothing() {
        assert_eq!(strided([[2, 0, 1], [0, 3, 1]], [0; 3]).unwrap().0, [0, 3]);
    }

    #[test]
    fn bounds_at_the_ends_of_their_type_are_clamped() {
        let all = [i32::MIN, i32::MAX, 1];
        assert_eq!(strided([all, all], [0; 3]).unwrap().0, [2, 3]);
        let backwards = [i32::MAX, i32::MIN, i32::MIN];
        assert_eq!(
            strided([backwards, backwards], [0; 3]).unwrap(),
            (vec![1, 1], vec![6.0])
        );
    }

    #[test]
    fn shrunk_axes_vanish_and_must_take_one_element() {
        let one = [1, 2, 1];
        assert_eq!(strided([one, one], [0, 0, 3]).unwrap(), (vec![1], vec![5.0]));
        assert_eq!(
            strided([one, [0, 3, 1]], [0, 0, 1]).unwrap(),
            (vec![3], vec![4.0, 5.0, 6.0])
        );
        assert!(
            strided([one, [0, 3, 1]], [0, 0, 2])
                .unwrap_err()
                .contains("(shrink_axis_mask)")
        );
        assert!(strided([one, [1, 0, -1]], [0, 0, 2]).is_err());
    }

    #[test]
    fn stride_of_0_gives_an_error() {
        assert!(
            strided([[0, 1, 0], [0, 1, 1]], [0; 3])
                .unwrap_err()
                .contains("(strides) is 0")
        );
    }

    /// Of a tensor of rank 5 by bounds for the first axes.
    fn wide(bounds: &[[i32; 3]], shrink: i32) -> Result<(Vec<u32>, Vec<i16>), String> {
        let vector = |number: usize| bounds.iter().map(|axis| axis[number]).collect::<Vec<_>>();
        let operand = |dims: &[u32]| Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(0.5, 0);
        let count = bounds.len() as u32;
        OneOperation::new(tflite::STRIDED_SLICE)
            .operand(operand(&[2, 1, 2, 1, 2]), &[1_i16, 2, 3, 4, 5, 6, 7, 8])
            .tensor(T::TENSOR_INT32, &[count], &vector(0))
            .tensor(T::TENSOR_INT32, &[count], &vector(1))
            .tensor(T::TENSOR_INT32, &[count], &vector(2))
            .i32(0)
            .i32(0)
            .i32(shrink)
            .output_operand(operand(&[]))
            .run_one()
    }

    #[test]
    fn axes_behind_the_bounds_are_taken_whole() {
        assert_eq!(
            wide(&[[1, 2, 1]], 0).unwrap(),
            (vec![1, 1, 2, 1, 2], vec![5, 6, 7, 8])
        );
        assert_eq!(
            wide(&[[0, 2, 1], [0, 1, 1], [1, 0, -1]], 0).unwrap(),
            (vec![2, 1, 1, 1, 2], vec![3, 4, 7, 8])
        );
        assert!(wide(&[[0, 1, 1]; 6], 0).unwrap_err().contains("has 6 elements"));
    }

    #[test]
    fn bounds_of_several_lengths_give_an_error() {
        for lengths in [[1, 2, 1], [1, 1, 2], [2, 1, 1]] {
            let bounds = |one: OneOperation, length: u32| {
                one.tensor(T::TENSOR_INT32, &[length], &[1, 1][..length as usize])
            };
            let one = OneOperation::new(tflite::STRIDED_SLICE).tensor(T::TENSOR_INT32, &[2, 2], &[1; 4]);
            let one = lengths.into_iter().fold(one, bounds).i32(0).i32(0).i32(0);
            let error = one.output(T::TENSOR_INT32, &[]).run().unwrap_err();
            assert!(error.contains("as input 1 has elements"), "{error}");
        }
    }

    #[test]
    fn the_end_of_an_axis_that_vanishes_does_not_count() {
        for end in [0, 1, i32::MIN, i32::MAX] {
            assert_eq!(
                wide(&[[-1, end, 1]], 1).unwrap(),
                (vec![1, 2, 1, 2], vec![5, 6, 7, 8])
            );
        }
        assert!(wide(&[[2, 3, 1]], 1).unwrap_err().contains("(shrink_axis_mask)"));
        assert!(wide(&[[1, 0, -1]], 1).unwrap_err().contains("(shrink_axis_mask)"));
    }

    #[test]
    fn ends_may_be_counted_from_the_begins() {
        let sized = |begin: i32, size: i32, stride: i32| {
            OneOperation::new(tflite::STRIDED_SLICE)
                .tensor(T::TENSOR_INT32, &[4], &[1, 2, 3, 4])
                .tensor(T::TENSOR_INT32, &[1], &[begin])
                .tensor(T::TENSOR_INT32, &[1], &[size])
                .tensor(T::TENSOR_INT32, &[1], &[stride])
                .i32(0)
                .i32(0)
                .i32(0)
                .tensor(T::BOOL, &[], &[1_u8])
                .output(T::TENSOR_INT32, &[])
                .run_one::<i32>()
                .unwrap()
                .1
        };
        assert_eq!(sized(1, 2, 1), [2, 3]);
        assert_eq!(sized(-3, 2, 1), [2, 3]);
        assert_eq!(sized(3, i32::MAX, 1), [4]);
        assert_eq!(sized(3, -2, -1), [4, 3]);
        assert_eq!(sized(0, 0, 1), []);
    }
}
