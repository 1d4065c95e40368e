//! What a change leaves legal. Written from the HAL text and the descriptions of the extension's operations,
//! not from the operation table: the two are to be compared.

use nnhal_hal::{Model, OperandType as T, OperationType as O, tflite};

/// A place in which an operand is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    pub(super) operation: O,
    pub(super) is_output: bool,
    pub(super) number: usize,
    /// How many inputs the operation has.
    pub(super) inputs: usize,
}

/// Where the operations of the main graph use an operand.
pub(super) fn uses(model: &Model, operand: usize) -> Vec<Argument> {
    let mut uses = Vec::new();
    for operation in &model.main.operations {
        for (is_output, list) in [(false, &operation.inputs), (true, &operation.outputs)] {
            let numbers = list
                .iter()
                .enumerate()
                .filter(|(_, argument)| **argument as usize == operand);
            uses.extend(numbers.map(|(number, _)| Argument {
                operation: operation.operation_type,
                is_output,
                number,
                inputs: operation.inputs.len(),
            }));
        }
    }
    uses
}

const FLOATS: &[T] = &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT32];
const ASYMMETRIC: &[T] = &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED];
const CASTABLE: &[T] = &[
    T::TENSOR_FLOAT16,
    T::TENSOR_FLOAT32,
    T::TENSOR_INT32,
    T::TENSOR_QUANT8_ASYMM,
    T::TENSOR_QUANT8_ASYMM_SIGNED,
];

/// What the extension's operations take of any type.
const MOVED: &[T] = &[
    T::TENSOR_FLOAT16,
    T::TENSOR_FLOAT32,
    T::TENSOR_INT32,
    tflite::TENSOR_INT64,
    T::TENSOR_BOOL8,
    T::TENSOR_QUANT8_ASYMM,
    T::TENSOR_QUANT8_ASYMM_SIGNED,
    T::TENSOR_QUANT16_SYMM,
];

const INTEGERS: &[T] = &[T::TENSOR_INT32, tflite::TENSOR_INT64];

/// Whether an argument of the extension's operations may also have this type; `None` for those that are as
/// NNAPI's.
fn other_type_of_extension(argument: &Argument, input: Option<usize>, ty: T) -> Option<bool> {
    Some(match (argument.operation, input) {
        (tflite::CAST | tflite::BITCAST, _) | (tflite::SHAPE | tflite::WHERE, Some(0)) => MOVED.contains(&ty),
        (tflite::BUCKETIZE, Some(0)) => FLOATS.contains(&ty) || INTEGERS.contains(&ty),
        (tflite::DEQUANTIZE, Some(0)) => ASYMMETRIC.contains(&ty) || ty == T::TENSOR_QUANT16_SYMM,
        // Which of these depends on the output.
        (tflite::QUANTIZE, Some(0)) => {
            let steps = [T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT16_ASYMM];
            FLOATS.contains(&ty) || ASYMMETRIC.contains(&ty) || steps.contains(&ty)
        }
        (tflite::QUANTIZE, None) => {
            let others = [T::TENSOR_QUANT16_SYMM, T::TENSOR_INT32];
            ty == T::TENSOR_QUANT8_ASYMM_SIGNED || others.contains(&ty)
        }
        (tflite::GATHER, Some(2)) | (tflite::GATHER_ND, Some(1)) => INTEGERS.contains(&ty),
        (tflite::ONE_HOT | tflite::SCATTER_ND | tflite::SPARSE_TO_DENSE, Some(0)) => INTEGERS.contains(&ty),
        (tflite::TOPK_V2, Some(1)) => ty == T::INT32 || ty == T::TENSOR_INT32,
        _ => return None,
    })
}

