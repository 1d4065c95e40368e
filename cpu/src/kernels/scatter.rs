//! GATHER_ND, SCATTER_ND and SPARSE_TO_DENSE: what lies at places that other tensors name by their indices.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::scatter::depth_of;
use nnhal_hal::{OperandType, OperationType, Shape, tflite};

use super::blocks::{by_element_size, count_of};
use super::element::not_taken;
use super::index::{Index, by_index};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::GATHER_ND, gather),
    (tflite::SCATTER_ND, scatter),
    (tflite::SPARSE_TO_DENSE, sparse_to_dense),
];

/// Where a place is that these indices name along the first axes of `shape`, in steps of all that lies there.
/// They are of input `input`.
fn offset_of<I: Index>(input: usize, place: &[I], shape: &Shape) -> Result<usize, KernelError> {
    let mut offset = 0_usize;
    for (axis, (index, extent)) in place.iter().zip(shape.dims()).enumerate() {
        let at = index.below(*extent as usize).ok_or_else(|| {
            let message = format!(
                "(indices) holds {index} for axis {axis}, must be from 0 to below {extent}, its extent"
            );
            OpError::input(input, message)
        })?;
        // The product is too large only if an extent is 0, and then no index along that axis is right.
        offset = offset.saturating_mul(*extent as usize).saturating_add(at);
    }
    Ok(offset)
}

fn outside() -> OpError {
    OpError::operation("a place reaches outside its tensor")
}

fn gather(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, pick(context))
}

fn pick<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_index!(context, 1, pick_by::<T>(context))
}

fn pick_by<T: bytemuck::Pod, I: Index>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, indices) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let depth = depth_of(1, &indices.shape, &input.shape)?;
    let (source, indices) = (input.data::<T>()?, indices.data::<I>()?);
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let run = count_of(&input.dims()[depth..]);
    for (number, to) in target.chunks_exact_mut(run).enumerate() {
        let place = indices
            .get(number * depth..(number + 1) * depth)
            .ok_or_else(outside)?;
        let at = offset_of(1, place, &input.shape)?;
        let from = source.get(at * run..(at + 1) * run).ok_or_else(outside)?;
        to.copy_from_slice(from);
    }
    Ok(())
}

fn scatter(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(1)?.ty() {
        OperandType::TENSOR_FLOAT32 => add(context, |left: f32, right| left + right),
        OperandType::TENSOR_FLOAT16 => add(context, |left: f16, right: f16| {
            f16::from_f32(left.to_f32() + right.to_f32())
        }),
        OperandType::TENSOR_INT32 => add(context, i32::wrapping_add),
        tflite::TENSOR_INT64 => add(context, i64::wrapping_add),
        OperandType::TENSOR_BOOL8 => add(context, |left: u8, right| left | right),
        OperandType::TENSOR_QUANT8_ASYMM => add(context, u8::wrapping_add),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => add(context, i8::wrapping_add),
        OperandType::TENSOR_QUANT16_SYMM => add(context, i16::wrapping_add),
        ty => Err(not_taken(1, ty)),
    }
}

/// Adds what comes to each place to what lies there; to zero at first, whatever the zero point.
fn add<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    sum: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    by_index!(context, 0, add_by::<T>(context, sum))
}

fn add_by<T: bytemuck::Pod, I: Index>(
    context: &mut KernelContext<'_>,
    sum: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    let indices = context.inputs.tensor(0)?;
    let updates = context.inputs.data::<T>(1)?;
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let depth = depth_of(0, &indices.shape, &shape)?;
    let indices = indices.data::<I>()?;
    let target = output.into_data::<T>()?;
    target.fill(T::zeroed());
    if updates.is_empty() {
        return Ok(());
    }
    let run = count_of(&shape.dims()[depth..]);
    for (number, from) in updates.chunks_exact(run).enumerate() {
        let place = indices
            .get(number * depth..(number + 1) * depth)
            .ok_or_else(outside)?;
        let at = offset_of(0, place, &shape)?;
        let to = target.get_mut(at * run..(at + 1) * run).ok_or_else(outside)?;
        for (to, from) in to.iter_mut().zip(from) {
            *to = sum(*to, *from);
        }
    }
    Ok(())
}

fn sparse_to_dense(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(2)?.ty();
    by_element_size!(ty, spell_out(context))
}

fn spell_out<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_index!(context, 0, spell_out_by::<T>(context))
}

