//! What the extension's operations take that NNAPI's do not: by their parameters' names, as for NNAPI's.
//!
//! An operation of the extension that does what NNAPI's does has that one's arguments, too. Nothing here
//! knows the others.

mod integers;
mod scalars;
mod shapes;
mod values;

pub(super) use integers::integers;
pub(super) use scalars::scalar;
pub(super) use shapes::{of, spelled_out};
pub(super) use values::value;

use nnhal_hal::{OperationType, tflite};

use super::arguments::Arguments;

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

/// How many places SCATTER_ND and SPARSE_TO_DENSE write to, and how many indices name each.
struct Places {
    count: u32,
    depth: u32,
}

impl Places {
    fn of(arguments: &Arguments<'_>) -> Places {
        let [count, depth, ..] = arguments.extents;
        let rank = arguments.spelled_out.len() as u32;
        Places {
            count,
            depth: if arguments.operation == tflite::SCATTER_ND {
                depth.min(rank)
            } else {
                rank
            },
        }
    }
}

/// The axes of sequences and of batches in REVERSE_SEQUENCE. The lengths, which come before them, need them.
fn sequence_and_batch(arguments: &Arguments<'_>, rank: usize) -> [usize; 2] {
    let [sequence, batch, ..] = arguments.extents.map(|extent| extent as usize);
    [sequence % rank, batch % rank]
}

/// How many first axes input and indices of GATHER share. The indices, which come before it, need it, too.
fn shared_axes(arguments: &Arguments<'_>, axis: usize) -> usize {
    let has_flag = arguments.names.iter().any(|name| name == "batchdims");
    let wanted = if has_flag {
        arguments.extents[1] as usize - 1
    } else {
        0
    };
    wanted.min(axis)
}

/// How many segments there are. The segments that rows are in, which come before it, need it.
fn segments(arguments: &Arguments<'_>) -> u32 {
    arguments.extents[0] + arguments.extents[1] - 2
}

#[cfg(test)]
mod tests;