/// Whether an argument may also have this type while the others stay as they are.
pub(super) fn other_type(argument: &Argument, ty: T) -> bool {
    let input = (!argument.is_output).then_some(argument.number);
    if let Some(legal) = other_type_of_extension(argument, input, ty) {
        return legal;
    }
    match (as_in_nnapi(argument.operation), input) {
        // Hashed as bytes, whatever it is.
        (O::LSH_PROJECTION, Some(1)) => true,
        (O::CAST, _) => CASTABLE.contains(&ty),
        (O::ARGMAX | O::ARGMIN, Some(0)) => CASTABLE.contains(&ty),
        (O::QUANTIZE, Some(0)) | (O::DEQUANTIZE, None) => FLOATS.contains(&ty),
        (O::QUANTIZE, None) => ASYMMETRIC.contains(&ty),
        (O::DEQUANTIZE, Some(0)) => {
            let symmetric = [T::TENSOR_QUANT8_SYMM, T::TENSOR_QUANT8_SYMM_PER_CHANNEL];
            ASYMMETRIC.contains(&ty) || symmetric.contains(&ty)
        }
        (O::RANDOM_MULTINOMIAL, Some(0)) => FLOATS.contains(&ty),
        (O::CONV_2D | O::DEPTHWISE_CONV_2D | O::GROUPED_CONV_2D | O::TRANSPOSE_CONV_2D, Some(1)) => {
            ASYMMETRIC.contains(&ty) || ty == T::TENSOR_QUANT8_SYMM_PER_CHANNEL
        }
        // The layout flag of the implicit form with dilation, or a stride of the explicit form without.
        (O::CONV_2D, Some(7)) if argument.inputs == 10 => ty == T::BOOL || ty == T::INT32,
        (O::DEPTHWISE_CONV_2D, Some(8)) if argument.inputs == 11 => ty == T::BOOL || ty == T::INT32,
        (O::AXIS_ALIGNED_BBOX_TRANSFORM, Some(1)) => ASYMMETRIC.contains(&ty),
        (O::RANK, Some(0)) => true,
        _ => false,
    }
}

/// NNAPI's operation in place of the extension's that does the same.
pub(super) fn as_in_nnapi(operation: O) -> O {
    tflite::narrower(operation).unwrap_or(operation)
}

/// Whether an operand is both sides of a comparison, which compares any type with itself.
pub(super) fn is_compared_with_itself(uses: &[Argument]) -> bool {
    let comparison = |use_: &&Argument| {
        matches!(
            as_in_nnapi(use_.operation),
            O::EQUAL | O::NOT_EQUAL | O::LESS | O::LESS_EQUAL | O::GREATER | O::GREATER_EQUAL
        ) && !use_.is_output
    };
    uses.iter().filter(comparison).count() > 1
}

/// Whether an operation may have an output less: the lists of these are theirs to choose.
pub(super) fn fewer_outputs(operation: O) -> bool {
    matches!(
        as_in_nnapi(operation),
        O::SPLIT
            | O::BIDIRECTIONAL_SEQUENCE_LSTM
            | O::BIDIRECTIONAL_SEQUENCE_RNN
            | O::UNIDIRECTIONAL_SEQUENCE_LSTM
            | O::UNIDIRECTIONAL_SEQUENCE_RNN
            // A loop keeps to itself what it does not give back.
            | O::WHILE
    )
}

/// Whether an input may be left out with those behind it moving up.
pub(super) fn shorter_list(argument: &Argument) -> bool {
    let Argument {
        operation,
        number,
        inputs,
        ..
    } = *argument;
    let is_last = number + 1 == inputs;
    // The lengths from which the last argument may go.
    let shortened: &[usize] = match as_in_nnapi(operation) {
        // The first axes that input and indices share, and the flag of ends that are counted from begins.
        O::GATHER => &[4],
        O::STRIDED_SLICE => &[8],
        // The flag of integers that saturate.
        O::CAST => &[2],
        // What is added at the edges or cut off.
        tflite::DILATE => &[4],
        // One tensor and the axis must stay.
        O::CONCATENATION => return inputs > 2 && !is_last,
        O::PACK => return inputs > 2 && number > 0,
        // The flags for layout, corners and centres are all truth values: those behind the lost one take its
        // place.
        O::RESIZE_BILINEAR => return number >= 3,
        O::RESIZE_NEAREST_NEIGHBOR => return number >= 3 && inputs > 4,
        O::CONV_2D => &[8, 11],
        O::DEPTHWISE_CONV_2D => &[9, 12],
        O::AVERAGE_POOL_2D | O::L2_POOL_2D | O::MAX_POOL_2D => &[8, 11],
        O::SPACE_TO_DEPTH | O::DEPTH_TO_SPACE | O::BATCH_TO_SPACE_ND => &[3],
        O::SPACE_TO_BATCH_ND => &[4],
        O::L2_NORMALIZATION => &[2],
        O::LOCAL_RESPONSE_NORMALIZATION => &[6],
        O::SOFTMAX => &[3],
        _ => &[],
    };
    is_last && shortened.contains(&inputs)
}

/// Whether a 32-bit integer more at the end is an argument that the operation has.
pub(super) fn longer_list(operation: O, inputs: usize) -> bool {
    match as_in_nnapi(operation) {
        // The first axes that both share.
        O::GATHER => operation == tflite::GATHER && inputs == 3,
        // The axis.
        O::L2_NORMALIZATION => inputs == 1,
        O::LOCAL_RESPONSE_NORMALIZATION => inputs == 5,
        O::SOFTMAX => inputs == 2,
        _ => false,
    }
}
