//! WHERE and UNIQUE: the places of what is not zero, and the values of a list without repetitions.

use std::cmp::Ordering;

use half::f16;
use nnhal_hal::ops::shapes::shape_of;
use nnhal_hal::{OperandType, OperationType, Shape, tflite};

use super::element::not_taken;
use super::topk::{fits_indices, order_of};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::WHERE, places), (tflite::UNIQUE, unique)];

fn places(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_FLOAT32 => places_of(context, |value: f32| value != 0.0),
        OperandType::TENSOR_FLOAT16 => places_of(context, |value: f16| value != f16::ZERO),
        OperandType::TENSOR_INT32 => places_of(context, |value: i32| value != 0),
        tflite::TENSOR_INT64 => places_of(context, |value: i64| value != 0),
        OperandType::TENSOR_QUANT16_SYMM => places_of(context, |value: i16| value != 0),
        OperandType::TENSOR_BOOL8
        | OperandType::TENSOR_QUANT8_ASYMM
        | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => places_of(context, |value: u8| value != 0),
        ty => Err(not_taken(0, ty)),
    }
}

/// The indices of every element that is not zero, in row-major order.
fn places_of<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    is_set: impl Fn(T) -> bool,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let data = input.data::<T>()?;
    let rank = input.shape.rank();
    input.dims().iter().try_for_each(|extent| fits_indices(*extent))?;
    let count = data.iter().filter(|value| is_set(**value)).count();
    // At most the number of elements, which fits 32 bits.
    context
        .outputs
        .resize(0, shape_of(&[count as u32, rank as u32])?)?;
    if rank == 0 {
        return Ok(());
    }
    let found = context.outputs.data::<i32>(0)?.chunks_exact_mut(rank);
    let set = data.iter().enumerate().filter(|(_, value)| is_set(**value));
    for ((mut at, _), place) in set.zip(found) {
        for (index, extent) in place.iter_mut().zip(input.dims()).rev() {
            *index = (at % *extent as usize) as i32;
            at /= *extent as usize;
        }
    }
    Ok(())
}

fn unique(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_FLOAT32 => unique_of(context, order_of::<f32>),
        OperandType::TENSOR_FLOAT16 => unique_of(context, order_of::<f16>),
        OperandType::TENSOR_INT32 => unique_of(context, i32::cmp),
        tflite::TENSOR_INT64 => unique_of(context, i64::cmp),
        OperandType::TENSOR_QUANT8_ASYMM => unique_of(context, u8::cmp),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => unique_of(context, i8::cmp),
        OperandType::TENSOR_QUANT16_SYMM => unique_of(context, i16::cmp),
        ty => Err(not_taken(0, ty)),
    }
}

/// Values in the order in which they come first, and for each element the place of its value among them.
fn unique_of<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    fits_indices(input.shape.dim(0))?;
    let data = input.data::<T>()?;
    let mut pace = context.pace();
    let [places, numbers] = context.scratch.carve::<i32, 2>([data.len(); 2])?;
    context.outputs.resize(1, input.shape)?;
    for (place, at) in places.iter_mut().zip(0..) {
        *place = at;
    }
    let at = |place: i32| &data[place as usize];
    let (places, numbers) = sorted(places, numbers, &mut pace, |left, right| {
        order(at(*left), at(*right)).then(left.cmp(right))
    })?;
    // The first of equal ones stands for all of them.
    let firsts = context.outputs.data::<i32>(1)?;
    let mut first = 0;
    for (number, place) in places.iter().enumerate() {
        pace.work(1)?;
        let is_new = number == 0 || order(at(places[number - 1]), at(*place)) != Ordering::Equal;
        first = if is_new { *place } else { first };
        firsts[*place as usize] = first;
    }
    let mut count = 0;
    for (place, first) in (0..).zip(firsts.iter_mut()) {
        pace.work(1)?;
        if *first == place {
            numbers[place as usize] = count;
            // Found at most as often as there are elements.
            count += 1;
        }
        *first = numbers[*first as usize];
    }
    let shape = Shape::new(&[count as u32]).unwrap_or_default();
    context.outputs.resize(0, shape)?;
    let [values, indices] = context.outputs.tensors([0, 1])?;
    let (values, indices) = (values.into_data::<T>()?, indices.into_data::<i32>()?);
    for (value, index) in data.iter().zip(indices).rev() {
        pace.work(1)?;
        values[*index as usize] = *value;
    }
    Ok(())
}

/// Elements that are sorted between two questions whether to go on.
const BLOCK: usize = 1 << 12;

