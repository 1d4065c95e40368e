//! The same as in `hostile_extents` for operations of the extension for TFLite that move values, name places
//! or combine rows.

use nnhal_hal::{OperandType as T, OperationType, tflite};

use super::testing::OneOperation;

/// The largest extent that a tensor of the HAL can have in practice.
const MOST: u32 = i32::MAX as u32;

/// A tensor without elements.
const NOTHING: &[u32] = &[0, MOST, MOST];

fn integers(operation: OneOperation, values: &[i32]) -> OneOperation {
    operation.tensor(T::TENSOR_INT32, &[values.len() as u32], values)
}

fn on_nothing(operation: OperationType) -> OneOperation {
    OneOperation::new(operation).tensor::<f32>(T::TENSOR_FLOAT32, NOTHING, &[])
}

fn nowhere(operation: OneOperation, dims: &[u32]) -> OneOperation {
    operation.tensor::<i32>(T::TENSOR_INT32, dims, &[])
}

fn dims_of(operation: OneOperation) -> Result<Vec<u32>, String> {
    let outputs = operation.output(T::TENSOR_FLOAT32, &[]).run()?;
    Ok(outputs[0].dims.clone())
}

#[test]
fn moves_of_nothing_end_at_once() {
    let most = i32::MAX;
    let slice = [[0, 0, 1], [0, most, most], [1, 1, most]];
    let slice = slice
        .iter()
        .fold(on_nothing(tflite::STRIDED_SLICE), |slice, bounds| {
            integers(slice, bounds)
        });
    assert_eq!(dims_of(slice.i32(0).i32(0).i32(0)), Ok(vec![0, MOST, 1]));
    let gather = nowhere(on_nothing(tflite::GATHER).i32(1), &[0, MOST]).i32(1);
    assert_eq!(dims_of(gather), Ok(vec![0, MOST, MOST]));
    let transpose = integers(on_nothing(tflite::TRANSPOSE), &[2, 1, 0]);
    assert_eq!(dims_of(transpose), Ok(vec![MOST, MOST, 0]));
    let broadcast = integers(on_nothing(tflite::BROADCAST_TO), &[most, 0, most, most]);
    assert_eq!(dims_of(broadcast), Ok(vec![MOST, 0, MOST, MOST]));
    let sequence = nowhere(on_nothing(tflite::REVERSE_SEQUENCE), &[0]).i32(2).i32(0);
    assert_eq!(dims_of(sequence), Ok(NOTHING.to_vec()));
    let update = on_nothing(tflite::DYNAMIC_UPDATE_SLICE).tensor::<f32>(T::TENSOR_FLOAT32, NOTHING, &[]);
    assert_eq!(dims_of(integers(update, &[most; 3])), Ok(NOTHING.to_vec()));
}

#[test]
fn parts_that_begin_far_inside_nothing_end_at_once() {
    let dims = &[0, MOST, MOST, MOST];
    let on_nothing = |operation| OneOperation::new(operation).tensor::<f32>(T::TENSOR_FLOAT32, dims, &[]);
    let most = i32::MAX;
    let slice = [[0, 3, 0, 0], [0, most, most, most], [1; 4]];
    let slice = slice
        .iter()
        .fold(on_nothing(tflite::STRIDED_SLICE), |slice, bounds| {
            integers(slice, bounds)
        });
    assert_eq!(
        dims_of(slice.i32(0).i32(0).i32(0)),
        Ok(vec![0, MOST - 3, MOST, MOST])
    );
    let slice = integers(on_nothing(tflite::SLICE), &[0, 3, 0, 0]);
    assert_eq!(
        dims_of(integers(slice, &[-1; 4])),
        Ok(vec![0, MOST - 3, MOST, MOST])
    );
    let paddings = [0, 0, 3, 0, 0, 0, 0, 0];
    let pad = on_nothing(tflite::PAD).tensor(T::TENSOR_INT32, &[4, 2], &paddings);
    assert_eq!(dims_of(pad), Ok(vec![0, MOST + 3, MOST, MOST]));
}

#[test]
fn places_in_nothing_end_at_once() {
    let gather = nowhere(on_nothing(tflite::GATHER_ND), &[MOST, 0, 2]);
    assert_eq!(dims_of(gather), Ok(vec![MOST, 0, MOST]));
    let most = i32::MAX;
    let scatter = |shape: &[i32], dims: &[u32]| {
        let scatter = nowhere(OneOperation::new(tflite::SCATTER_ND), &[0, 1]);
        dims_of(integers(
            scatter.tensor::<f32>(T::TENSOR_FLOAT32, dims, &[]),
            shape,
        ))
    };
    assert_eq!(scatter(&[0, most, most], NOTHING), Ok(NOTHING.to_vec()));
    let into_nothing = OneOperation::new(tflite::SCATTER_ND)
        .tensor(T::TENSOR_INT32, &[1, 4], &[most - 1, most - 1, most - 1, 0])
        .tensor(T::TENSOR_FLOAT32, &[1], &[1_f32]);
    let error = dims_of(integers(into_nothing, &[most, most, most, 0])).unwrap_err();
    assert!(error.contains("(indices) holds 0 for axis 3"), "{error}");
    let dense = integers(
        nowhere(OneOperation::new(tflite::SPARSE_TO_DENSE), &[0, 3]),
        &[0, most, most],
    );
    let dense = dense
        .tensor(T::TENSOR_FLOAT32, &[1], &[1_f32])
        .tensor(T::TENSOR_FLOAT32, &[1], &[0_f32]);
    assert_eq!(dims_of(dense), Ok(NOTHING.to_vec()));
}

#[test]
fn diagonals_and_lists_of_nothing_end_at_once() {
    let diagonals = OneOperation::new(tflite::MATRIX_DIAG).tensor::<f32>(T::TENSOR_FLOAT32, &[0, MOST], &[]);
    assert_eq!(dims_of(diagonals), Ok(NOTHING.to_vec()));
    let replaced = on_nothing(tflite::MATRIX_SET_DIAG).tensor::<f32>(T::TENSOR_FLOAT32, &[0, MOST], &[]);
    assert_eq!(dims_of(replaced), Ok(NOTHING.to_vec()));
    let one_hot = integers(
        nowhere(OneOperation::new(tflite::ONE_HOT), &[0, MOST]),
        &[i32::MAX],
    );
    let one_hot = one_hot
        .tensor(T::TENSOR_FLOAT32, &[1], &[1_f32])
        .tensor(T::TENSOR_FLOAT32, &[1], &[0_f32]);
    assert_eq!(dims_of(one_hot.i32(-1)), Ok(NOTHING.to_vec()));
}

#[test]
fn rows_of_nothing_end_at_once() {
    let sum = nowhere(on_nothing(tflite::SEGMENT_SUM), &[0]);
    assert_eq!(dims_of(sum), Ok(NOTHING.to_vec()));
    let product = integers(nowhere(on_nothing(tflite::UNSORTED_SEGMENT_PROD), &[0]), &[0]);
    assert_eq!(dims_of(product), Ok(NOTHING.to_vec()));
    let found = on_nothing(tflite::WHERE).output(T::TENSOR_INT32, &[0, 0]).run();
    assert_eq!(found.unwrap()[0].dims, [0, 3]);
    let shape = on_nothing(tflite::SHAPE).output(T::TENSOR_INT32, &[0]).run();
    assert_eq!(shape.unwrap()[0].data::<i32>(), [0, i32::MAX, i32::MAX]);
}
