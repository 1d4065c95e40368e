//! Tensors without elements may have any extents beside the 0: no operation may walk, multiply or reserve
//! memory by them. Each of these calls ends at once or not at all.

use nnhal_hal::{Operand, OperandType as T, OperationType};

use super::testing::{Computed, OneOperation};
use crate::{KernelSet, RunOptions};

/// The largest extent that a tensor of the HAL can have in practice.
const MOST: u32 = i32::MAX as u32;

/// Runs with both sets of kernels, weights constant, and gives the dimensions of all outputs.
fn run(operation: impl Fn() -> OneOperation) -> Result<Vec<Vec<u32>>, String> {
    let dims = |outputs: Vec<Computed>| outputs.into_iter().map(|one| one.dims).collect();
    let by_reference = operation().run().map(dims);
    let by_fast = operation()
        .with_constants()
        .run_by(KernelSet::Fast, &RunOptions::default())
        .map(dims);
    assert_eq!(by_reference, by_fast);
    by_reference
}

/// An operation on a float tensor without elements.
fn on_nothing(operation: OperationType, dims: &[u32]) -> OneOperation {
    OneOperation::new(operation).tensor::<f32>(T::TENSOR_FLOAT32, dims, &[])
}

fn flag(operation: OneOperation, value: u8) -> OneOperation {
    operation.tensor(T::BOOL, &[], &[value])
}

fn floats(operation: OneOperation, dims: &[u32]) -> OneOperation {
    let count = dims.iter().product::<u32>() as usize;
    operation.tensor(T::TENSOR_FLOAT32, dims, &vec![1.0_f32; count])
}

#[test]
fn strides_beyond_all_bounds_over_no_images_end_at_once() {
    let transposed = |stride: i32| {
        run(|| {
            let filter = floats(
                on_nothing(OperationType::TRANSPOSE_CONV_2D, &[0, 2, 2, 1]),
                &[1, 1, 1, 1],
            );
            let padded = [0, 0, 0, 0, stride, stride, 0]
                .into_iter()
                .fold(floats(filter, &[1]), OneOperation::i32);
            flag(padded, 0).output(T::TENSOR_FLOAT32, &[0; 4])
        })
    };
    assert_eq!(transposed(20_000), Ok(vec![vec![0, 20_001, 20_001, 1]]));
    // Either is an answer, as long as there is one.
    let _ = transposed(i32::MAX);
    let _ = transposed(i32::MAX - 1);
}

#[test]
fn blocks_beyond_all_bounds_over_no_images_end_at_once() {
    for block in [2, 1 << 20, i32::MAX] {
        let pads = [0, block - 1, 0, block - 1];
        let outcome = run(|| {
            on_nothing(OperationType::SPACE_TO_BATCH_ND, &[0, 1, 1, 1])
                .tensor(T::TENSOR_INT32, &[2], &[block, block])
                .tensor(T::TENSOR_INT32, &[2, 2], &pads)
                .output(T::TENSOR_FLOAT32, &[0; 4])
        });
        assert_eq!(outcome, Ok(vec![vec![0, 1, 1, 1]]), "{block}");
    }
}

#[test]
fn blocks_beyond_all_bounds_over_one_pixel_fill_no_more_than_their_output() {
    // A place of the block for every element of the output; only the one that the pixel comes to is copied.
    let outcome = OneOperation::new(OperationType::SPACE_TO_BATCH_ND)
        .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 1], &[7.0_f32])
        .tensor(T::TENSOR_INT32, &[2], &[300, 200])
        .tensor(T::TENSOR_INT32, &[2, 2], &[299, 0, 0, 199])
        .output(T::TENSOR_FLOAT32, &[0; 4])
        .run_one::<f32>();
    let (dims, data) = outcome.unwrap();
    assert_eq!(dims, [60_000, 1, 1, 1]);
    assert_eq!(data.iter().position(|value| *value != 0.0), Some(299 * 200));
    assert_eq!(data[299 * 200], 7.0);
}

#[test]
fn items_without_elements_are_not_hashed() {
    let outcome = run(|| {
        floats(OneOperation::new(OperationType::LSH_PROJECTION), &[1, 32])
            .tensor::<f32>(T::TENSOR_FLOAT32, &[MOST, 0], &[])
            .omitted(T::TENSOR_FLOAT32)
            .i32(2)
            .output(T::TENSOR_INT32, &[0])
    });
    assert!(
        outcome.as_ref().is_err_and(|error| error.contains("input 1")),
        "{outcome:?}"
    );
}

