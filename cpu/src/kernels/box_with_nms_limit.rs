//! BOX_WITH_NMS_LIMIT: the best boxes of each class that do not overlap too much.
//!
//! Detections are written image by image, by rising class, then by falling score, as the NN HAL reference
//! does; the HAL leaves the order open. Class 0 is the background and never detected.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::box_with_nms_limit::{Limits, Suppression, limits};
use nnhal_hal::ops::shapes::shape_of;
use nnhal_hal::{OperationType, Shape};

use super::boxes::{BOX_LENGTH, Corners, check_finite, narrow, select, widen};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::BOX_WITH_NMS_LIMIT, box_with_nms_limit)];

fn box_with_nms_limit(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let limits = limits(context.inputs.rules())?;
    let cells = limits.boxes as usize * limits.classes as usize;
    let batch_split = context.inputs.data::<i32>(2)?;
    if let Some(at) = batch_split.iter().position(|image| *image < 0) {
        let message = format!("(batchSplit) gives image {} for box {at}", batch_split[at]);
        return Err(OpError::input(2, message).into());
    }
    let mut pace = context.pace();
    let [scores, boxes, selected] = context
        .scratch
        .carve::<u32, 3>([cells, cells * BOX_LENGTH, cells])?;
    let scores: &mut [f32] = bytemuck::cast_slice_mut(scores);
    let boxes: &mut [f32] = bytemuck::cast_slice_mut(boxes);
    widen(&context.inputs.tensor(0)?, scores)?;
    widen(&context.inputs.tensor(1)?, boxes)?;
    check_finite(boxes, 1, "rois")?;
    let boxes: &[Corners] = bytemuck::cast_slice(boxes);
    let mut count = 0;
    let mut first = 0;
    for image in batch_split.chunk_by(|left, right| left == right) {
        let rows = first..first + image.len();
        first = rows.end;
        count += detect(&limits, rows, (scores, boxes), &mut selected[count..], &mut pace)?;
    }
    let selected = &selected[..count];
    let rows = u32::try_from(count).unwrap_or(u32::MAX);
    context.outputs.resize(0, shape_of(&[rows])?)?;
    context.outputs.resize(1, shape_of(&[rows, BOX_LENGTH as u32])?)?;
    context
        .outputs
        .resize(2, Shape::new(&[rows]).unwrap_or_default())?;
    context
        .outputs
        .resize(3, Shape::new(&[rows]).unwrap_or_default())?;
    let cells = || selected.iter().map(|cell| *cell as usize);
    let [mut to_scores, mut to_boxes] = context.outputs.tensors([0, 1])?;
    narrow(&mut to_scores, 0, cells().map(|cell| scores[cell]))?;
    narrow(&mut to_boxes, 0, cells().flat_map(|cell| boxes[cell].numbers()))?;
    let classes = limits.classes as usize;
    for (to, cell) in context.outputs.data::<i32>(2)?.iter_mut().zip(cells()) {
        *to = (cell % classes) as i32;
    }
    for (to, cell) in context.outputs.data::<i32>(3)?.iter_mut().zip(cells()) {
        *to = batch_split[cell / classes];
    }
    Ok(())
}

/// Detects in one image, whose boxes are these rows: writes the cells of the table of scores that are
/// detections to the front of `selected`, and gives their number. `selected` has room for all cells of the
/// rows.
fn detect(
    limits: &Limits,
    rows: std::ops::Range<usize>,
    (scores, boxes): (&mut [f32], &[Corners]),
    selected: &mut [u32],
    pace: &mut Pace<'_>,
) -> Result<usize, KernelError> {
    let classes = limits.classes as usize;
    let most = limits.detections.map_or(usize::MAX, |most| most as usize);
    let mut count = 0;
    for class in 1..classes {
        let mut candidates = 0;
        for cell in rows.clone().map(|row| row * classes + class) {
            if scores[cell] > limits.score_threshold {
                selected[count + candidates] = cell as u32;
                candidates += 1;
            }
        }
        let candidates = &mut selected[count..count + candidates];
        count += select(candidates, scores, most, pace, |candidate, score, winner| {
            let overlap = boxes[candidate as usize].overlap(&boxes[winner as usize]);
            let score = score * factor(limits.suppression, overlap);
            (score >= limits.suppressed_threshold).then_some(score)
        })?;
    }
    let selected = &mut selected[..count];
    let by_score = |left: &u32, right: &u32| scores[*right as usize].total_cmp(&scores[*left as usize]);
    selected.sort_unstable_by(|left, right| by_score(left, right).then(left.cmp(right)));
    let count = count.min(most);
    selected[..count].sort_unstable_by(|left, right| {
        let class = |cell: &u32| *cell as usize % classes;
        class(left)
            .cmp(&class(right))
            .then_with(|| by_score(left, right))
            .then(left.cmp(right))
    });
    Ok(count)
}

