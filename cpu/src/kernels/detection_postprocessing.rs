//! DETECTION_POSTPROCESSING: the detections of an SSD model, from the scores and box encodings of its
//! anchors.
//!
//! Rows beyond the detections found are 0. Boxes are written as top, left, bottom, right.

use nnhal_hal::OperationType;
use nnhal_hal::ops::detection_postprocessing::{Choice, DetectionRules, rules};

use super::boxes::{BOX_LENGTH, Corners, check_finite, narrow, select, widen};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace, TensorMut};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::DETECTION_POSTPROCESSING, detect)];

/// What the detections are chosen from: one image.
struct Image<'a> {
    rules: &'a DetectionRules,
    boxes: &'a [Corners],
    scores: &'a [f32],
}

/// A detection: a box and one of its classes.
#[derive(Clone, Copy)]
struct Detection {
    anchor: usize,
    class: usize,
}

fn detect(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = rules(context.inputs.rules())?;
    let (batches, anchors, classes) = (
        rules.batches as usize,
        rules.anchors as usize,
        rules.classes as usize,
    );
    let encoding = rules.encoding as usize;
    let mut pace = context.pace();
    let [mut to_scores, mut to_boxes, mut to_classes, mut to_counts] =
        context.outputs.tensors([0, 1, 2, 3])?;
    for output in [&mut to_scores, &mut to_boxes, &mut to_classes, &mut to_counts] {
        output.bytes.fill(0);
    }
    // Without scores there is nothing to detect, however large some extents are.
    if context.inputs.tensor(0)?.bytes.is_empty() {
        return Ok(());
    }
    let cells = anchors * classes;
    let [scores, deltas, priors, boxes, working, selected] = context.scratch.carve::<u32, 6>([
        batches * cells,
        batches * anchors * encoding,
        anchors * BOX_LENGTH,
        anchors * BOX_LENGTH,
        cells,
        cells,
    ])?;
    let [scores, deltas, priors, boxes, working]: [&mut [f32]; 5] =
        [scores, deltas, priors, boxes, working].map(bytemuck::cast_slice_mut);
    widen(&context.inputs.tensor(0)?, scores)?;
    widen(&context.inputs.tensor(1)?, deltas)?;
    widen(&context.inputs.tensor(2)?, priors)?;
    check_finite(priors, 2, "anchors")?;
    let boxes: &mut [Corners] = bytemuck::cast_slice_mut(boxes);
    for batch in 0..batches {
        decode(&rules, &deltas[batch * anchors * encoding..], priors, boxes);
        let image = Image {
            rules: &rules,
            boxes,
            scores: &scores[batch * cells..][..cells],
        };
        let mut rows = Rows {
            next: batch * rules.rows as usize,
            end: (batch + 1) * rules.rows as usize,
            labels_from: usize::from(!rules.background),
            outputs: [&mut to_scores, &mut to_boxes, &mut to_classes],
        };
        match rules.choice {
            Choice::PerClass { detections } => {
                let count = image.per_class(detections, working, selected, &mut pace)?;
                image.write_best(&selected[..count], &mut rows)?;
            }
            Choice::PerBox { classes } => {
                let count = image.per_box(working, selected, &mut pace)?;
                image.write_each(classes, count, selected, &mut rows)?;
            }
        }
        let count = rows.next - batch * rules.rows as usize;
        if let Some(slot) = to_counts.data_mut::<i32>()?.get_mut(batch) {
            *slot = i32::try_from(count).unwrap_or(i32::MAX);
        }
    }
    Ok(())
}

/// Computes the boxes that the encodings make of the anchors; both as centre y, centre x, height, width.
fn decode(rules: &DetectionRules, deltas: &[f32], priors: &[f32], boxes: &mut [Corners]) {
    let (priors, _) = priors.as_chunks::<BOX_LENGTH>();
    let encodings = deltas.chunks_exact(rules.encoding as usize);
    for ((corners, prior), delta) in boxes.iter_mut().zip(priors).zip(encodings) {
        let [low, high] = [-0.5, 0.5].map(|half| {
            [0, 1].map(|axis| {
                let centre = prior[axis] + delta[axis] / rules.scales[axis] * prior[axis + 2];
                centre + half * (delta[axis + 2] / rules.scales[axis + 2]).exp() * prior[axis + 2]
            })
        });
        *corners = Corners { low, high };
    }
}

