//! GENERATE_PROPOSALS: regions that may hold an object, from scores and deltas for each anchor at each pixel.

use nnhal_hal::OperationType;
use nnhal_hal::ops::generate_proposals::{ProposalRules, rules};
use nnhal_hal::ops::shapes::shape_of;

use super::bbox_transform::check_image_sizes;
use super::boxes::{BOX_LENGTH, Corners, narrow, select, widen};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError, Outputs, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::GENERATE_PROPOSALS, generate)];

/// Boxes must be larger than a pixel, whatever the caller says.
const LEAST_MIN_SIZE: f32 = 1.0;

fn generate(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = rules(context.inputs.rules())?;
    let image = Image::new(&rules.scores, rules.nchw);
    let total = image.elements();
    let candidates = total.checked_div(image.batch).unwrap_or(0);
    let mut pace = context.pace();
    let [scores, deltas, anchors, sizes, boxes, selected] = context.scratch.carve::<u32, 6>([
        total,
        total * BOX_LENGTH,
        image.channels * BOX_LENGTH,
        image.batch * 2,
        total * BOX_LENGTH,
        total,
    ])?;
    let [scores, deltas, anchors, sizes, boxes]: [&mut [f32]; 5] =
        [scores, deltas, anchors, sizes, boxes].map(bytemuck::cast_slice_mut);
    widen(&context.inputs.tensor(0)?, scores)?;
    widen(&context.inputs.tensor(1)?, deltas)?;
    widen(&context.inputs.tensor(2)?, anchors)?;
    widen(&context.inputs.tensor(3)?, sizes)?;
    check_image_sizes(sizes, 3)?;
    let boxes: &mut [Corners] = bytemuck::cast_slice_mut(boxes);
    let mut count = 0;
    // Images without anchors may have as many pixels as there can be.
    let images = if total == 0 { 0 } else { image.batch };
    if images > 0 {
        place_boxes(&rules, (deltas, anchors, sizes), boxes)?;
    }
    for batch in 0..images {
        let size = [sizes[batch * 2 + 1], sizes[batch * 2]];
        count += propose(
            &rules,
            (batch, size),
            (scores, boxes),
            &mut selected[count..],
            &mut pace,
        )?;
    }
    write(
        &mut context.outputs,
        candidates,
        &selected[..count],
        scores,
        boxes,
    )
}

/// Writes the proposals at these places.
fn write(
    outputs: &mut Outputs<'_>,
    candidates: usize,
    places: &[u32],
    scores: &[f32],
    boxes: &[Corners],
) -> Result<(), KernelError> {
    let rows = u32::try_from(places.len()).unwrap_or(u32::MAX);
    outputs.resize(0, shape_of(&[rows])?)?;
    outputs.resize(1, shape_of(&[rows, BOX_LENGTH as u32])?)?;
    outputs.resize(2, shape_of(&[rows])?)?;
    let places = || places.iter().map(|place| *place as usize);
    let [mut to_scores, mut to_boxes] = outputs.tensors([0, 1])?;
    narrow(&mut to_scores, 0, places().map(|place| scores[place]))?;
    narrow(
        &mut to_boxes,
        0,
        places().flat_map(|place| boxes[place].numbers()),
    )?;
    for (to, place) in outputs.data::<i32>(2)?.iter_mut().zip(places()) {
        *to = (place / candidates) as i32;
    }
    Ok(())
}

/// Computes the boxes that the deltas make of the anchors, in the order of the scores.
fn place_boxes(
    rules: &ProposalRules,
    (deltas, anchors, sizes): (&[f32], &[f32], &[f32]),
    boxes: &mut [Corners],
) -> Result<(), KernelError> {
    let image = Image::new(&rules.scores, rules.nchw);
    let encodings = Image::new(
        &nnhal_hal::ops::padding::Extents {
            channels: rules.scores.channels.saturating_mul(BOX_LENGTH as u32),
            ..rules.scores
        },
        rules.nchw,
    );
    let (anchors, _) = anchors.as_chunks::<BOX_LENGTH>();
    for pixel in image.pixels() {
        let size = [sizes[pixel.batch * 2 + 1], sizes[pixel.batch * 2]];
        let right = pixel.column as f32 * rules.width_stride;
        let down = pixel.row as f32 * rules.height_stride;
        let at = image.at(pixel.batch, pixel.row, pixel.column);
        let delta = encodings.at(pixel.batch, pixel.row, pixel.column);
        for (anchor, numbers) in anchors.iter().enumerate() {
            let [x1, y1, x2, y2] = *numbers;
            let corners = Corners::new([x1 + right, y1 + down, x2 + right, y2 + down]).ordered(anchor, 2)?;
            let delta = [0, 1, 2, 3]
                .map(|number| deltas[delta + (anchor * BOX_LENGTH + number) * encodings.channel_step]);
            boxes[at + anchor * image.channel_step] = corners.transformed(delta, size);
        }
    }
    Ok(())
}

