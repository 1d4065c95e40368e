//! BATCH_MATMUL: the matrices of two tensors multiplied, batch by batch.
//!
//! Floats are summed in `f32`, integers in 32 bits that wrap. Quantised values are summed exactly, less their
//! zero points, then rescaled once, as in a fully connected layer.

use half::f16;
use nnhal_hal::ops::batch_matmul::BatchMatMul;
use nnhal_hal::{OperationType, tflite};

use super::element::{Float, by_element};
use super::layer::{Factor, multiplier};
use super::products::Product;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::BATCH_MATMUL, batch_matmul),
    (tflite::BATCH_MATMUL, batch_matmul),
];

fn batch_matmul(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => floats(context),
        [i32] => integers(context),
        [i8, i16] => quantized(context),
    })
}

fn floats<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let widen = |element: T| element.to_f32();
    multiply(context, [&widen, &widen], <f32 as Product>::dot, T::from_f32)
}

fn integers<T: bytemuck::Pod + Into<i32> + From<i32>>(
    context: &mut KernelContext<'_>,
) -> Result<(), KernelError> {
    let dot = |left: &[i32], right: &[i32]| {
        let products = left.iter().zip(right);
        products.fold(0_i32, |sum, (left, right)| {
            sum.wrapping_add(left.wrapping_mul(*right))
        })
    };
    multiply(context, [&T::into, &T::into], dot, T::from)
}

fn quantized<T: Factor>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let multiplier = multiplier(left.operand, right.operand, output.operand, 0);
    let zero_point = output.zero_point();
    let less = |zero_point: i32| move |element: T| T::operand(element.to_i32() - zero_point);
    let (of_left, of_right) = (less(left.zero_point()), less(right.zero_point()));
    multiply(
        context,
        [&of_left, &of_right],
        <T::Operand as Product>::dot,
        |sum| T::saturate(T::rescale(sum, 0, multiplier).saturating_add(zero_point)),
    )
}