impl Image<'_> {
    fn overlap(&self, one: usize, other: usize) -> f32 {
        self.boxes[one].overlap(&self.boxes[other])
    }

    /// Puts, for each class, the cells of the boxes that overlap least to the front of `selected`, and then
    /// all of them in order of their scores; gives their number.
    fn per_class(
        &self,
        most: u32,
        working: &mut [f32],
        selected: &mut [u32],
        pace: &mut Pace<'_>,
    ) -> Result<usize, KernelError> {
        let (rules, classes) = (self.rules, self.rules.classes as usize);
        working.copy_from_slice(self.scores);
        let mut count = 0;
        for class in 1..classes {
            let mut candidates = 0;
            for cell in (class..self.scores.len()).step_by(classes) {
                if self.scores[cell] > rules.score_threshold {
                    selected[count + candidates] = cell as u32;
                    candidates += 1;
                }
            }
            let candidates = &mut selected[count..count + candidates];
            count += select(
                candidates,
                working,
                most as usize,
                pace,
                |candidate, score, winner| {
                    let overlap = self.overlap(candidate as usize / classes, winner as usize / classes);
                    (overlap < rules.overlap).then_some(score)
                },
            )?;
        }
        selected[..count].sort_unstable_by(|left, right| {
            let score = |cell: &u32| self.scores[*cell as usize];
            score(right).total_cmp(&score(left)).then(left.cmp(right))
        });
        Ok(count)
    }

    /// Writes the detections of these cells, no more than wanted.
    fn write_best(&self, selected: &[u32], rows: &mut Rows<'_, '_>) -> Result<(), KernelError> {
        let classes = self.rules.classes as usize;
        for cell in selected.iter().take(self.rules.boxes as usize) {
            let detection = Detection {
                anchor: *cell as usize / classes,
                class: *cell as usize % classes,
            };
            rows.write(self, detection)?;
        }
        Ok(())
    }

    /// Puts the boxes that overlap least by their best score to the front of `selected`; gives their number.
    fn per_box(
        &self,
        working: &mut [f32],
        selected: &mut [u32],
        pace: &mut Pace<'_>,
    ) -> Result<usize, KernelError> {
        let (rules, classes) = (self.rules, self.rules.classes as usize);
        let candidates = &mut selected[..self.boxes.len()];
        let mut count = 0;
        for (anchor, scores) in self.scores.chunks_exact(classes).enumerate() {
            working[anchor] = scores[1..].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if working[anchor] > rules.score_threshold {
                candidates[count] = anchor as u32;
                count += 1;
            }
        }
        select(
            &mut candidates[..count],
            working,
            rules.boxes as usize,
            pace,
            |candidate, score, winner| {
                let overlap = self.overlap(candidate as usize, winner as usize);
                (overlap < rules.overlap).then_some(score)
            },
        )
    }

    /// Writes the first `count` boxes of `selected`, each with its best classes.
    fn write_each(
        &self,
        most: u32,
        count: usize,
        selected: &mut [u32],
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), KernelError> {
        let classes = self.rules.classes as usize;
        let (candidates, order) = selected.split_at_mut(self.boxes.len());
        let order = &mut order[..classes - 1];
        for anchor in &candidates[..count] {
            let anchor = *anchor as usize;
            let scores = &self.scores[anchor * classes..][..classes];
            for (slot, class) in order.iter_mut().zip(1..) {
                *slot = class;
            }
            order.sort_unstable_by(|left, right| {
                // What is no number comes last.
                let score = |class: &u32| scores[*class as usize].max(f32::NEG_INFINITY);
                score(right).total_cmp(&score(left)).then(left.cmp(right))
            });
            for class in order.iter().take(most as usize) {
                let class = *class as usize;
                rows.write(self, Detection { anchor, class })?;
            }
        }
        Ok(())
    }
}

/// The rows of the outputs that belong to one image, filled one by one.
struct Rows<'a, 'b> {
    next: usize,
    end: usize,
    labels_from: usize,
    outputs: [&'a mut TensorMut<'b>; 3],
}