#[test]
fn lanes_of_nothing_need_no_memory() {
    let dims = [0, MOST];
    let softmax = || {
        let operation = on_nothing(OperationType::SOFTMAX, &dims).f32(1.0).i32(1);
        operation.output(T::TENSOR_FLOAT32, &[0; 2])
    };
    let local_response = || {
        let operation = on_nothing(OperationType::LOCAL_RESPONSE_NORMALIZATION, &dims).i32(i32::MAX);
        let operation = operation.f32(1.0).f32(1.0).f32(1.0).i32(1);
        operation.output(T::TENSOR_FLOAT32, &[0; 2])
    };
    assert_eq!(run(softmax), Ok(vec![dims.to_vec()]));
    assert_eq!(run(local_response), Ok(vec![dims.to_vec()]));
}

#[test]
fn windows_over_no_images_need_no_memory() {
    for (channels, nchw) in [(MOST, 0), (MOST, 1)] {
        let dims = if nchw == 1 {
            [0, channels, 2, 2]
        } else {
            [0, 2, 2, channels]
        };
        let quantized = |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(1.0, 0);
        for operation in [OperationType::AVERAGE_POOL_2D, OperationType::MAX_POOL_2D] {
            let outcome = run(|| {
                let pooled = OneOperation::new(operation).operand::<u8>(quantized(&dims), &[]);
                let pooled = [1, 1, 1, 2, 2, 0].into_iter().fold(pooled, OneOperation::i32);
                flag(pooled, nchw).output_operand(quantized(&[0; 4]))
            });
            assert_eq!(outcome, Ok(vec![dims.to_vec()]), "{operation}");
        }
    }
}