/// Multiplies all matrices: `widen` takes elements of the left and of the right ones to what `dot` sums the
/// products of, and `finish` a sum to an element of the result.
fn multiply<T: bytemuck::Pod, P: bytemuck::Pod, S>(
    context: &mut KernelContext<'_>,
    [widen_left, widen_right]: [&dyn Fn(T) -> P; 2],
    dot: impl Fn(&[P], &[P]) -> S,
    finish: impl Fn(S) -> T,
) -> Result<(), KernelError> {
    let product = BatchMatMul::new(context.inputs.rules())?;
    let mut pace = context.pace();
    let output = context.outputs.data::<T>(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let (rows, inner, columns) = (product.rows, product.inner, product.columns);
    let (left, right) = (context.inputs.data::<T>(0)?, context.inputs.data::<T>(1)?);
    let [left_rows, right_columns] = context.scratch.carve::<P, 2>([rows * inner, inner * columns])?;
    let lefts = left.chunks_exact(rows * inner);
    let rights = right.chunks_exact(inner * columns);
    for ((left, right), output) in lefts.zip(rights).zip(output.chunks_exact_mut(rows * columns)) {
        pace.work(left.len() + right.len())?;
        copy_lines((left, inner), product.transpose_left, left_rows, widen_left);
        copy_lines(
            (right, inner),
            !product.transpose_right,
            right_columns,
            widen_right,
        );
        for (row, output) in left_rows
            .chunks_exact(inner)
            .zip(output.chunks_exact_mut(columns))
        {
            pace.work(right.len())?;
            for (column, output) in right_columns.chunks_exact(inner).zip(output) {
                *output = finish(dot(row, column));
            }
        }
    }
    Ok(())
}

/// Copies lines of `length` elements, which stand one behind the other, or across if they `are_columns`.
fn copy_lines<T: Copy, P: Copy>(
    (from, length): (&[T], usize),
    are_columns: bool,
    to: &mut [P],
    widen: &dyn Fn(T) -> P,
) {
    if !are_columns {
        for (to, from) in to.iter_mut().zip(from) {
            *to = widen(*from);
        }
        return;
    }
    let count = from.len() / length;
    for (line, to) in to.chunks_exact_mut(length).enumerate() {
        for (to, from) in to.iter_mut().zip(from[line..].iter().step_by(count)) {
            *to = widen(*from);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    /// The element at a place of a matrix that is counted through from 1.
    fn matmul<E: bytemuck::Pod>(
        ty: T,
        (left, left_data): (&[u32], &[E]),
        (right, right_data): (&[u32], &[E]),
        [transpose_left, transpose_right]: [bool; 2],
    ) -> Result<(Vec<u32>, Vec<E>), String> {
        OneOperation::new(OperationType::BATCH_MATMUL)
            .tensor(ty, left, left_data)
            .tensor(ty, right, right_data)
            .tensor(T::BOOL, &[], &[u8::from(transpose_left)])
            .tensor(T::BOOL, &[], &[u8::from(transpose_right)])
            .output(ty, &[])
            .run_one()
    }

    const TENSOR: T = T::TENSOR_FLOAT32;

    #[test]
    fn each_batch_has_its_product() {
        let left = [1_f32, 2.0, 3.0, 4.0, 5.0, 6.0, -1.0, 0.0, 1.0, 2.0, 2.0, 2.0];
        let right = [1_f32, 0.0, 0.0, 1.0, 1.0, 1.0, 3.0, 1.0, 5.0, 1.0, 7.0, 1.0];
        let (dims, data) = matmul(TENSOR, (&[2, 2, 3], &left), (&[2, 3, 2], &right), [false; 2]).unwrap();
        assert_eq!(dims, [2, 2, 2]);
        assert_eq!(data, [4.0, 5.0, 10.0, 11.0, 4.0, 0.0, 30.0, 6.0]);
    }

    #[test]
    fn either_matrix_may_be_stored_transposed() {
        let (left, left_transposed) = ([1_i32, 2, 3, 4, 5, 6], [1_i32, 4, 2, 5, 3, 6]);
        let (right, right_transposed) = ([1_i32, -1, 2, -2, 3, -3], [1_i32, 2, 3, -1, -2, -3]);
        let expected = (vec![2, 2], vec![14, -14, 32, -32]);
        let ty = T::TENSOR_INT32;
        let product = |left: (&[u32], &[i32]), right: (&[u32], &[i32]), flags| {
            assert_eq!(matmul(ty, left, right, flags).unwrap(), expected);
        };
        product((&[2, 3], &left), (&[3, 2], &right), [false, false]);
        product((&[3, 2], &left_transposed), (&[3, 2], &right), [true, false]);
        product((&[2, 3], &left), (&[2, 3], &right_transposed), [false, true]);
        product(
            (&[3, 2], &left_transposed),
            (&[2, 3], &right_transposed),
            [true, true],
        );
    }

    #[test]
    fn halves_are_summed_in_single_precision() {
        // Every sum of halves beyond 2048 would lose the odd ones.
        let ones = [f16::ONE; 2051];
        let (dims, data) = matmul(
            T::TENSOR_FLOAT16,
            (&[1, 2051], &ones),
            (&[2051, 1], &ones),
            [false; 2],
        )
        .unwrap();
        assert_eq!((dims, data), (vec![1, 1], vec![f16::from_f32(2051.0)]));
    }

    #[test]
    fn integers_wrap() {
        let (_, data) = matmul(
            T::TENSOR_INT32,
            (&[1, 2], &[i32::MAX, 1]),
            (&[2, 1], &[1, 1]),
            [false; 2],
        )
        .unwrap();
        assert_eq!(data, [i32::MIN]);
    }

    #[test]
    fn quantised_sums_are_rescaled_once_and_clamped() {
        let operand = |dims: &[u32], scale, zero_point| {
            Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims).with_quantization(scale, zero_point)
        };
        let result = OneOperation::new(OperationType::BATCH_MATMUL)
            // 1.5, -1; 0, 64.
            .operand(operand(&[2, 2], 0.5, -1), &[2_i8, -3, -1, 127])
            // 2, 0.25; 3, -1.
            .operand(operand(&[2, 2], 0.25, 4), &[12_i8, 5, 16, 0])
            .tensor(T::BOOL, &[], &[0_u8])
            .tensor(T::BOOL, &[], &[0_u8])
            .output_operand(operand(&[0, 0], 0.5, 10))
            .run_one::<i8>();
        // 0, 1.375; 192, -64 in steps of 0.5 from 10, ties away from zero.
        assert_eq!(result.unwrap(), (vec![2, 2], vec![10, 13, 127, -118]));
    }

    #[test]
    fn sums_of_sixteen_bit_steps_have_more_than_32_bits() {
        let steps =
            |dims: &[u32], scale| Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(scale, 0);
        let result = OneOperation::new(tflite::BATCH_MATMUL)
            .operand(steps(&[2, 3], 1.0), &[32_767_i16, 32_767, 32_767, -32_768, 1, 1])
            .operand(steps(&[3, 1], 1.0), &[32_767_i16, 32_767, 32_767])
            .tensor(T::BOOL, &[], &[0_u8])
            .tensor(T::BOOL, &[], &[0_u8])
            .output_operand(steps(&[0, 0], 131_072.0))
            .run_one::<i16>();
        assert_eq!(result.unwrap(), (vec![2, 1], vec![24_575, -8191]));
    }

    #[test]
    fn matrices_that_do_not_fit_give_an_error() {
        let ones = |count: usize| vec![1_f32; count];
        let fails = |left: &[u32], right: &[u32], flags| {
            let count = |dims: &[u32]| dims.iter().product::<u32>() as usize;
            let (of_left, of_right) = (ones(count(left)), ones(count(right)));
            matmul(TENSOR, (left, &of_left), (right, &of_right), flags).unwrap_err()
        };
        for flags in [[false, false], [true, true]] {
            assert!(fails(&[2, 3], &[2, 3], flags).contains("must have as many rows"));
        }
        assert!(fails(&[2, 2, 3], &[3, 3, 2], [false; 2]).contains("the same extents before"));
        assert!(fails(&[1, 2, 3], &[3, 2], [false; 2]).contains("the same rank"));
        assert!(fails(&[3], &[3], [false; 2]).contains("rank"));
        assert!(fails(&[1, 1, 1, 1, 1], &[1, 1, 1, 1, 1], [false; 2]).contains("rank"));
        assert!(fails(&[2, 0], &[0, 2], [false; 2]).contains("neither may be empty"));
        assert!(fails(&[0, 2], &[2, 2], [false; 2]).contains("neither may be empty"));
    }

    #[test]
    fn no_matrices_have_no_product() {
        let nothing: (&[u32], &[f32]) = (&[0, 2, 2], &[]);
        assert_eq!(
            matmul(TENSOR, nothing, nothing, [false; 2]),
            Ok((vec![0, 2, 2], vec![]))
        );
    }
}
