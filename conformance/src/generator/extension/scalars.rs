//! Values of scalars.

use nnhal_hal::{OperandType, OperationType as O, tflite};

use super::extents::{sequence_and_batch, shared_axes};
use crate::generator::arguments::Arguments;
use crate::generator::shapes;

/// The value of the `INT32` scalar with this name; `None` if it is one that NNAPI's operations have, too.
pub(in super::super) fn scalar(arguments: &mut Arguments<'_>, name: &str, before: &[u32]) -> Option<i32> {
    if !arguments.is_of_extension {
        return None;
    }
    let rank = arguments.dims(0, before).unwrap_or_default().len();
    Some(match (arguments.operation, name) {
        (tflite::ONE_HOT, "axis") => arguments.choices.below(rank as u32 + 2) as i32 - 1,
        (tflite::REVERSE_SEQUENCE, "sequenceaxis" | "batchaxis") if rank > 0 => {
            let [sequence, batch] = sequence_and_batch(arguments, rank);
            let axis = if name == "batchaxis" { batch } else { sequence };
            from_either_end(arguments, axis, rank)
        }
        (O::GATHER, "batchdims") => {
            let axis = shapes::axis(arguments, before)?;
            let indices = arguments.dims(2, before)?.len();
            let shared = shared_axes(arguments, axis);
            from_either_end(arguments, shared, indices)
        }
        (O::STRIDED_SLICE, "beginmask" | "endmask") => arguments.choices.below(1 << rank) as i32,
        (O::STRIDED_SLICE, "shrinkaxismask") => {
            let axis = arguments.choices.below(rank as u32 + 1);
            // The first choice drops no axis.
            (1 << axis) >> 1
        }
        (tflite::RNG_BIT_GENERATOR, "algorithm") => arguments.choices.below(3) as i32,
        (tflite::FAKE_QUANT, "bits") => 2 + arguments.choices.below(15) as i32,
        (tflite::GATHER_REGIONS | tflite::SCATTER_REGIONS, "indexaxis") => {
            // Corners lie along the last one.
            arguments.dims(1, before)?.len() as i32 - 1
        }
        (tflite::SCATTER_REGIONS, "combination") => arguments.choices.below(5) as i32,
        (tflite::REDUCE_WINDOW, "combination") => {
            let input = arguments.graph.operands.get(*before.first()? as usize)?;
            match input.operand.operand_type {
                OperandType::TENSOR_BOOL8 => 5 + arguments.choices.below(2) as i32,
                _ => 1 + arguments.choices.below(4) as i32,
            }
        }
        // ReLU is the only one.
        (O::SVDF, "activation") => 1,
        _ => return None,
    })
}

/// A number below `count`, or as many less.
fn from_either_end(arguments: &mut Arguments<'_>, number: usize, count: usize) -> i32 {
    let number = number as i32;
    if arguments.choices.once_in(2) {
        number - count as i32
    } else {
        number
    }
}
