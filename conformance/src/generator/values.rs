//! Values of operands: bytes that are legal for their type, from one choice.

use nnhal_hal::{OperandType, tflite};
use nnhal_os::buffer::AlignedBuffer;

use super::choices::{Choices, Random};
use crate::element;

/// Values for `count` elements of `ty`: small numbers, negative ones among them. The first choice gives ones.
pub(super) fn some(choices: &mut Choices, ty: OperandType, count: usize) -> AlignedBuffer {
    encode(ty, numbers(choices, ty, count))
}

/// The same with ones for zeros.
pub(super) fn without_zeros(choices: &mut Choices, ty: OperandType, count: usize) -> AlignedBuffer {
    let other = |value| if value == 0.0 { 1.0 } else { value };
    encode(ty, numbers(choices, ty, count).map(other))
}

/// An eighth of the same: with many large weights, the last bit of a recurrent layer's state would decide
/// what it is some steps later.
pub(super) fn small(choices: &mut Choices, ty: OperandType, count: usize) -> AlignedBuffer {
    encode(ty, numbers(choices, ty, count).map(|value| value / 8.0))
}

/// Values with zeros for about two thirds of them, or for all.
pub(super) fn mostly_zeros(choices: &mut Choices, ty: OperandType, count: usize) -> AlignedBuffer {
    let most = if choices.once_in(4) { 0 } else { 3 };
    let mut random = Random::new(u64::from(choices.below(1 << 16)));
    let kept = numbers(choices, ty, count).map(|value| if random.below(3) + 1 == most { value } else { 0.0 });
    encode(ty, kept)
}

fn numbers(choices: &mut Choices, ty: OperandType, count: usize) -> impl Iterator<Item = f64> + use<> {
    let seed = choices.below(1 << 16);
    let mut random = Random::new(u64::from(seed));
    let mut next = move |least: i32, most: i32| {
        if seed == 0 {
            return 1.0;
        }
        f64::from(least) + f64::from(random.below((most - least + 1) as u32))
    };
    (0..count).map(move |_| match ty {
        OperandType::TENSOR_FLOAT32
        | OperandType::TENSOR_FLOAT16
        | OperandType::FLOAT32
        | OperandType::FLOAT16 => next(-256, 256) / 128.0,
        OperandType::TENSOR_INT32 | OperandType::INT32 | tflite::TENSOR_INT64 => next(-9, 9),
        OperandType::TENSOR_BOOL8 | OperandType::BOOL => next(0, 1),
        OperandType::TENSOR_QUANT8_ASYMM => next(0, 255),
        OperandType::TENSOR_QUANT16_ASYMM => next(0, 65535),
        OperandType::TENSOR_QUANT16_SYMM => next(-32768, 32767),
        _ => next(-128, 127),
    })
}

/// Boxes: the corners at the top left and, further on, at the bottom right.
pub(super) fn boxes(choices: &mut Choices, ty: OperandType, count: usize) -> AlignedBuffer {
    let mut random = Random::new(u64::from(choices.below(1 << 16)));
    let mut corners = [0.0; 4];
    let values = (0..count).map(|at| {
        if at % 4 == 0 {
            let [left, top, width, height] = [(); 4].map(|()| f64::from(random.below(16)));
            corners = [left, top, left + width + 1.0, top + height + 1.0];
        }
        raw(ty, corners[at % 4])
    });
    encode(ty, values)
}

/// A coordinate as an element of `ty`; quantised ones count in eighths.
pub(super) fn raw(ty: OperandType, coordinate: f64) -> f64 {
    if ty == OperandType::TENSOR_QUANT16_ASYMM {
        coordinate * 8.0
    } else {
        coordinate
    }
}

/// These integers as a value of `TENSOR_INT32` or `INT32`.
pub(super) fn integers(values: &[i32]) -> AlignedBuffer {
    encode(
        OperandType::TENSOR_INT32,
        values.iter().map(|value| f64::from(*value)),
    )
}

/// These numbers as a value of `ty`. Values here are small, so that there is memory for them.
pub(super) fn encode(ty: OperandType, values: impl Iterator<Item = f64>) -> AlignedBuffer {
    let mut bytes = Vec::new();
    values.for_each(|value| element::encode(ty, value, &mut bytes));
    AlignedBuffer::copy_of(&bytes).unwrap_or_default()
}
