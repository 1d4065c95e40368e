//! TOPK_V2: the largest elements along the last axis and where they are, in falling order. Of equal elements
//! the one further on comes first, as in the HAL reference; by the extension's operation the first one, as in
//! TFLite.

use std::cmp::Ordering;

use bytemuck::Pod;
use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::element::{Float, not_taken};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::TOPK_V2, topk), (tflite::TOPK_V2, topk)];

fn topk(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_FLOAT32 => topk_of(context, order_of::<f32>),
        OperandType::TENSOR_FLOAT16 => topk_of(context, order_of::<f16>),
        OperandType::TENSOR_INT32 => topk_of(context, i32::cmp),
        tflite::TENSOR_INT64 => topk_of(context, i64::cmp),
        OperandType::TENSOR_QUANT8_ASYMM => topk_of(context, u8::cmp),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => topk_of(context, i8::cmp),
        OperandType::TENSOR_QUANT16_SYMM => topk_of(context, i16::cmp),
        ty => Err(not_taken(0, ty)),
    }
}

/// The order of floats, in which what is no number has a place, too.
pub(super) fn order_of<T: Float>(left: &T, right: &T) -> Ordering {
    left.partial_cmp(right)
        .unwrap_or_else(|| left.to_f32().total_cmp(&right.to_f32()))
}

/// Places along an extent of input 0 must fit the elements of an output.
pub(super) fn fits_indices(extent: u32) -> Result<(), KernelError> {
    if i32::try_from(extent).is_ok() {
        return Ok(());
    }
    let message = format!("has rows of {extent} elements, whose places do not fit TENSOR_INT32");
    Err(OpError::input(0, message).into())
}

fn topk_of<T: Pod>(
    context: &mut KernelContext<'_>,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let length = input.dims().last().copied().unwrap_or(1);
    fits_indices(length)?;
    let first_wins = context.inputs.operation.operation_type == tflite::TOPK_V2;
    let data = input.data::<T>()?;
    let [values, indices] = context.outputs.tensors([0, 1])?;
    let k = values.shape.dims().last().map_or(1, |k| *k as usize);
    let (values, indices) = (values.into_data::<T>()?, indices.into_data::<i32>()?);
    if values.is_empty() {
        return Ok(());
    }
    let [places] = context.scratch.carve::<i32, 1>([length as usize])?;
    let rows = data.chunks_exact(length as usize);
    let results = values.chunks_exact_mut(k).zip(indices.chunks_exact_mut(k));
    for (row, (values, indices)) in rows.zip(results) {
        for (place, at) in places.iter_mut().zip(0..) {
            *place = at;
        }
        let falling = |left: &i32, right: &i32| {
            let by_place = if first_wins {
                left.cmp(right)
            } else {
                right.cmp(left)
            };
            order(&row[*right as usize], &row[*left as usize]).then(by_place)
        };
        if k < places.len() {
            places.select_nth_unstable_by(k, falling);
        }
        places[..k].sort_unstable_by(falling);
        for ((value, index), place) in values.iter_mut().zip(indices).zip(&*places) {
            *value = row[*place as usize];
            *index = *place;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn top(data: &[f32], k: i32) -> Result<(Vec<f32>, Vec<i32>), String> {
        let outputs = OneOperation::new(OperationType::TOPK_V2)
            .tensor(OperandType::TENSOR_FLOAT32, &[data.len() as u32], data)
            .i32(k)
            .output(OperandType::TENSOR_FLOAT32, &[])
            .output(OperandType::TENSOR_INT32, &[])
            .run()?;
        Ok((outputs[0].data(), outputs[1].data()))
    }

    #[test]
    fn of_equal_elements_the_later_comes_first() {
        let data = [1.0, 3.0, -0.0, 3.0, 0.0];
        assert_eq!(top(&data, 2).unwrap(), (vec![3.0, 3.0], vec![3, 1]));
        assert_eq!(top(&data, 5).unwrap().1, [3, 1, 0, 4, 2]);
    }

    #[test]
    fn of_equal_elements_the_extension_takes_the_first() {
        let steps = Operand::new(OperandType::TENSOR_QUANT16_SYMM, &[4]).with_quantization(0.5, 0);
        let outputs = OneOperation::new(tflite::TOPK_V2)
            .operand(steps.clone(), &[-5_i16, 300, 7, 300])
            .tensor(OperandType::TENSOR_INT32, &[1], &[3])
            .output_operand(Operand {
                dimensions: Vec::new(),
                ..steps
            })
            .output(OperandType::TENSOR_INT32, &[])
            .run()
            .unwrap();
        assert_eq!(outputs[0].data::<i16>(), [300, 300, 7]);
        assert_eq!(outputs[1].data::<i32>(), [1, 3, 2]);
        let outputs = OneOperation::new(tflite::TOPK_V2)
            .tensor(tflite::TENSOR_INT64, &[3], &[5_i64, 1 << 33, 1 << 32])
            .i32(2)
            .output(tflite::TENSOR_INT64, &[])
            .output(OperandType::TENSOR_INT32, &[])
            .run()
            .unwrap();
        assert_eq!(outputs[0].data::<i64>(), [1 << 33, 1 << 32]);
        assert_eq!(outputs[1].data::<i32>(), [1, 2]);
    }

    #[test]
    fn nan_does_not_upset_the_order_of_the_others() {
        let (_, indices) = top(&[1.0, f32::NAN, 3.0, 2.0], 4).unwrap();
        assert_eq!(indices, [1, 2, 3, 0]);
    }

    #[test]
    fn k_outside_the_row_gives_an_error() {
        for k in [0, -1, 3, i32::MIN, i32::MAX] {
            let error = top(&[1.0, 2.0], k).unwrap_err();
            assert!(error.contains("(k)"), "{error}");
        }
    }
}
