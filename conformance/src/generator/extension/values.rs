//! Values of tensors of floats that parametrise an operation, and of numbers that count.

use nnhal_hal::{OperandType, tflite};
use nnhal_os::buffer::AlignedBuffer;

use super::shapes::single;
use crate::generator::arguments::Arguments;
use crate::generator::values::encode;

/// Dimensions and values of the tensor with this name; `None` if it is data, or known by its shape.
pub(in super::super) fn value(
    arguments: &mut Arguments<'_>,
    ty: OperandType,
    name: &str,
) -> Option<(Vec<u32>, AlignedBuffer)> {
    let numbers = match (arguments.operation, name) {
        (tflite::RANGE, _) => vec![counted(arguments, name, ty != OperandType::TENSOR_FLOAT32)],
        (tflite::BUCKETIZE, "boundaries") => {
            let count = 1 + arguments.choices.below(4);
            let mut boundary = -2.0;
            let mut next = || {
                boundary += f64::from(arguments.choices.below(4)) / 2.0;
                boundary
            };
            return vector(ty, (0..count).map(|_| next()).collect());
        }
        (tflite::NON_MAX_SUPPRESSION_V4 | tflite::NON_MAX_SUPPRESSION_V5, name) => {
            let values = match name {
                "iouthreshold" => [0.5, 0.0, 0.25, 1.0],
                "scorethreshold" => [0.0, -2.5, 0.5, 3.0],
                "softnmssigma" => [0.5, 0.0, 1.0, 4.0],
                _ => return None,
            };
            vec![*arguments.choices.pick(&values)?]
        }
        _ => return None,
    };
    Some((single(arguments.choices), encode(ty, numbers.into_iter())))
}

fn vector(ty: OperandType, values: Vec<f64>) -> Option<(Vec<u32>, AlignedBuffer)> {
    Some((vec![values.len() as u32], encode(ty, values.into_iter())))
}

/// Start, limit or step of a RANGE, which is met exactly or passed, and may have no element.
fn counted(arguments: &Arguments<'_>, name: &str, is_whole: bool) -> f64 {
    let [start, step, count, rest] = arguments.extents.map(f64::from);
    let start = 2.0 * start - 4.0;
    let step = match (step > 1.0, is_whole) {
        (true, true) => 3.0 - 2.0 * step,
        (true, false) => 0.75 - step,
        (false, _) => 2.0,
    };
    match name {
        "start" => start,
        "limit" => start + step * (count - 1.0) * 2.0 + step.signum() * (rest - 1.0).min(1.0),
        _ => step,
    }
}
