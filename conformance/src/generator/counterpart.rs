//! Operations of NNAPI that do what those of the extension do.

use nnhal_hal::{OperationType, tflite};

/// NNAPI's operation with the same arguments; the operation itself if there is none.
pub(super) fn counterpart(operation: OperationType) -> OperationType {
    match operation {
        tflite::UNIDIRECTIONAL_SEQUENCE_LSTM => OperationType::QUANTIZED_LSTM,
        _ => tflite::narrower(operation).unwrap_or(operation),
    }
}
