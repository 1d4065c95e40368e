//! How far a result of a random model may be from the reference's.
//!
//! Source: the HAL's criteria for random single operations and random graphs, and one that they lack: truth
//! values and integers are compared wherever rounding cannot have reached them.

use nnhal_hal::{Model, OperandType, OperationType, Subgraph, tflite};

use crate::accuracy::Tolerance;

/// What is allowed of the elements of one output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Of their mean difference.
    bias: f64,
    /// Of the mean square of their differences.
    mean_square: f64,
    /// Of each.
    element: Tolerance,
}

const fn float(bias: f64, mean_square: f64, element: f64) -> Limits {
    Limits {
        bias,
        mean_square,
        element: Tolerance {
            absolute: element,
            relative: element,
        },
    }
}

const fn steps(bias: f64, mean_square: f64, element: f64) -> Limits {
    Limits {
        bias,
        mean_square,
        element: Tolerance {
            absolute: element,
            relative: 0.0,
        },
    }
}

/// A row of the criteria.
struct Row {
    float32: Limits,
    float16: Limits,
    quantized: Limits,
}

const STRICT: Row = Row {
    float32: float(1e-7, 1e-10, 1e-6),
    float16: float(1e-4, 1e-8, 1e-3),
    quantized: steps(0.1, 0.1, 1.0),
};

const MEDIUM: Row = Row {
    float32: float(1e-6, 1e-8, 1e-5),
    float16: float(1e-3, 1e-5, 1e-2),
    quantized: steps(1.2, 1.2, 2.0),
};

const RELAXED: Row = Row {
    float32: float(3e-5, 1e-6, 1e-3),
    float16: float(5e-3, 1e-3, 1.0),
    quantized: steps(1.5, 1.5, 10.0),
};

const CONVOLUTION: Row = Row {
    float32: float(4e-4, 1e-5, 2e-2),
    float16: float(5e-2, 1e-2, 1.0),
    quantized: steps(1.5, 1.5, 10.0),
};

const SMALL_GRAPH: Row = Row {
    float32: float(4e-4, 1e-5, 1e-2),
    float16: float(5e-2, 1e-2, 1.0),
    quantized: steps(2.0, 2.0, 12.0),
};

/// Integers that no rounding has reached.
const INTEGERS: Limits = steps(0.0, 0.0, 1.0);
/// Truth values that no rounding has reached.
const TRUTH_VALUES: Limits = steps(0.0, 0.0, 0.0);

/// Beyond this magnitude, rounding differences of floats say nothing.
const LARGEST_COMPARED: f64 = 1e3;