fn spell_out_by<T: bytemuck::Pod, I: Index>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (indices, values) = (context.inputs.data::<I>(0)?, context.inputs.data::<T>(2)?);
    let [default] = context.inputs.data::<T>(3)? else {
        return Err(OpError::input(3, "(default) must have one element").into());
    };
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let target = output.into_data::<T>()?;
    target.fill(*default);
    let places = indices.chunks_exact(shape.rank());
    for (place, value) in places.zip(values.iter().cycle()) {
        let at = offset_of(0, place, &shape)?;
        *target.get_mut(at).ok_or_else(outside)? = *value;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn gather(dims: &[u32], indices: &[i32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        OneOperation::new(tflite::GATHER_ND)
            .tensor(T::TENSOR_INT32, &[2, 3], &[1, 2, 3, 4, 5, 6])
            .tensor(T::TENSOR_INT32, dims, indices)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn indices_and_values_may_have_64_bits() {
        let wide = [5_i64 << 40, 7 << 40];
        let found = OneOperation::new(tflite::SCATTER_ND)
            .tensor(tflite::TENSOR_INT64, &[2, 1], &[2_i64, 2])
            .tensor(tflite::TENSOR_INT64, &[2], &wide)
            .tensor(T::TENSOR_INT32, &[1], &[3])
            .output(tflite::TENSOR_INT64, &[])
            .run_one::<i64>();
        assert_eq!(found.unwrap().1, [0, 0, 12 << 40]);
        let dense = OneOperation::new(tflite::SPARSE_TO_DENSE)
            .tensor(tflite::TENSOR_INT64, &[1], &[1_i64])
            .tensor(T::TENSOR_INT32, &[1], &[2])
            .tensor(tflite::TENSOR_INT64, &[1], &wide[..1])
            .tensor(tflite::TENSOR_INT64, &[1], &[-1_i64])
            .output(tflite::TENSOR_INT64, &[])
            .run_one::<i64>();
        assert_eq!(dense.unwrap().1, [-1, 5 << 40]);
        let gather = |index: i64| {
            OneOperation::new(tflite::GATHER_ND)
                .tensor(tflite::TENSOR_INT64, &[2], &wide)
                .tensor(tflite::TENSOR_INT64, &[1, 1], &[index])
                .output(tflite::TENSOR_INT64, &[])
                .run_one::<i64>()
        };
        assert_eq!(gather(1).unwrap().1, [7 << 40]);
        let error = gather(1 << 32).unwrap_err();
        assert!(error.contains("(indices) holds 4294967296"), "{error}");
    }

    #[test]
    fn places_may_be_elements_rows_or_all() {
        assert_eq!(gather(&[2, 2], &[1, 2, 0, 0]).unwrap(), (vec![2], vec![6, 1]));
        assert_eq!(
            gather(&[1, 2, 1], &[1, 0]).unwrap(),
            (vec![1, 2, 3], vec![4, 5, 6, 1, 2, 3])
        );
        assert_eq!(gather(&[2], &[0, 1]).unwrap(), (vec![1], vec![2]));
        assert_eq!(
            gather(&[1, 0], &[]).unwrap(),
            (vec![1, 2, 3], vec![1, 2, 3, 4, 5, 6])
        );
        assert_eq!(gather(&[0, 2], &[]).unwrap(), (vec![0], vec![]));
    }

    #[test]
    fn places_outside_give_an_error() {
        for index in [-1, 2, i32::MIN, i32::MAX] {
            let error = gather(&[1, 2], &[index, 0]).unwrap_err();
            assert!(
                error.contains(&format!("(indices) holds {index} for axis 0")),
                "{error}"
            );
        }
        assert!(gather(&[1, 3], &[0, 0, 0]).unwrap_err().contains("at most 2"));
    }

    fn scatter(places: &[i32], shape: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(tflite::SCATTER_ND)
            .tensor(T::TENSOR_INT32, &[3, 1], places)
            .tensor(T::TENSOR_FLOAT32, &[3, 2], &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn what_comes_to_one_place_is_added() {
        let found = scatter(&[2, 0, 2], &[4, 2]).unwrap();
        assert_eq!(found, (vec![4, 2], vec![3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0]));
        let bytes = OneOperation::new(tflite::SCATTER_ND)
            .tensor(T::TENSOR_INT32, &[2, 1], &[1, 1])
            .operand(
                Operand::new(T::TENSOR_QUANT8_ASYMM, &[2]).with_quantization(1.0, 9),
                &[200_u8, 100],
            )
            .tensor(T::TENSOR_INT32, &[1], &[2])
            .output_operand(Operand::new(T::TENSOR_QUANT8_ASYMM, &[2]).with_quantization(1.0, 9))
            .run_one::<u8>();
        assert_eq!(bytes.unwrap().1, [0, 44]);
    }

    #[test]
    fn scattering_outside_or_in_other_shapes_gives_an_error() {
        assert!(
            scatter(&[4, 0, 0], &[4, 2])
                .unwrap_err()
                .contains("(indices) holds 4")
        );
        assert!(scatter(&[0, 0, -1], &[4, 2]).is_err());
        assert!(scatter(&[0; 3], &[4, 3]).unwrap_err().contains("(updates)"));
        assert!(scatter(&[0; 3], &[0, 2]).is_err());
        assert!(scatter(&[0; 3], &[-4, 2]).unwrap_err().contains("(shape)"));
        assert!(scatter(&[0; 3], &[]).is_err());
        assert!(scatter(&[0; 3], &[i32::MAX, i32::MAX]).is_err());
    }

    fn dense(
        (dims, places): (&[u32], &[i32]),
        shape: &[i32],
        values: &[f32],
    ) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(tflite::SPARSE_TO_DENSE)
            .tensor(T::TENSOR_INT32, dims, places)
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .tensor(T::TENSOR_FLOAT32, &[values.len() as u32], values)
            .tensor(T::TENSOR_FLOAT32, &[1], &[-1_f32])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn dense_tensors_have_the_default_where_nothing_is_named() {
        let found = dense((&[2, 2], &[0, 1, 1, 0]), &[2, 2], &[5.0, 6.0]).unwrap();
        assert_eq!(found, (vec![2, 2], vec![-1.0, 5.0, 6.0, -1.0]));
        let found = dense((&[2], &[3, 1]), &[4], &[7.0]).unwrap();
        assert_eq!(found.1, [-1.0, 7.0, -1.0, 7.0]);
        assert!(
            dense((&[1], &[4]), &[4], &[7.0])
                .unwrap_err()
                .contains("(indices) holds 4")
        );
        assert!(
            dense((&[2], &[0, 1]), &[2, 2], &[7.0])
                .unwrap_err()
                .contains("1 indices for each")
        );
        assert!(
            dense((&[3], &[0, 1, 2]), &[4], &[7.0, 8.0])
                .unwrap_err()
                .contains("(values)")
        );
    }
}
