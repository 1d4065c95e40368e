//! Boxes as the operations on them see them: reading and writing them as floats, their overlap, and the
//! choice of those that overlap least.

use half::f16;
use nnhal_hal::OperandType;
use nnhal_hal::ops::OpError;

use super::fixed_point::quantize;
use crate::kernel::{KernelError, Pace, Tensor, TensorMut};

/// Numbers that make a box.
pub(super) const BOX_LENGTH: usize = nnhal_hal::ops::boxes::BOX_LENGTH as usize;

/// Reads a tensor as floats.
pub(super) fn widen(tensor: &Tensor<'_>, to: &mut [f32]) -> Result<(), KernelError> {
    let (scale, zero_point) = (tensor.scale(), tensor.zero_point());
    let real = |value: i32| value.wrapping_sub(zero_point) as f32 * scale;
    fn each<T: bytemuck::Pod>(
        tensor: &Tensor<'_>,
        to: &mut [f32],
        convert: impl Fn(T) -> f32,
    ) -> Result<(), KernelError> {
        for (to, from) in to.iter_mut().zip(tensor.data::<T>()?) {
            *to = convert(*from);
        }
        Ok(())
    }
    match tensor.ty() {
        OperandType::TENSOR_FLOAT32 => each(tensor, to, |value: f32| value),
        OperandType::TENSOR_FLOAT16 => each(tensor, to, f16::to_f32),
        OperandType::TENSOR_QUANT8_ASYMM => each(tensor, to, |value: u8| real(i32::from(value))),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => each(tensor, to, |value: i8| real(i32::from(value))),
        OperandType::TENSOR_QUANT16_ASYMM => each(tensor, to, |value: u16| real(i32::from(value))),
        OperandType::TENSOR_QUANT16_SYMM => each(tensor, to, |value: i16| real(i32::from(value))),
        ty => Err(OpError::operation(format!("{ty} cannot be read as numbers")).into()),
    }
}

/// Writes floats to the elements of a tensor from `start` on.
pub(super) fn narrow(
    tensor: &mut TensorMut<'_>,
    start: usize,
    values: impl Iterator<Item = f32>,
) -> Result<(), KernelError> {
    let (scale, zero_point) = (tensor.scale(), tensor.zero_point());
    // Rounded before the zero point is added: ties go the same way whatever it is, so that signed tensors
    // hold exactly 128 less than unsigned ones.
    let steps = |value: f32| quantize(value, scale, zero_point);
    fn each<T: bytemuck::Pod>(
        tensor: &mut TensorMut<'_>,
        start: usize,
        values: impl Iterator<Item = f32>,
        convert: impl Fn(f32) -> T,
    ) -> Result<(), KernelError> {
        for (to, from) in tensor.data_mut::<T>()?.iter_mut().skip(start).zip(values) {
            *to = convert(from);
        }
        Ok(())
    }
    match tensor.ty() {
        OperandType::TENSOR_FLOAT32 => each(tensor, start, values, |value| value),
        OperandType::TENSOR_FLOAT16 => each(tensor, start, values, f16::from_f32),
        OperandType::TENSOR_QUANT8_ASYMM => {
            each(tensor, start, values, |value| steps(value).clamp(0, 255) as u8)
        }
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
            each(tensor, start, values, |value| steps(value).clamp(-128, 127) as i8)
        }
        OperandType::TENSOR_QUANT16_ASYMM => {
            each(tensor, start, values, |value| steps(value).clamp(0, 65535) as u16)
        }
        ty => Err(OpError::operation(format!("{ty} cannot be written from numbers")).into()),
    }
}

/// All of input `index` must be numbers; not infinite ones.
pub(super) fn check_finite(values: &[f32], index: usize, name: &str) -> Result<(), KernelError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => {
            let message = format!("({name}) has {} as element {at}, must be finite", values[at]);
            Err(OpError::input(index, message).into())
        }
        None => Ok(()),
    }
}