#[test]
fn images_that_there_are_none_of_may_be_of_any_size() {
    let dims = [0, MOST, MOST, 16];
    let weights = |operation, filter: &[u32], rest: &[i32]| {
        let layer = floats(floats(on_nothing(operation, &dims), filter), &filter[3..]);
        let layer = rest.iter().fold(layer, |layer, value| layer.i32(*value));
        layer.output(T::TENSOR_FLOAT32, &[0; 4])
    };
    let conv = run(|| weights(OperationType::CONV_2D, &[16, 1, 1, 16], &[1, 1, 1, 0]));
    assert_eq!(conv, Ok(vec![dims.to_vec()]));
    let depthwise = run(|| weights(OperationType::DEPTHWISE_CONV_2D, &[1, 3, 3, 16], &[1, 1, 1, 1, 0]));
    assert_eq!(depthwise, Ok(vec![dims.to_vec()]));
    for operation in [OperationType::DEPTH_TO_SPACE, OperationType::SPACE_TO_DEPTH] {
        let _ = run(|| flag(on_nothing(operation, &dims).i32(4), 0).output(T::TENSOR_FLOAT32, &[0; 4]));
    }
    let _ = run(|| {
        let resized = on_nothing(OperationType::RESIZE_BILINEAR, &dims)
            .i32(i32::MAX)
            .i32(i32::MAX);
        resized.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    let shuffled = run(|| {
        let shuffled = on_nothing(OperationType::CHANNEL_SHUFFLE, &[MOST, MOST, 0, MOST])
            .i32(1)
            .i32(0);
        shuffled.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(shuffled, Ok(vec![vec![MOST, MOST, 0, MOST]]));
}

#[test]
fn taps_as_far_apart_as_32_bits_allow_need_no_padded_image() {
    let image = |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(1.0, 0);
    let bias = Operand::new(T::TENSOR_INT32, &[1]).with_quantization(1.0, 0);
    // With one channel it is a convolution; two take the kernel for depthwise filters.
    let bias = Operand {
        dimensions: vec![2],
        ..bias
    };
    let outcome = run(|| {
        let layer = OneOperation::new(OperationType::DEPTHWISE_CONV_2D)
            .operand(image(&[1, 2, 2, 2]), &[1_u8; 8])
            .operand(image(&[1, 3, 3, 2]), &[1_u8; 18])
            .operand(bias.clone(), &[5_i32; 2]);
        let layer = [1, 1, 1, 1, 0].into_iter().fold(layer, OneOperation::i32);
        flag(layer, 0)
            .i32(i32::MAX / 2)
            .i32(i32::MAX / 2)
            .output_operand(image(&[0; 4]).with_quantization(2.0, 0))
    });
    assert_eq!(outcome, Ok(vec![vec![1, 2, 2, 2]]));
}

#[test]
fn products_of_extents_beside_a_zero_do_not_overflow() {
    let dims = [0, MOST, MOST, MOST];
    let gathered = run(|| {
        let operation = on_nothing(OperationType::GATHER, &dims).i32(0);
        let operation = operation.tensor::<i32>(T::TENSOR_INT32, &[0], &[]);
        operation.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(gathered, Ok(vec![dims.to_vec()]));
    let joined = run(|| {
        let operation = on_nothing(OperationType::CONCATENATION, &dims);
        let operation = operation.tensor::<f32>(T::TENSOR_FLOAT32, &dims, &[]).i32(0);
        operation.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(joined, Ok(vec![dims.to_vec()]));
    let parted = run(|| {
        let operation = on_nothing(OperationType::SPLIT, &dims).i32(0).i32(1);
        operation.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(parted, Ok(vec![dims.to_vec()]));
    let packed = run(|| {
        let operation = OneOperation::new(OperationType::PACK).i32(1);
        let operation = operation.tensor::<f32>(T::TENSOR_FLOAT32, &dims, &[]);
        let operation = operation.tensor::<f32>(T::TENSOR_FLOAT32, &dims, &[]);
        operation.output(T::TENSOR_FLOAT32, &[0; 5])
    });
    assert_eq!(packed, Ok(vec![vec![0, 2, MOST, MOST, MOST]]));
    let reversed = run(|| {
        let operation = on_nothing(OperationType::REVERSE, &dims);
        let operation = operation.tensor(T::TENSOR_INT32, &[1], &[1]);
        operation.output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(reversed, Ok(vec![dims.to_vec()]));
    let mirrored = run(|| {
        let operation = on_nothing(OperationType::MIRROR_PAD, &dims);
        let operation = operation.tensor(T::TENSOR_INT32, &[4, 2], &[0, 0, MOST as i32, 0, 0, 1, 0, 0]);
        operation.i32(1).output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(mirrored, Ok(vec![vec![0, 2 * MOST, MOST + 1, MOST]]));
    let multiplied = run(|| {
        let operation = on_nothing(OperationType::BATCH_MATMUL, &dims);
        let operation = operation.tensor::<f32>(T::TENSOR_FLOAT32, &dims, &[]);
        flag(flag(operation, 0), 1).output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(multiplied, Ok(vec![dims.to_vec()]));
    let looked_up = run(|| {
        OneOperation::new(OperationType::EMBEDDING_LOOKUP)
            .tensor::<i32>(T::TENSOR_INT32, &[0], &[])
            .tensor::<f32>(T::TENSOR_FLOAT32, &[0, MOST, MOST, MOST], &[])
            .output(T::TENSOR_FLOAT32, &[0; 4])
    });
    assert_eq!(looked_up, Ok(vec![dims.to_vec()]));
}

#[test]
fn detections_in_no_images_need_no_memory() {
    let outcome = run(|| {
        let detection = floats(
            on_nothing(OperationType::DETECTION_POSTPROCESSING, &[0, 2, MOST]).tensor::<f32>(
                T::TENSOR_FLOAT32,
                &[0, 2, 4],
                &[],
            ),
            &[2, 4],
        );
        let detection = [(); 4].iter().fold(detection, |one, ()| one.f32(1.0));
        let detection = flag(detection, 1).i32(3).i32(1).i32(2).f32(0.0).f32(0.5);
        flag(detection, 0)
            .output(T::TENSOR_FLOAT32, &[0; 2])
            .output(T::TENSOR_FLOAT32, &[0; 3])
            .output(T::TENSOR_INT32, &[0; 2])
            .output(T::TENSOR_INT32, &[0])
    });
    assert_eq!(outcome, Ok(vec![vec![0, 3], vec![0, 3, 4], vec![0, 3], vec![0]]));
}
