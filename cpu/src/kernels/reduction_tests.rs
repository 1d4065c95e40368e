use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

use crate::kernels::testing::OneOperation;

fn sum_over(axes: &[i32], keep: bool) -> Result<(Vec<u32>, Vec<f32>), String> {
    let data: Vec<f32> = (0..12_u8).map(f32::from).collect();
    OneOperation::new(OperationType::REDUCE_SUM)
        .tensor(T::TENSOR_FLOAT32, &[2, 3, 2], &data)
        .tensor(T::TENSOR_INT32, &[axes.len() as u32], axes)
        .tensor(T::BOOL, &[], &[u8::from(keep)])
        .output(T::TENSOR_FLOAT32, &[])
        .run_one()
}

#[test]
fn axes_that_repeat_count_once() {
    let expected = (vec![2, 2], vec![6.0, 9.0, 24.0, 27.0]);
    assert_eq!(sum_over(&[1], false).unwrap(), expected);
    assert_eq!(sum_over(&[1, -2, 1], false).unwrap(), expected);
    assert_eq!(sum_over(&[1], true).unwrap().0, [2, 1, 2]);
}

#[test]
fn all_axes_leave_one_dimension_of_one() {
    assert_eq!(sum_over(&[0, 1, 2], false).unwrap(), (vec![1], vec![66.0]));
    assert_eq!(
        sum_over(&[0, 2], false).unwrap(),
        (vec![3], vec![14.0, 22.0, 30.0])
    );
}

#[test]
fn axis_outside_the_rank_gives_an_error() {
    for axis in [3, -4, i32::MAX, i32::MIN] {
        let error = sum_over(&[0, axis], false).unwrap_err();
        assert!(error.contains("input 1") && error.contains("axis"), "{error}");
    }
}

#[test]
fn integers_of_64_bits_are_reduced_at_all_their_bits() {
    let of = |operation| {
        let one = OneOperation::new(operation)
            .tensor(tflite::TENSOR_INT64, &[3], &[3_i64 << 40, -(1 << 41), 4])
            .tensor(T::TENSOR_INT32, &[1], &[0]);
        let one = match operation {
            tflite::MEAN => one.i32(0),
            _ => one.tensor(T::BOOL, &[], &[0_u8]),
        };
        one.output(tflite::TENSOR_INT64, &[]).run_one::<i64>().unwrap().1
    };
    assert_eq!(of(tflite::REDUCE_SUM), [(1 << 40) + 4]);
    assert_eq!(of(tflite::REDUCE_MAX), [3 << 40]);
    assert_eq!(of(tflite::REDUCE_MIN), [-(1 << 41)]);
    assert_eq!(of(tflite::REDUCE_PROD), [0]);
    assert_eq!(of(tflite::MEAN), [((1 << 40) + 4) / 3]);
}

fn mean_of<E: bytemuck::Pod>(ty: T, zero_point: i32, data: &[E]) -> E {
    let operand = |dims: &[u32]| Operand::new(ty, dims).with_quantization(1.0, zero_point);
    let (_, result) = OneOperation::new(OperationType::MEAN)
        .operand(operand(&[data.len() as u32]), data)
        .tensor(T::TENSOR_INT32, &[1], &[0])
        .i32(0)
        .output_operand(operand(&[]))
        .run_one::<E>()
        .unwrap();
    result[0]
}

#[test]
fn signed_and_unsigned_means_are_128_apart() {
    for pair in [[0_u8, 1], [127, 128], [128, 129], [254, 255], [3, 6]] {
        let signed = pair.map(|value| (i32::from(value) - 128) as i8);
        assert_eq!(
            i32::from(mean_of(T::TENSOR_QUANT8_ASYMM, 128, &pair)) - 128,
            i32::from(mean_of(T::TENSOR_QUANT8_ASYMM_SIGNED, 0, &signed))
        );
    }
}

fn of_integers(operation: OperationType, values: &[i32]) -> Result<Vec<i32>, String> {
    let operands = OneOperation::new(operation)
        .tensor(T::TENSOR_INT32, &[1, 1, 1, 1, 2, values.len() as u32 / 2], values)
        .tensor(T::TENSOR_INT32, &[1], &[-1]);
    let operands = match operation {
        tflite::MEAN => operands.i32(0),
        _ => operands.tensor(T::BOOL, &[], &[0_u8]),
    };
    Ok(operands.output(T::TENSOR_INT32, &[]).run_one::<i32>()?.1)
}

#[test]
fn integers_are_reduced_and_wrap() {
    let values = [5, -7, i32::MAX, 1];
    assert_eq!(of_integers(tflite::REDUCE_MAX, &values).unwrap(), [5, i32::MAX]);
    assert_eq!(of_integers(tflite::REDUCE_MIN, &values).unwrap(), [-7, 1]);
    assert_eq!(of_integers(tflite::REDUCE_SUM, &values).unwrap(), [-2, i32::MIN]);
    assert_eq!(
        of_integers(tflite::REDUCE_PROD, &values).unwrap(),
        [-35, i32::MAX]
    );
    assert_eq!(
        of_integers(tflite::MEAN, &[5, -8, i32::MAX, 1]).unwrap(),
        [-1, 1 << 30]
    );
}

#[test]
fn nothing_has_no_extreme_and_no_mean() {
    for operation in [tflite::REDUCE_MAX, tflite::REDUCE_MIN, tflite::MEAN] {
        let error = of_integers(operation, &[]).unwrap_err();
        assert!(error.contains("no element along"), "{error}");
    }
    assert_eq!(of_integers(tflite::REDUCE_SUM, &[]).unwrap(), [0, 0]);
}

#[test]
fn means_of_sixteen_bit_steps_may_have_another_scale() {
    let mean = |scale, output_scale| {
        let steps =
            |scale, dims: &[u32]| Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(scale, 0);
        OneOperation::new(tflite::MEAN)
            .operand(
                steps(scale, &[2, 3]),
                &[100_i16, 101, 101, -32_768, -32_768, -32_767],
            )
            .tensor(T::TENSOR_INT32, &[1], &[1])
            .i32(0)
            .output_operand(steps(output_scale, &[]))
            .run_one::<i16>()
            .unwrap()
            .1
    };
    assert_eq!(mean(1.0, 1.0), [101, -32_768]);
    assert_eq!(mean(1.0, 0.5), [201, -32_768]);
    assert_eq!(mean(0.5, 1.0), [50, -16_384]);
}

#[test]
fn truth_is_reduced_along_any_of_eight_axes() {
    let of = |operation| {
        OneOperation::new(operation)
            .tensor(T::TENSOR_BOOL8, &[1, 1, 1, 1, 1, 1, 2, 2], &[0_u8, 1, 0, 0])
            .tensor(T::TENSOR_INT32, &[1], &[7])
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_BOOL8, &[])
            .run_one::<u8>()
            .unwrap()
            .1
    };
    assert_eq!(of(tflite::REDUCE_ANY), [1, 0]);
    assert_eq!(of(tflite::REDUCE_ALL), [0, 0]);
}
