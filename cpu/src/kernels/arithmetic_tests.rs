use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

use crate::kernels::testing::OneOperation;

#[test]
fn angles_have_the_quadrant_of_their_point() {
    let (dims, data) = OneOperation::new(tflite::ATAN2)
        .tensor(T::TENSOR_FLOAT32, &[2, 1], &[1.0_f32, -1.0])
        .tensor(T::TENSOR_FLOAT32, &[2], &[1.0_f32, -1.0])
        .output(T::TENSOR_FLOAT32, &[])
        .run_one::<f32>()
        .unwrap();
    let eighth = std::f32::consts::FRAC_PI_4;
    assert_eq!(dims, [2, 2]);
    for (found, eighths) in data.iter().zip([1.0, 3.0, -1.0, -3.0]) {
        assert!((found - eighth * eighths).abs() < 1e-6, "{data:?}");
    }
}

fn of_wide(operation: OperationType, left: &[i64], right: &[i64], activation: Option<i32>) -> Vec<i64> {
    let one = OneOperation::new(operation)
        .tensor(tflite::TENSOR_INT64, &[left.len() as u32], left)
        .tensor(tflite::TENSOR_INT64, &[right.len() as u32], right);
    let one = match activation {
        Some(code) => one.i32(code),
        None => one,
    };
    one.output(tflite::TENSOR_INT64, &[]).run_one().unwrap().1
}

#[test]
fn integers_of_64_bits_wrap_at_64_bits() {
    let large = 3_i64 << 40;
    let add = |code| {
        of_wide(
            tflite::ADD,
            &[large, i64::MAX, -large],
            &[large, 1, 0],
            Some(code),
        )
    };
    assert_eq!(add(0), [2 * large, i64::MIN, -large]);
    assert_eq!(add(1), [2 * large, 0, 0]);
    assert_eq!(add(2), [1, -1, -1]);
    assert_eq!(add(3), [6, 0, 0]);
    assert_eq!(
        of_wide(tflite::SUB, &[i64::MIN, 0], &[1, large], Some(0)),
        [i64::MAX, -large]
    );
    assert_eq!(
        of_wide(tflite::MUL, &[1 << 32, 1 << 32], &[5, 1 << 32], Some(0)),
        [5 << 32, 0]
    );
    assert_eq!(
        of_wide(tflite::DIV, &[i64::MIN, 1, -large], &[-1, 0, 2], Some(0)),
        [i64::MIN, 0, -large / 2]
    );
    let pair = [large, -large];
    assert_eq!(
        of_wide(tflite::MAXIMUM, &pair, &[large + 1], None),
        [large + 1; 2]
    );
    assert_eq!(
        of_wide(tflite::MINIMUM, &pair, &[large - 1], None),
        [large - 1, -large]
    );
}

fn of_steps(
    operation: OperationType,
    [left_scale, right_scale, output_scale]: [f32; 3],
    activation: Option<i32>,
) -> Vec<i16> {
    let steps = |scale| Operand::new(T::TENSOR_QUANT16_SYMM, &[4]).with_quantization(scale, 0);
    let operands = OneOperation::new(operation)
        .operand(steps(left_scale), &[1012_i16, -20_000, 32_767, -32_768])
        .operand(steps(right_scale), &[500_i16, 30_000, 32_767, 32_766]);
    let operands = match activation {
        Some(code) => operands.i32(code),
        None => operands,
    };
    operands
        .output_operand(steps(output_scale))
        .run_one::<i16>()
        .unwrap()
        .1
}

#[test]
fn sixteen_bit_steps_are_added_and_multiplied_as_numbers() {
    assert_eq!(
        of_steps(tflite::ADD, [0.001, 0.002, 0.004], Some(0)),
        [503, 10_000, 24_575, 8191]
    );
    assert_eq!(
        of_steps(tflite::SUB, [0.001, 0.001, 0.001], Some(0)),
        [512, -32_768, 0, -32_768]
    );
    assert_eq!(
        of_steps(tflite::MUL, [0.001, 0.001, 0.04], Some(0)),
        [13, -15_000, 26_842, -26_842]
    );
    // RELU6: from 0 to 6 / 0.002.
    assert_eq!(
        of_steps(tflite::ADD, [0.001, 0.001, 0.002], Some(3)),
        [756, 3000, 3000, 0]
    );
}

#[test]
fn sixteen_bit_extremes_are_those_of_the_numbers() {
    assert_eq!(
        of_steps(tflite::MAXIMUM, [0.002, 0.001, 0.002], None),
        [1012, 15_000, 32_767, 16_383]
    );
    assert_eq!(
        of_steps(tflite::MINIMUM, [0.002, 0.001, 0.002], None),
        [250, -20_000, 16_384, -32_768]
    );
}

#[test]
fn integers_have_activations_in_the_extension_only() {
    let of = |operation, code| {
        OneOperation::new(operation)
            .tensor(T::TENSOR_INT32, &[3], &[-5, 3, 9])
            .tensor(T::TENSOR_INT32, &[1], &[1])
            .i32(code)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()
            .map(|(_, data)| data)
    };
    assert_eq!(of(tflite::ADD, 1).unwrap(), [0, 4, 10]);
    assert_eq!(of(tflite::ADD, 2).unwrap(), [-1, 1, 1]);
    assert_eq!(of(tflite::ADD, 3).unwrap(), [0, 4, 6]);
    assert!(of(tflite::ADD, 4).unwrap_err().contains("(activation) is 4"));
    assert!(
        of(OperationType::ADD, 1)
            .unwrap_err()
            .contains("must be 0 (NONE)")
    );
}

#[test]
fn products_may_have_as_many_axes_as_there_are() {
    let dims = [1, 1, 2, 1, 1, 1, 1, 1];
    let (found, data) = OneOperation::new(tflite::MUL)
        .tensor(T::TENSOR_FLOAT32, &dims, &[2.0_f32, 3.0])
        .tensor(T::TENSOR_FLOAT32, &[2], &[1.0_f32, 10.0])
        .i32(0)
        .output(T::TENSOR_FLOAT32, &[])
        .run_one::<f32>()
        .unwrap();
    assert_eq!((found[2], found[7], data), (2, 2, vec![2.0, 20.0, 3.0, 30.0]));
}