/// The row of an operation. The HAL has none for the extension's own operations: those that only move values
/// are as strict as NNAPI's that do, the others as relaxed as its functions.
fn row(operation: OperationType) -> Row {
    use OperationType as O;
    match tflite::narrower(operation).unwrap_or(operation) {
        tflite::CONV_3D | tflite::CONV_3D_TRANSPOSE => CONVOLUTION,
        tflite::BITCAST
        | tflite::BROADCAST_ARGS
        | tflite::BROADCAST_TO
        | tflite::DILATE
        | tflite::DYNAMIC_UPDATE_SLICE
        | tflite::GATHER_ND
        | tflite::GATHER_REGIONS
        | tflite::MATRIX_DIAG
        | tflite::MATRIX_SET_DIAG
        | tflite::ONE_HOT
        | tflite::RANDOM_UNIFORM
        | tflite::REVERSE_SEQUENCE
        | tflite::RNG_BIT_GENERATOR
        | tflite::SHAPE
        | tflite::SPARSE_TO_DENSE
        | tflite::UNIQUE
        | tflite::WHERE => STRICT,
        O::BATCH_MATMUL | O::CONV_2D | O::DEPTHWISE_CONV_2D | O::GROUPED_CONV_2D | O::TRANSPOSE_CONV_2D => {
            CONVOLUTION
        }
        O::ADD
        | O::SUB
        | O::MUL
        | O::DIV
        | O::MAXIMUM
        | O::MINIMUM
        | O::RELU
        | O::RELU1
        | O::RELU6
        | O::ABS
        | O::NEG
        | O::FLOOR
        | O::CAST
        | O::CONCATENATION
        | O::SPLIT
        | O::QUANTIZE
        | O::DEQUANTIZE
        | O::PRELU
        | O::ELU
        | O::HARD_SWISH => MEDIUM,
        O::ARGMAX
        | O::ARGMIN
        | O::BATCH_TO_SPACE_ND
        | O::CHANNEL_SHUFFLE
        | O::DEPTH_TO_SPACE
        | O::EMBEDDING_LOOKUP
        | O::EQUAL
        | O::EXPAND_DIMS
        | O::FILL
        | O::GATHER
        | O::GREATER
        | O::GREATER_EQUAL
        | O::HASHTABLE_LOOKUP
        | O::LESS
        | O::LESS_EQUAL
        | O::LOGICAL_AND
        | O::LOGICAL_NOT
        | O::LOGICAL_OR
        | O::MIRROR_PAD
        | O::NOT_EQUAL
        | O::PACK
        | O::PAD
        | O::PAD_V2
        | O::RESHAPE
        | O::REVERSE
        | O::SELECT
        | O::SLICE
        | O::SPACE_TO_BATCH_ND
        | O::SPACE_TO_DEPTH
        | O::SQUEEZE
        | O::STRIDED_SLICE
        | O::TILE
        | O::TOPK_V2
        | O::TRANSPOSE => STRICT,
        _ => RELAXED,
    }
}

/// What every operand of a model's main graph may be off by; `None` for what is not compared.
pub(super) fn limits(model: &Model) -> Vec<Option<Limits>> {
    let main = &model.main;
    let row = match main.operations.as_slice() {
        [only] if !only.operation_type.is_control_flow() => row(only.operation_type),
        _ => SMALL_GRAPH,
    };
    let rounded = reached_by_rounding(main);
    let operands = main.operands.iter().zip(rounded);
    operands
        .map(|(operand, rounded)| match operand.operand_type {
            OperandType::TENSOR_FLOAT32 => Some(row.float32),
            OperandType::TENSOR_FLOAT16 => Some(row.float16),
            ty if ty.is_quantized_per_tensor() => Some(row.quantized),
            OperandType::TENSOR_INT32 if !rounded => Some(INTEGERS),
            OperandType::TENSOR_BOOL8 if !rounded => Some(TRUTH_VALUES),
            _ => None,
        })
        .collect()
}

/// For each operand, whether it depends on a number that was computed with rounding: then the last bit of
/// that number may decide a truth value or an index.
fn reached_by_rounding(graph: &Subgraph) -> Vec<bool> {
    let mut reached = vec![false; graph.operands.len()];
    let is = |reached: &[bool], index: &u32| reached.get(*index as usize).copied().unwrap_or_default();
    for operation in &graph.operations {
        let reads = operation.inputs.iter().any(|input| is(&reached, input));
        // The graphs of control flow may compute anything on the way.
        let of_graphs = operation.operation_type.is_control_flow();
        for &output in &operation.outputs {
            let exact = graph.operands.get(output as usize).is_some_and(|operand| {
                matches!(
                    operand.operand_type,
                    OperandType::TENSOR_INT32 | OperandType::TENSOR_BOOL8
                )
            });
            if let Some(reached) = reached.get_mut(output as usize) {
                *reached = reads || !exact || of_graphs;
            }
        }
    }
    reached
}

