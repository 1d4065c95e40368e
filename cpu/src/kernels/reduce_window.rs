//! REDUCE_WINDOW: all elements that a window covers, combined into one.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::reduce_window::Combination;
use nnhal_hal::{MAX_RANK, OperandType, OperationType, tflite};

use super::blocks::{count_of, steps_of};
use super::element::by_element;
use super::places::Places;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::REDUCE_WINDOW, reduce_window)];

fn reduce_window(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let combination = Combination::of(context.inputs.rules())?;
    if context.inputs.tensor(0)?.ty() == OperandType::TENSOR_BOOL8 {
        let truth = |value: bool| u8::from(value);
        return match combination {
            Combination::All => reduce::<u8>(context, |one, other| truth(one != 0 && other != 0)),
            _ => reduce::<u8>(context, |one, other| truth(one != 0 || other != 0)),
        };
    }
    by_element!(context, { [f32, f16, i32, i64, u8, i8, i16] => combine(context, combination) })
}

/// A number, as it is stored. Integers wrap.
pub(super) trait Number: bytemuck::Pod + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! impl_number {
    ($($integer:ty),+) => {$(
        impl Number for $integer {
            fn plus(self, other: $integer) -> $integer {
                self.wrapping_add(other)
            }

            fn times(self, other: $integer) -> $integer {
                self.wrapping_mul(other)
            }
        }
    )+};
    (floats: $($float:ty),+) => {$(
        impl Number for $float {
            fn plus(self, other: $float) -> $float {
                self + other
            }

            fn times(self, other: $float) -> $float {
                self * other
            }
        }
    )+};
}

impl_number!(i32, i64, u8, i8, i16);
impl_number!(floats: f32, f16);

fn combine<T: Number>(context: &mut KernelContext<'_>, combination: Combination) -> Result<(), KernelError> {
    match combination {
        Combination::Multiply => reduce(context, T::times),
        Combination::Minimum => reduce::<T>(context, |one, other| if other < one { other } else { one }),
        Combination::Maximum => reduce::<T>(context, |one, other| if one < other { other } else { one }),
        _ => reduce(context, T::plus),
    }
}

/// How many elements of a window are combined between two looks at the deadline.
const OFFSETS_AT_ONCE: usize = 1 << 16;

fn reduce<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    combine: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let values = input.data::<T>()?;
    let &[start] = context.inputs.data::<T>(1)? else {
        return Err(OpError::input(1, "(start) must have one element").into());
    };
    let (window, strides, dilations) = (
        context.inputs.data::<i32>(2)?,
        context.inputs.data::<i32>(3)?,
        context.inputs.data::<i32>(4)?,
    );
    let mut pace = context.pace();
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let target = output.into_data::<T>()?;
    if target.is_empty() {
        return Ok(());
    }
    // The window is no larger than the input, or there would be no place for it.
    let rank = shape.rank();
    let mut extents = [0_u32; MAX_RANK];
    for (extent, length) in extents.iter_mut().zip(window) {
        *extent = *length as u32;
    }
    let extents = &extents[..rank];
    let steps = steps_of(input.dims());
    let [offsets] = context.scratch.carve::<u64, 1>([count_of(extents)])?;
    let apart = stretched(&steps, dilations);
    for (to, position) in offsets.iter_mut().zip(Places::new(extents)) {
        pace.work(1)?;
        *to = offset(&position, &apart) as u64;
    }
    let apart = stretched(&steps, strides);
    for (to, position) in target.iter_mut().zip(Places::new(shape.dims())) {
        let base = offset(&position, &apart);
        *to = start;
        for offsets in offsets.chunks(OFFSETS_AT_ONCE) {
            pace.work(offsets.len())?;
            *to = offsets
                .iter()
                .fold(*to, |sum, offset| combine(sum, values[base + *offset as usize]));
        }
    }
    Ok(())
}

/// How far steps that are so many elements apart move in an array with these steps.
fn stretched(array: &[isize], apart: &[i32]) -> [usize; MAX_RANK] {
    let mut steps = [0; MAX_RANK];
    for ((step, array), apart) in steps.iter_mut().zip(array).zip(apart) {
        *step = (*array as usize).saturating_mul(*apart as usize);
    }
    steps
}