/// What the score of a box is multiplied by that overlaps this much with one that is selected.
fn factor(suppression: Suppression, overlap: f32) -> f32 {
    match suppression {
        Suppression::Hard { threshold } | Suppression::Linear { threshold } if overlap < threshold => 1.0,
        Suppression::Hard { .. } => 0.0,
        Suppression::Linear { .. } => 1.0 - overlap,
        Suppression::Gaussian { sigma } => (-overlap * overlap / sigma).exp(),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation, ends_by_the_deadline};

    const BOXES: [f32; 24] = [
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 4.0, // background, class 1
        0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 4.0, 4.0, //
        0.0, 0.0, 0.0, 0.0, 8.0, 8.0, 9.0, 9.0,
    ];

    fn detect(
        scores: [f32; 6],
        boxes: [f32; 24],
        batch_split: [i32; 3],
        (most, kernel): (i32, i32),
        [threshold, sigma]: [f32; 2],
    ) -> Result<Vec<Computed>, String> {
        OneOperation::new(OperationType::BOX_WITH_NMS_LIMIT)
            .tensor(T::TENSOR_FLOAT32, &[3, 2], &scores)
            .tensor(T::TENSOR_FLOAT32, &[3, 8], &boxes)
            .tensor(T::TENSOR_INT32, &[3], &batch_split)
            .f32(0.1)
            .i32(most)
            .i32(kernel)
            .f32(threshold)
            .f32(sigma)
            .f32(0.2)
            .output(T::TENSOR_FLOAT32, &[0])
            .output(T::TENSOR_FLOAT32, &[0, 4])
            .output(T::TENSOR_INT32, &[0])
            .output(T::TENSOR_INT32, &[0])
            .run()
    }

    const SCORES: [f32; 6] = [1.0, 0.5, 1.0, 0.9, 1.0, 0.7];

    #[test]
    fn overlapping_boxes_of_one_image_are_suppressed() {
        let outputs = detect(SCORES, BOXES, [0; 3], (-1, 0), [0.5, 1.0]).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [0.9, 0.7]);
        assert_eq!(outputs[1].data::<f32>(), [0.0, 1.0, 4.0, 4.0, 8.0, 8.0, 9.0, 9.0]);
        assert_eq!(outputs[2].data::<i32>(), [1, 1]);
        let apart = detect(SCORES, BOXES, [0, 1, 1], (-1, 0), [0.5, 1.0]).unwrap();
        assert_eq!(apart[0].data::<f32>(), [0.5, 0.9, 0.7]);
        assert_eq!(apart[3].data::<i32>(), [0, 1, 1]);
    }

    #[test]
    fn limits_hold_for_each_image() {
        let outputs = detect(SCORES, BOXES, [0; 3], (1, 2), [0.5, 1.0]).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [0.9]);
        let none = detect(SCORES, BOXES, [0; 3], (0, 0), [0.5, 1.0]).unwrap();
        assert_eq!(none[1].dims, [0, 4]);
    }

    #[test]
    fn a_score_that_is_no_number_is_no_detection() {
        let mut scores = SCORES;
        scores[3] = f32::NAN;
        scores[5] = f32::INFINITY;
        let outputs = detect(scores, BOXES, [0; 3], (-1, 2), [0.5, 1.0]).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [f32::INFINITY, 0.5]);
    }

    #[test]
    fn hostile_values_give_an_error() {
        let mut boxes = BOXES;
        boxes[4] = f32::INFINITY;
        assert!(detect(SCORES, boxes, [0; 3], (-1, 0), [0.5, 1.0]).is_err());
        assert!(detect(SCORES, BOXES, [0, -1, 0], (-1, 0), [0.5, 1.0]).is_err());
        for kernel in [-1, 3, i32::MAX] {
            assert!(detect(SCORES, BOXES, [0; 3], (-1, kernel), [0.5, 1.0]).is_err());
        }
        assert!(detect(SCORES, BOXES, [0; 3], (-1, 0), [f32::NAN, 1.0]).is_err());
        assert!(detect(SCORES, BOXES, [0; 3], (-1, 2), [0.5, 0.0]).is_err());
    }

    #[test]
    fn selection_among_many_boxes_ends_by_the_deadline() {
        let count = 60_000_u32;
        let boxes: Vec<f32> = (0..count)
            .map(|at| [at as f32 * 2.0, 0.0, at as f32 * 2.0 + 1.0, 1.0])
            .flat_map(|one| [one, one].concat())
            .collect();
        let operation = OneOperation::new(OperationType::BOX_WITH_NMS_LIMIT)
            .tensor(T::TENSOR_FLOAT32, &[count, 2], &vec![0.5_f32; count as usize * 2])
            .tensor(T::TENSOR_FLOAT32, &[count, 8], &boxes)
            .tensor(T::TENSOR_INT32, &[count], &vec![0_i32; count as usize]);
        let operation = operation.f32(0.1).i32(-1).i32(0).f32(0.5).f32(1.0).f32(0.2);
        let operation = operation
            .output(T::TENSOR_FLOAT32, &[0])
            .output(T::TENSOR_FLOAT32, &[0, 4])
            .output(T::TENSOR_INT32, &[0])
            .output(T::TENSOR_INT32, &[0]);
        ends_by_the_deadline(operation);
    }
}
