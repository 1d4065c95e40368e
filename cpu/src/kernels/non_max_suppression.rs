//! NON_MAX_SUPPRESSION_V4 and V5: the best boxes that do not overlap too much, filled up with zeros to a
//! fixed number. As in TFLite, a box that was chosen stands for election again. What it has in common with
//! itself drops it, unless its area is 0.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::NON_MAX_SUPPRESSION_V4, version_4),
    (tflite::NON_MAX_SUPPRESSION_V5, version_5),
];

/// What is asked of boxes.
struct Limits {
    overlap: f32,
    score: f32,
    sigma: f32,
}

/// The boxes that may still be chosen, in any order.
struct Candidates<'a> {
    boxes: &'a mut [u32],
    scores: &'a mut [f32],
    /// How many of the chosen each has been compared with.
    compared: &'a mut [u32],
    count: usize,
}

fn version_4(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let limits = limits(context, 0.0)?;
    let chosen = suppress(context, &limits, None)?;
    context.outputs.data::<i32>(1)?.fill(chosen);
    Ok(())
}

fn version_5(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let sigma = number(context, 5, "soft_nms_sigma", f32::INFINITY)?;
    let limits = limits(context, sigma)?;
    let chosen = suppress(context, &limits, Some(1))?;
    context.outputs.data::<i32>(2)?.fill(chosen);
    Ok(())
}

fn limits(context: &KernelContext<'_>, sigma: f32) -> Result<Limits, KernelError> {
    let [score] = context.inputs.data::<f32>(4)? else {
        return Err(OpError::input(4, "(score_threshold) must have one element").into());
    };
    Ok(Limits {
        overlap: number(context, 3, "iou_threshold", 1.0)?,
        score: *score,
        sigma,
    })
}

/// The one element of an input, which must be from 0 to `most`.
fn number(context: &KernelContext<'_>, input: usize, name: &str, most: f32) -> Result<f32, KernelError> {
    match context.inputs.data::<f32>(input)? {
        [value] if (0.0..=most).contains(value) => Ok(*value),
        values => {
            let message = format!("({name}) is {values:?}, must be one number from 0 to {most}");
            Err(OpError::input(input, message).into())
        }
    }
}

/// Chooses boxes, writes them to output 0 and, if there is a `score_output`, their scores to it. Gives their
/// number.
fn suppress(
    context: &mut KernelContext<'_>,
    limits: &Limits,
    score_output: Option<usize>,
) -> Result<i32, KernelError> {
    let boxes: &[[f32; 4]] = bytemuck::cast_slice(context.inputs.data::<f32>(0)?);
    let scores = context.inputs.data::<f32>(1)?;
    let mut pace = context.pace();
    let [places, weights, compared] = context.scratch.carve::<u32, 3>([scores.len(); 3])?;
    let mut candidates = Candidates {
        boxes: places,
        scores: bytemuck::cast_slice_mut(weights),
        compared,
        count: 0,
    };
    for (at, score) in (0..).zip(scores) {
        if *score > limits.score {
            candidates.push(at, *score, 0);
        }
    }
    let chosen = context.outputs.data::<i32>(0)?;
    chosen.fill(0);
    let most = chosen.len().min(candidates.count);
    let mut count = 0;
    while count < most
        && let Some((candidate, score, begin)) = candidates.pop(&mut pace)?
    {
        let chosen = context.outputs.data::<i32>(0)?;
        let earlier = chosen.get(begin as usize..count).unwrap_or_default();
        pace.work(earlier.len())?;
        let Some(rest) = rescored(boxes, candidate, score, earlier, limits) else {
            continue;
        };
        if rest == score {
            chosen[count] = candidate as i32;
            if let Some(output) = score_output {
                context.outputs.data::<f32>(output)?[count] = score;
            }
            count += 1;
        }
        if rest > limits.score {
            candidates.push(candidate, rest, count as u32 - u32::from(rest == score));
        }
    }
    if let Some(output) = score_output {
        context.outputs.data::<f32>(output)?[count..].fill(0.0);
    }
    Ok(count as i32)
}

/// What is left of a score beside the boxes chosen earlier, the latest first; `None` if one overlaps too
/// much.
fn rescored(
    boxes: &[[f32; 4]],
    candidate: u32,
    mut score: f32,
    earlier: &[i32],
    limits: &Limits,
) -> Option<f32> {
    let corners = boxes.get(candidate as usize)?;
    for other in earlier.iter().rev() {
        let overlap = overlap(corners, boxes.get(*other as usize)?);
        if overlap >= limits.overlap {
            return None;
        }
        if limits.sigma > 0.0 {
            score *= (-0.5 / limits.sigma * overlap * overlap).exp();
        }
        if score <= limits.score {
            break;
        }
    }
    Some(score)
}

impl Candidates<'_> {
    fn push(&mut self, candidate: u32, score: f32, compared: u32) {
        self.boxes[self.count] = candidate;
        self.scores[self.count] = score;
        self.compared[self.count] = compared;
        self.count += 1;
    }

    /// Takes out the one with the best score; of equal ones the first box.
    fn pop(&mut self, pace: &mut Pace<'_>) -> Result<Option<(u32, f32, u32)>, KernelError> {
        pace.work(self.count)?;
        let rank = |at: usize| (self.scores[at], std::cmp::Reverse(self.boxes[at]));
        let best = (0..self.count).reduce(|best, at| if rank(at) > rank(best) { at } else { best });
        let Some(best) = best else { return Ok(None) };
        let found = (self.boxes[best], self.scores[best], self.compared[best]);
        self.count -= 1;
        self.boxes.swap(best, self.count);
        self.scores.swap(best, self.count);
        self.compared.swap(best, self.count);
        Ok(Some(found))
    }
}

