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