/// Chooses the proposals for one image of this width and height: writes their places to the front of
/// `selected`, and gives their number. `selected` has room for all places of the image.
fn propose(
    rules: &ProposalRules,
    (batch, [width, height]): (usize, [f32; 2]),
    (scores, boxes): (&mut [f32], &[Corners]),
    selected: &mut [u32],
    pace: &mut Pace<'_>,
) -> Result<usize, KernelError> {
    let image = Image::new(&rules.scores, rules.nchw);
    let mut candidates = 0;
    // In the order row, column, anchor, whatever the layout: of equal scores the first counts.
    for (row, column) in (0..image.height).flat_map(|row| (0..image.width).map(move |column| (row, column))) {
        for anchor in 0..image.channels {
            let place = image.at(batch, row, column) + anchor * image.channel_step;
            if !scores[place].is_nan() {
                selected[candidates] = place as u32;
                candidates += 1;
            }
        }
    }
    if let Some(compared) = rules
        .compared
        .map(|compared| compared as usize)
        .filter(|compared| *compared < candidates)
    {
        selected[..candidates].select_nth_unstable_by(compared, |left, right| {
            scores[*right as usize].total_cmp(&scores[*left as usize])
        });
        candidates = compared;
    }
    let least = rules.min_size.max(LEAST_MIN_SIZE);
    let mut kept = 0;
    for at in 0..candidates {
        let corners = &boxes[selected[at] as usize];
        let (size, centre) = (corners.size(), corners.centre());
        if size.iter().all(|size| *size > least) && centre[0] < width && centre[1] < height {
            selected[kept] = selected[at];
            kept += 1;
        }
    }
    let most = rules.proposals.map_or(usize::MAX, |most| most as usize);
    select(
        &mut selected[..kept],
        scores,
        most,
        pace,
        |candidate, score, winner| {
            let overlap = boxes[candidate as usize].overlap(&boxes[winner as usize]);
            (overlap < rules.overlap).then_some(score)
        },
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    struct Call {
        scores: [f32; 2],
        delta: f32,
        anchor: [f32; 4],
        image: [f32; 2],
        stride: f32,
        limits: [i32; 2],
        overlap: f32,
        nchw: bool,
    }

    const CALL: Call = Call {
        scores: [0.5, 0.9],
        delta: 0.0,
        anchor: [0.0, 0.0, 4.0, 4.0],
        image: [8.0, 8.0],
        stride: 1.0,
        limits: [0, 0],
        overlap: 0.9,
        nchw: false,
    };

    /// Two pixels side by side with one anchor.
    fn propose(call: &Call) -> Result<Vec<Computed>, String> {
        let dims = |channels: u32| {
            if call.nchw {
                [1, channels, 1, 2]
            } else {
                [1, 1, 2, channels]
            }
        };
        OneOperation::new(OperationType::GENERATE_PROPOSALS)
            .tensor(T::TENSOR_FLOAT32, &dims(1), &call.scores)
            .tensor(T::TENSOR_FLOAT32, &dims(4), &[call.delta; 8])
            .tensor(T::TENSOR_FLOAT32, &[1, 4], &call.anchor)
            .tensor(T::TENSOR_FLOAT32, &[1, 2], &call.image)
            .f32(call.stride)
            .f32(call.stride)
            .i32(call.limits[0])
            .i32(call.limits[1])
            .f32(call.overlap)
            .f32(0.0)
            .tensor(T::BOOL, &[], &[u8::from(call.nchw)])
            .output(T::TENSOR_FLOAT32, &[0])
            .output(T::TENSOR_FLOAT32, &[0, 4])
            .output(T::TENSOR_INT32, &[0])
            .run()
    }

    #[test]
    fn both_layouts_propose_the_best_first() {
        for nchw in [false, true] {
            let outputs = propose(&Call { nchw, ..CALL }).unwrap();
            assert_eq!(outputs[0].data::<f32>(), [0.9, 0.5]);
            assert_eq!(outputs[1].data::<f32>(), [1.0, 0.0, 5.0, 4.0, 0.0, 0.0, 4.0, 4.0]);
            assert_eq!(outputs[2].data::<i32>(), [0, 0]);
        }
    }

    #[test]
    fn limits_and_overlap_leave_only_the_best() {
        for call in [
            Call {
                limits: [1, 0],
                ..CALL
            },
            Call {
                limits: [0, 1],
                ..CALL
            },
            Call { overlap: 0.5, ..CALL },
        ] {
            assert_eq!(propose(&call).unwrap()[0].data::<f32>(), [0.9]);
        }
        let small = propose(&Call {
            anchor: [0.0, 0.0, 1.0, 1.0],
            ..CALL
        })
        .unwrap();
        assert_eq!(small[1].dims, [0, 4]);
    }

    #[test]
    fn a_score_that_is_no_number_is_no_proposal() {
        let scores = [f32::NAN, 0.5];
        let outputs = propose(&Call { scores, ..CALL }).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [0.5]);
        let infinite = Call {
            delta: f32::INFINITY,
            ..CALL
        };
        assert!(propose(&infinite).is_ok());
    }

    #[test]
    fn hostile_values_give_an_error() {
        for call in [
            Call {
                anchor: [4.0, 0.0, 0.0, 4.0],
                ..CALL
            },
            Call {
                anchor: [f32::NAN; 4],
                ..CALL
            },
            Call {
                anchor: [-3e38, 0.0, f32::INFINITY, 4.0],
                ..CALL
            },
            Call {
                image: [f32::NAN, 8.0],
                ..CALL
            },
            Call {
                image: [8.0, -1.0],
                ..CALL
            },
            Call { stride: 0.0, ..CALL },
            Call {
                stride: f32::NAN,
                ..CALL
            },
            Call {
                overlap: f32::NAN,
                ..CALL
            },
        ] {
            assert!(propose(&call).is_err());
        }
    }
}