/// The image that box `at` belongs to, which must exist.
pub(super) fn image_of(
    batch_split: &[i32],
    at: usize,
    index: usize,
    images: usize,
) -> Result<usize, KernelError> {
    let image = batch_split.get(at).copied().unwrap_or(-1);
    usize::try_from(image)
        .ok()
        .filter(|image| *image < images)
        .ok_or_else(|| {
            let message =
                format!("(batchSplit) gives image {image} for box {at}, must be from 0 and below {images}");
            OpError::input(index, message).into()
        })
}

/// Two opposite corners. Whether the first axis is x or y makes no difference to what is asked here.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Corners {
    pub(super) low: [f32; 2],
    pub(super) high: [f32; 2],
}

impl Corners {
    /// The box of these four numbers.
    pub(super) fn new([left, top, right, bottom]: [f32; 4]) -> Corners {
        Corners {
            low: [left, top],
            high: [right, bottom],
        }
    }

    pub(super) fn numbers(&self) -> [f32; 4] {
        [self.low[0], self.low[1], self.high[0], self.high[1]]
    }

    /// Extents along both axes.
    pub(super) fn size(&self) -> [f32; 2] {
        [self.high[0] - self.low[0], self.high[1] - self.low[1]]
    }

    pub(super) fn centre(&self) -> [f32; 2] {
        [0, 1].map(|axis| (self.low[axis] + self.high[axis]) / 2.0)
    }

    /// The box with its corners in order, or what is wrong with box `at` of input `index`.
    pub(super) fn ordered(self, at: usize, index: usize) -> Result<Corners, KernelError> {
        if self.numbers().iter().all(|number| number.is_finite())
            && self.low[0] <= self.high[0]
            && self.low[1] <= self.high[1]
        {
            return Ok(self);
        }
        let message = format!(
            "has {:?} as box {at}, must be finite and its second corner not before its first",
            self.numbers()
        );
        Err(OpError::input(index, message).into())
    }

    /// The box moved by `delta[0..2]` of its size and resized by the exponentials of `delta[2..4]`, clamped
    /// to an image of this size.
    pub(super) fn transformed(&self, delta: [f32; 4], image: [f32; 2]) -> Corners {
        let (size, centre) = (self.size(), self.centre());
        let [low, high] = [-0.5, 0.5].map(|half| {
            [0, 1].map(|axis| {
                let centre = centre[axis] + delta[axis] * size[axis];
                let edge = centre + half * size[axis] * delta[axis + 2].exp();
                edge.max(0.0).min(image[axis])
            })
        });
        Corners { low, high }
    }

    /// What two boxes have in common, as a share of their union; 0 where the union is empty.
    pub(super) fn overlap(&self, other: &Corners) -> f32 {
        let area = |size: [f32; 2]| size[0] * size[1];
        let common = [0, 1].map(|axis| {
            (self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis])).max(0.0)
        });
        let common = area(common);
        let union = area(self.size()) + area(other.size()) - common;
        if union > 0.0 { common / union } else { 0.0 }
    }
}