/// Where a place lies in an array.
fn offset(position: &[u32; MAX_RANK], steps: &[usize; MAX_RANK]) -> usize {
    position
        .iter()
        .zip(steps)
        .map(|(at, step)| *at as usize * step)
        .sum()
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    /// Lists of one element for each axis: window, strides, dilations.
    type Lists<'a> = [&'a [i32]; 3];

    fn with_lists(operation: OneOperation, lists: Lists<'_>, combination: i32) -> OneOperation {
        lists
            .iter()
            .fold(operation, |operation, list| {
                operation.tensor(T::TENSOR_INT32, &[list.len() as u32], list)
            })
            .i32(combination)
    }

    fn reduce<E: bytemuck::Pod>(
        ty: T,
        (dims, values): (&[u32], &[E]),
        start: E,
        lists: Lists<'_>,
        combination: i32,
    ) -> Result<(Vec<u32>, Vec<E>), String> {
        let operand = |dims: &[u32]| match ty {
            T::TENSOR_QUANT8_ASYMM_SIGNED => Operand::new(ty, dims).with_quantization(0.5, 3),
            _ => Operand::new(ty, dims),
        };
        let operation = OneOperation::new(tflite::REDUCE_WINDOW)
            .operand(operand(dims), values)
            .operand(operand(&[1]), &[start]);
        with_lists(operation, lists, combination)
            .output_operand(operand(&[]))
            .run_one()
    }

    #[test]
    fn windows_move_by_strides_over_elements_that_dilations_leave() {
        let values: Vec<f32> = (1..=12).map(|at| at as f32).collect();
        let of = |lists, combination| {
            reduce(T::TENSOR_FLOAT32, (&[3, 4], &values), 0.5, lists, combination).unwrap()
        };
        assert_eq!(
            of([&[2, 2], &[1, 2], &[1, 1]], 1),
            (vec![2, 2], vec![14.5, 22.5, 30.5, 38.5])
        );
        assert_eq!(of([&[2, 2], &[1, 1], &[2, 3]], 4), (vec![1, 1], vec![12.0]));
        assert_eq!(
            of([&[1, 3], &[2, 1], &[1, 1]], 2),
            (vec![2, 2], vec![3.0, 12.0, 495.0, 660.0])
        );
        assert_eq!(of([&[1, 2], &[3, 3], &[1, 1]], 3), (vec![1, 1], vec![0.5]));
        assert_eq!(of([&[4, 1], &[1, 1], &[1, 1]], 1), (vec![0, 4], vec![]));
    }

    #[test]
    fn integers_wrap_and_truth_values_are_of_two() {
        let of = |combination| {
            let values = (&[3][..], &[100_i8, 100, -128][..]);
            reduce(
                T::TENSOR_QUANT8_ASYMM_SIGNED,
                values,
                1,
                [&[2], &[1], &[1]],
                combination,
            )
            .unwrap()
            .1
        };
        assert_eq!(of(1), [-55, -27]);
        assert_eq!(of(3), [1, -128]);
        let values = (&[2][..], &[1_i64 << 32, 1 << 33][..]);
        let wide = reduce(tflite::TENSOR_INT64, values, 2, [&[2], &[1], &[1]], 1);
        assert_eq!(wide.unwrap().1, [(3 << 32) + 2]);
        let of = |start, combination| {
            let values = (&[4][..], &[1_u8, 9, 0, 0][..]);
            reduce(T::TENSOR_BOOL8, values, start, [&[2], &[1], &[1]], combination)
                .unwrap()
                .1
        };
        assert_eq!(of(1, 5), [1, 0, 0]);
        assert_eq!(of(0, 6), [1, 1, 0]);
    }

    #[test]
    fn lists_and_combinations_that_make_no_sense_give_an_error() {
        let of =
            |lists, combination| reduce(T::TENSOR_INT32, (&[2], &[1, 2]), 0, lists, combination).unwrap_err();
        assert!(of([&[1, 1], &[1], &[1]], 1).contains("(window)"));
        assert!(of([&[0], &[1], &[1]], 1).contains("(window)"));
        assert!(of([&[1], &[0], &[1]], 1).contains("(window_strides)"));
        assert!(of([&[1], &[1], &[i32::MIN]], 1).contains("(window_dilations)"));
        for combination in [0, 5, 6, 7, -1] {
            assert!(of([&[1], &[1], &[1]], combination).contains("(combination)"));
        }
        let largest = [&[i32::MAX][..], &[i32::MAX], &[i32::MAX]];
        let none = reduce(T::TENSOR_INT32, (&[2], &[1, 2]), 0, largest, 1);
        assert_eq!(none.unwrap(), (vec![0], vec![]));
    }

    #[test]
    fn long_windows_end_by_the_deadline() {
        let operation = OneOperation::new(tflite::REDUCE_WINDOW)
            .tensor(T::TENSOR_BOOL8, &[20_000], &[0_u8; 20_000])
            .tensor(T::TENSOR_BOOL8, &[1], &[0_u8]);
        let operation = with_lists(operation, [&[10_000], &[1], &[1]], 6);
        ends_by_the_deadline(operation.output(T::TENSOR_BOOL8, &[]));
    }
}