impl Rows<'_, '_> {
    fn write(&mut self, image: &Image<'_>, detection: Detection) -> Result<(), KernelError> {
        if self.next == self.end {
            return Ok(());
        }
        let Detection { anchor, class } = detection;
        let score = image.scores[anchor * image.rules.classes as usize + class];
        let [scores, boxes, classes] = &mut self.outputs;
        narrow(scores, self.next, std::iter::once(score))?;
        narrow(
            boxes,
            self.next * BOX_LENGTH,
            image.boxes[anchor].numbers().into_iter(),
        )?;
        if let Some(slot) = classes.data_mut::<i32>()?.get_mut(self.next) {
            *slot = (class - self.labels_from) as i32;
        }
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    struct Call {
        scores: [f32; 6],
        delta: f32,
        scale: f32,
        regular: bool,
        limits: [i32; 3],
        thresholds: [f32; 2],
        background: bool,
    }

    const CALL: Call = Call {
        scores: [0.9, 0.4, 0.5, 0.1, 0.8, 0.6],
        delta: 0.0,
        scale: 1.0,
        regular: true,
        limits: [3, 1, 2],
        thresholds: [0.0, 0.5],
        background: false,
    };

    /// Two anchors side by side, three classes.
    fn detect(call: &Call) -> Result<Vec<Computed>, String> {
        let mut one = OneOperation::new(OperationType::DETECTION_POSTPROCESSING)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 3], &call.scores)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 4], &[call.delta; 8])
            .tensor(
                T::TENSOR_FLOAT32,
                &[2, 4],
                &[0.5_f32, 0.5, 1.0, 1.0, 0.5, 2.5, 1.0, 1.0],
            );
        for _ in 0..4 {
            one = one.f32(call.scale);
        }
        one = one.tensor(T::BOOL, &[], &[u8::from(call.regular)]);
        for limit in call.limits {
            one = one.i32(limit);
        }
        for threshold in call.thresholds {
            one = one.f32(threshold);
        }
        one.tensor(T::BOOL, &[], &[u8::from(call.background)])
            .output(T::TENSOR_FLOAT32, &[0; 2])
            .output(T::TENSOR_FLOAT32, &[0; 3])
            .output(T::TENSOR_INT32, &[0; 2])
            .output(T::TENSOR_INT32, &[0])
            .run()
    }

    #[test]
    fn detections_per_class_are_the_best_of_all() {
        let outputs = detect(&CALL).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [0.8, 0.6, 0.5]);
        assert_eq!(outputs[1].data::<f32>()[..4], [0.0, 2.0, 1.0, 3.0]);
        assert_eq!(outputs[2].data::<i32>(), [0, 1, 1]);
        assert_eq!(outputs[3].data::<i32>(), [3]);
    }

    #[test]
    fn boxes_have_their_best_classes_and_the_rest_is_zero() {
        let call = Call {
            regular: false,
            background: true,
            ..CALL
        };
        let outputs = detect(&call).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [0.8, 0.5, 0.0]);
        assert_eq!(outputs[2].data::<i32>(), [1, 2, 0]);
        assert_eq!(outputs[3].data::<i32>(), [2]);
    }

    #[test]
    fn scores_that_are_no_numbers_come_last() {
        let call = Call {
            scores: [0.9, f32::NAN, 0.5, 0.1, f32::NAN, f32::NAN],
            regular: false,
            limits: [2, 1, 1],
            ..CALL
        };
        assert_eq!(detect(&call).unwrap()[0].data::<f32>(), [0.5, 0.0]);
        let infinite = Call {
            delta: f32::INFINITY,
            ..CALL
        };
        assert!(detect(&infinite).is_ok());
    }

    #[test]
    fn hostile_values_give_an_error() {
        for call in [
            Call { scale: 0.0, ..CALL },
            Call {
                scale: f32::NAN,
                ..CALL
            },
            Call {
                limits: [0, 1, 1],
                ..CALL
            },
            Call {
                limits: [-1, 1, 1],
                ..CALL
            },
            Call {
                limits: [i32::MAX, 1, 1],
                ..CALL
            },
            Call {
                limits: [1, 1, 0],
                ..CALL
            },
            Call {
                limits: [1, 0, 1],
                regular: false,
                ..CALL
            },
            Call {
                limits: [1 << 20, 1 << 20, 1],
                regular: false,
                ..CALL
            },
            Call {
                thresholds: [f32::NAN, 0.5],
                ..CALL
            },
            Call {
                thresholds: [0.0, f32::INFINITY],
                ..CALL
            },
        ] {
            assert!(detect(&call).is_err());
        }
    }
}
