//! Operations of NNAPI that do what those of the extension do.

use nnhal_hal::{OperationType, tflite};

/// NNAPI's operation that this one of the extension does for more types or ranks.
pub(crate) fn narrower(operation: OperationType) -> Option<OperationType> {
    let mut standard = OperationType::ALL.iter().copied();
    standard.find(|narrower| tflite::wider(*narrower) == Some(operation))
}

/// NNAPI's operation with the same arguments; the operation itself if there is none.
pub(super) fn counterpart(operation: OperationType) -> OperationType {
    match operation {
        tflite::UNIDIRECTIONAL_SEQUENCE_LSTM => OperationType::QUANTIZED_LSTM,
        _ => narrower(operation).unwrap_or(operation),
    }
}