/// Selects candidates, best score first, until there are `most` or none is left. After each choice `rescore`
/// says what becomes of the score of every candidate left, given its place, its score and the place chosen: a
/// new score, or `None` to drop it. The chosen stand at the front of `candidates` afterwards; gives their
/// number.
///
/// Of equal scores the one that stands first is chosen. Dropped candidates change places with the last one
/// left.
///
/// # Errors
/// The execution was interrupted: the cost is the number of candidates times that of the chosen.
pub(super) fn select(
    candidates: &mut [u32],
    scores: &mut [f32],
    most: usize,
    pace: &mut Pace<'_>,
    mut rescore: impl FnMut(u32, f32, u32) -> Option<f32>,
) -> Result<usize, KernelError> {
    let (mut chosen, mut left) = (0, candidates.len());
    while chosen < left && chosen < most {
        pace.work(left - chosen)?;
        let mut best = chosen;
        for at in chosen + 1..left {
            if scores[candidates[at] as usize] > scores[candidates[best] as usize] {
                best = at;
            }
        }
        candidates.swap(chosen, best);
        let winner = candidates[chosen];
        chosen += 1;
        let mut at = chosen;
        while at < left {
            let candidate = candidates[at];
            match rescore(candidate, scores[candidate as usize], winner) {
                Some(score) => {
                    scores[candidate as usize] = score;
                    at += 1;
                }
                None => {
                    left -= 1;
                    candidates.swap(at, left);
                }
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, Shape};

    use super::{Corners, narrow, select};
    use crate::interrupt::{Interrupt, Interrupted, NeverInterrupted};
    use crate::kernel::{KernelError, Pace, TensorMut};

    struct Cancelled;

    impl Interrupt for Cancelled {
        fn check(&self) -> Result<(), Interrupted> {
            Err(Interrupted::Cancelled)
        }
    }

    fn corners(numbers: [f32; 4]) -> Corners {
        Corners::new(numbers)
    }

    #[test]
    fn ties_are_rounded_alike_whatever_the_zero_point() {
        let narrowed = |ty, zero_point| {
            let mut operand = Operand::new(ty, &[3]);
            (operand.scale, operand.zero_point) = (0.5, zero_point);
            let mut bytes = [0_u8; 3];
            let mut tensor = TensorMut {
                operand: &operand,
                shape: Shape::new(&[3]).unwrap(),
                bytes: &mut bytes,
            };
            narrow(&mut tensor, 0, [-2.75, 2.75, f32::NAN].into_iter()).unwrap();
            bytes
        };
        assert_eq!(narrowed(OperandType::TENSOR_QUANT8_ASYMM, 128), [122, 134, 128]);
        let signed = narrowed(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, 0).map(|byte| byte as i8);
        assert_eq!(signed, [-6, 6, 0]);
    }

    #[test]
    fn overlap_is_the_share_of_the_union() {
        let one = corners([0.0, 0.0, 2.0, 2.0]);
        assert_eq!(one.overlap(&one), 1.0);
        assert_eq!(one.overlap(&corners([1.0, 0.0, 3.0, 2.0])), 1.0 / 3.0);
        assert_eq!(one.overlap(&corners([2.0, 2.0, 3.0, 3.0])), 0.0);
        let empty = corners([1.0, 1.0, 1.0, 1.0]);
        assert_eq!(empty.overlap(&empty), 0.0);
    }

    #[test]
    fn transforming_moves_resizes_and_clips() {
        let image = [10.0, 8.0];
        let moved = corners([2.0, 2.0, 4.0, 4.0]).transformed([0.5, -0.5, 0.0, 0.0], image);
        assert_eq!(moved.numbers(), [3.0, 1.0, 5.0, 3.0]);
        let large = corners([2.0, 2.0, 4.0, 4.0]).transformed([0.0, 0.0, 5.0, f32::INFINITY], image);
        assert_eq!(large.numbers(), [0.0, 0.0, 10.0, 8.0]);
    }

    #[test]
    fn the_best_are_selected_and_what_they_suppress_is_dropped() {
        let mut candidates = [0, 1, 2, 3];
        let mut scores = [0.5, 0.9, 0.8, 0.7];
        // Neighbours suppress one another.
        let drop = |candidate: u32, score, winner: u32| (candidate.abs_diff(winner) > 1).then_some(score);
        let mut pace = Pace::new(&NeverInterrupted);
        let mut count = |candidates: &mut [u32], scores: &mut [f32], most| {
            select(candidates, scores, most, &mut pace, drop).unwrap()
        };
        assert_eq!(count(&mut candidates, &mut scores, usize::MAX), 2);
        assert_eq!(candidates[..2], [1, 3]);
        let mut candidates = [0, 1, 2, 3];
        assert_eq!(count(&mut candidates, &mut scores, 1), 1);
        assert_eq!(count(&mut [], &mut [], 1), 0);
    }

    #[test]
    fn selection_among_many_asks_whether_to_go_on() {
        let mut candidates: Vec<u32> = (0..60_000).collect();
        let mut scores: Vec<f32> = candidates.iter().map(|at| *at as f32).collect();
        let keep = |_, score, _| Some(score);
        let mut pace = Pace::new(&Cancelled);
        let selected = select(&mut candidates, &mut scores, usize::MAX, &mut pace, keep);
        assert!(matches!(
            selected,
            Err(KernelError::Interrupted(Interrupted::Cancelled))
        ));
    }
}