impl Limits {
    /// Compares all elements.
    ///
    /// # Errors
    /// What is off: the first element, or the mean of the differences or of their squares.
    pub(super) fn check(&self, actual: &[f64], expected: &[f64], ty: OperandType) -> Result<(), String> {
        if actual.len() != expected.len() {
            return Err(format!("{} elements, expected {}", actual.len(), expected.len()));
        }
        let is_float = matches!(ty, OperandType::TENSOR_FLOAT32 | OperandType::TENSOR_FLOAT16);
        let is_compared = |expected: f64| !is_float || expected.abs() <= LARGEST_COMPARED;
        let (mut count, mut sum, mut squares) = (0_u32, 0.0, 0.0);
        for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            if !is_compared(*expected) {
                continue;
            }
            if !self.element.allows(*actual, *expected) {
                return Err(format!("element {at} is {actual}, expected {expected}"));
            }
            // As a share of large values, which are rounded as such.
            let scale = if is_float { expected.abs().max(1.0) } else { 1.0 };
            let difference = (actual - expected) / scale;
            count += 1;
            sum += difference;
            squares += difference * difference;
        }
        let (bias, mean_square) = (sum / f64::from(count.max(1)), squares / f64::from(count.max(1)));
        // Of integers only each element is held to a limit.
        let has_means = self.bias > 0.0;
        if has_means && bias.abs() > self.bias {
            return Err(format!(
                "the mean difference is {bias:e}, at most {:e}",
                self.bias
            ));
        }
        if has_means && mean_square > self.mean_square {
            return Err(format!(
                "the mean square difference is {mean_square:e}, at most {:e}",
                self.mean_square
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, Operation, OperationType as O, Subgraph, tflite};

    use super::{CONVOLUTION, INTEGERS, MEDIUM, STRICT, TRUTH_VALUES, reached_by_rounding, row};

    #[test]
    fn elements_and_their_means_are_held_to_the_row() {
        let limits = MEDIUM.quantized;
        assert!(
            limits
                .check(&[3.0, 4.0], &[1.0, 4.0], T::TENSOR_QUANT8_ASYMM)
                .is_err()
        );
        assert!(
            limits
                .check(&[2.0, 4.0], &[1.0, 4.0], T::TENSOR_QUANT8_ASYMM)
                .is_ok()
        );
        let error = STRICT
            .quantized
            .check(&[2.0, 4.0], &[1.0, 4.0], T::TENSOR_QUANT8_ASYMM);
        assert!(error.is_err_and(|error| error.contains("mean difference")));
        assert!(
            STRICT
                .float32
                .check(&[f64::NAN], &[1.0], T::TENSOR_FLOAT32)
                .is_err()
        );
        assert!(STRICT.float32.check(&[2e9], &[1e9], T::TENSOR_FLOAT32).is_ok());
        assert!(INTEGERS.check(&[1.0, 1.0], &[0.0, 2.0], T::TENSOR_INT32).is_ok());
        assert!(INTEGERS.check(&[2.0], &[0.0], T::TENSOR_INT32).is_err());
        assert!(TRUTH_VALUES.check(&[1.0], &[0.0], T::TENSOR_BOOL8).is_err());
        assert!(TRUTH_VALUES.check(&[], &[0.0], T::TENSOR_BOOL8).is_err());
    }

    #[test]
    fn operations_have_their_rows() {
        assert_eq!(row(O::CONV_2D).float32, CONVOLUTION.float32);
        assert_eq!(row(O::TOPK_V2).float32, STRICT.float32);
        assert_eq!(row(O::ADD).float32, MEDIUM.float32);
        assert_eq!(row(tflite::ADD).float32, MEDIUM.float32);
        assert_eq!(row(tflite::UNIQUE).float32, STRICT.float32);
    }

    #[test]
    fn what_follows_a_rounded_number_is_not_exact() {
        let operand = |ty| Operand::new(ty, &[1]);
        let operation = |operation_type, inputs: &[u32], output| Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        };
        let graph = Subgraph {
            operands: vec![
                operand(T::TENSOR_FLOAT32),
                operand(T::TENSOR_BOOL8),
                operand(T::TENSOR_FLOAT32),
                operand(T::TENSOR_BOOL8),
            ],
            operations: vec![
                operation(O::EQUAL, &[0, 0], 1),
                operation(O::EXP, &[0], 2),
                operation(O::EQUAL, &[0, 2], 3),
            ],
            ..Subgraph::default()
        };
        assert_eq!(reached_by_rounding(&graph), [false, false, true, true]);
    }
}