/// What two boxes have in common, as a share of their union. Their corners may be in any order.
fn overlap(one: &[f32; 4], other: &[f32; 4]) -> f32 {
    let edges = |corners: &[f32; 4], axis: usize| {
        let (from, to) = (corners[axis], corners[axis + 2]);
        if to < from { (to, from) } else { (from, to) }
    };
    let area = |corners: &[f32; 4]| {
        let extent = |axis| edges(corners, axis).1 - edges(corners, axis).0;
        extent(0) * extent(1)
    };
    let areas = (area(one), area(other));
    if areas.0 <= 0.0 || areas.1 <= 0.0 {
        return 0.0;
    }
    let common = |axis| {
        let (one, other) = (edges(one, axis), edges(other, axis));
        (one.1.min(other.1) - one.0.max(other.0)).max(0.0)
    };
    let common = common(0) * common(1);
    common / (areas.0 + areas.1 - common)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::{Computed, OneOperation};

    /// The second overlaps half of the first, the third is elsewhere and has its corners the other way round.
    const BOXES: [f32; 12] = [0.0, 0.0, 2.0, 2.0, 0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 8.0, 8.0];
    const SCORES: [f32; 3] = [0.5, 0.9, 0.7];

    fn detect(boxes: &[f32; 12], most: i32, limits: &[f32]) -> Result<Vec<Computed>, String> {
        let operation = [tflite::NON_MAX_SUPPRESSION_V4, tflite::NON_MAX_SUPPRESSION_V5][limits.len() - 2];
        let one = OneOperation::new(operation)
            .tensor(T::TENSOR_FLOAT32, &[3, 4], boxes)
            .tensor(T::TENSOR_FLOAT32, &[3], &SCORES)
            .tensor(T::TENSOR_INT32, &[1], &[most]);
        let one = limits
            .iter()
            .fold(one, |one, limit| one.tensor(T::TENSOR_FLOAT32, &[1], &[*limit]));
        let one = one.output(T::TENSOR_INT32, &[]);
        let one = if limits.len() == 3 {
            one.output(T::TENSOR_FLOAT32, &[])
        } else {
            one
        };
        one.output(T::TENSOR_INT32, &[]).run()
    }

    #[test]
    fn boxes_that_overlap_too_much_are_dropped_and_zeros_fill_up() {
        let found = |most, limits: &[f32]| {
            let outputs = detect(&BOXES, most, limits).unwrap();
            (outputs[0].data::<i32>(), outputs[1].data::<i32>())
        };
        assert_eq!(found(3, &[0.3, 0.0]), (vec![1, 2, 0], vec![2]));
        assert_eq!(found(3, &[0.4, 0.0]), (vec![1, 2, 0], vec![3]));
        assert_eq!(found(4, &[0.4, 0.6]), (vec![1, 2, 0, 0], vec![2]));
        assert_eq!(found(1, &[0.4, 0.0]), (vec![1], vec![1]));
        assert_eq!(found(0, &[0.4, 0.0]), (vec![], vec![0]));
    }

    #[test]
    fn soft_suppression_lowers_scores() {
        let outputs = detect(&BOXES, 4, &[1.0, 0.0, 0.5]).unwrap();
        assert_eq!(outputs[0].data::<i32>(), [1, 2, 0, 0]);
        assert_eq!(outputs[2].data::<i32>(), [3]);
        let lowered = 0.5 * (-1.0_f32 / 9.0).exp();
        let scores = outputs[1].data::<f32>();
        assert_eq!((scores[0], scores[1], scores[3]), (0.9, 0.7, 0.0));
        assert!((scores[2] - lowered).abs() < 1e-6, "{scores:?}");
    }

    #[test]
    fn boxes_without_area_are_chosen_again() {
        let flat = [0.0_f32; 12];
        let outputs = detect(&flat, 3, &[0.5, 0.0]).unwrap();
        assert_eq!(outputs[0].data::<i32>(), [1, 1, 1]);
    }

    #[test]
    fn limits_outside_their_range_give_an_error() {
        for limit in [-0.1, 1.1, f32::NAN] {
            let error = detect(&BOXES, 3, &[limit, 0.0]).unwrap_err();
            assert!(error.contains("(iou_threshold)"), "{error}");
        }
        assert!(
            detect(&BOXES, 3, &[0.5, 0.0, -1.0])
                .unwrap_err()
                .contains("(soft_nms_sigma)")
        );
        assert!(
            detect(&BOXES, -1, &[0.5, 0.0])
                .unwrap_err()
                .contains("(max_output_size) is -1")
        );
        assert!(detect(&BOXES, i32::MAX, &[0.5, 0.0]).is_err());
        let strange = BOXES.map(|number| number * f32::INFINITY);
        assert!(detect(&strange, 3, &[0.5, f32::NEG_INFINITY]).is_ok());
    }

    #[test]
    fn boxes_and_scores_must_be_as_many() {
        let error = OneOperation::new(tflite::NON_MAX_SUPPRESSION_V4)
            .tensor(T::TENSOR_FLOAT32, &[2, 4], &[0_f32; 8])
            .tensor(T::TENSOR_FLOAT32, &[3], &SCORES)
            .tensor(T::TENSOR_INT32, &[1], &[1])
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.5_f32])
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.5_f32])
            .output(T::TENSOR_INT32, &[])
            .output(T::TENSOR_INT32, &[])
            .run()
            .unwrap_err();
        assert!(error.contains("must have [3, 4]"), "{error}");
    }
}