/// Sorts, with a spare list of the same length. Gives the sorted list and then the other one. Blocks are
/// sorted each for itself and then merged, so that the work on long lists can be interrupted.
fn sorted<'a>(
    mut list: &'a mut [i32],
    mut spare: &'a mut [i32],
    pace: &mut Pace<'_>,
    order: impl Fn(&i32, &i32) -> Ordering,
) -> Result<(&'a mut [i32], &'a mut [i32]), KernelError> {
    for block in list.chunks_mut(BLOCK) {
        pace.work(block.len())?;
        block.sort_unstable_by(&order);
    }
    let mut run = BLOCK;
    while run < list.len() {
        for (pair, merged) in list.chunks(2 * run).zip(spare.chunks_mut(2 * run)) {
            let (mut left, mut right) = pair.split_at(run.min(pair.len()));
            for to in merged {
                pace.work(1)?;
                let is_left = match (left.first(), right.first()) {
                    (Some(left), Some(right)) => order(left, right).is_le(),
                    (left, _) => left.is_some(),
                };
                let side = if is_left { &mut left } else { &mut right };
                if let Some((first, rest)) = side.split_first() {
                    *to = *first;
                    *side = rest;
                }
            }
        }
        std::mem::swap(&mut list, &mut spare);
        run *= 2;
    }
    Ok((list, spare))
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    #[test]
    fn places_come_in_order_with_an_index_for_each_axis() {
        let of = |dims: &[u32], condition: &[u8]| {
            OneOperation::new(tflite::WHERE)
                .tensor(T::TENSOR_BOOL8, dims, condition)
                .output(T::TENSOR_INT32, &[0, 0])
                .run_one::<i32>()
                .unwrap()
        };
        assert_eq!(
            of(&[2, 1, 3], &[0, 1, 0, 1, 0, 2]),
            (vec![3, 3], vec![0, 0, 1, 1, 0, 0, 1, 0, 2])
        );
        assert_eq!(of(&[2], &[0, 0]), (vec![0, 1], vec![]));
        assert_eq!(of(&[0, 5], &[]), (vec![0, 2], vec![]));
    }

    #[test]
    fn negative_zero_is_zero_and_nan_is_not() {
        let found = OneOperation::new(tflite::WHERE)
            .tensor(T::TENSOR_FLOAT32, &[4], &[-0.0_f32, f32::NAN, -1.0, 0.0])
            .output(T::TENSOR_INT32, &[0, 0])
            .run_one::<i32>();
        assert_eq!(found.unwrap(), (vec![2, 1], vec![1, 2]));
        let found = OneOperation::new(tflite::WHERE)
            .tensor(tflite::TENSOR_INT64, &[3], &[0_i64, 1 << 32, 0])
            .output(T::TENSOR_INT32, &[0, 0])
            .run_one::<i32>();
        assert_eq!(found.unwrap(), (vec![1, 1], vec![1]));
    }

    #[test]
    fn each_value_comes_once_where_it_comes_first() {
        let unique = |data: &[f32]| {
            let outputs = OneOperation::new(tflite::UNIQUE)
                .tensor(T::TENSOR_FLOAT32, &[data.len() as u32], data)
                .output(T::TENSOR_FLOAT32, &[0])
                .output(T::TENSOR_INT32, &[0])
                .run()
                .unwrap();
            (outputs[0].data::<f32>(), outputs[1].data::<i32>())
        };
        assert_eq!(
            unique(&[3.0, 1.0, 3.0, -2.0, 1.0, 3.0]),
            (vec![3.0, 1.0, -2.0], vec![0, 1, 0, 2, 1, 0])
        );
        assert_eq!(unique(&[]), (vec![], vec![]));
        assert_eq!(unique(&[f32::NAN, 1.0]).1, [0, 1]);
    }

    #[test]
    fn integers_of_64_bits_differ_in_any_of_their_bits() {
        let outputs = OneOperation::new(tflite::UNIQUE)
            .tensor(tflite::TENSOR_INT64, &[4], &[1_i64 << 32, 1 << 33, 1 << 32, 0])
            .output(tflite::TENSOR_INT64, &[0])
            .output(T::TENSOR_INT32, &[0])
            .run()
            .unwrap();
        assert_eq!(outputs[0].data::<i64>(), [1 << 32, 1 << 33, 0]);
        assert_eq!(outputs[1].data::<i32>(), [0, 1, 0, 2]);
    }

    /// So many elements, of which each seventh has the same value.
    fn unique_of_many(count: u32) -> OneOperation {
        let data: Vec<i32> = (0..count as i32).rev().map(|at| at % 7).collect();
        OneOperation::new(tflite::UNIQUE)
            .tensor(T::TENSOR_INT32, &[count], &data)
            .output(T::TENSOR_INT32, &[0])
            .output(T::TENSOR_INT32, &[0])
    }

    #[test]
    fn long_lists_are_sorted_in_blocks() {
        // Blocks of 4096: one and a bit, three and a bit, and four.
        for count in [4_099, 12_294, 16_384] {
            let outputs = unique_of_many(count).run().unwrap();
            let first = (count as i32 - 1) % 7;
            let values: Vec<i32> = (0..7).map(|at| (first - at).rem_euclid(7)).collect();
            assert_eq!(outputs[0].data::<i32>(), values);
            let indices: Vec<i32> = (0..count as i32).map(|at| at % 7).collect();
            assert_eq!(outputs[1].data::<i32>(), indices);
        }
    }

    #[test]
    fn long_lists_end_by_the_deadline() {
        ends_by_the_deadline(unique_of_many(200_000));
    }

    #[test]
    fn tables_are_no_lists() {
        let error = OneOperation::new(tflite::UNIQUE)
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[5_f32])
            .output(T::TENSOR_FLOAT32, &[0])
            .output(T::TENSOR_INT32, &[0])
            .run()
            .unwrap_err();
        assert!(error.contains("rank"), "{error}");
    }
}
