//! Values of tensors of integers that parametrise an operation.

use nnhal_hal::{MAX_RANK, OperationType as O, tflite};

use super::extents::{Places, region_axes, segments, sequence_and_batch, shared_axes};
use super::shapes::single;
use crate::generator::arguments::Arguments;
use crate::generator::choices::Choices;
use crate::generator::shapes::{self, Integers};

/// Shape and values of the tensor of integers with this name; `None` if it is one that NNAPI's operations
/// have, too, or data.
pub(in super::super) fn integers(
    arguments: &mut Arguments<'_>,
    name: &str,
    before: &[u32],
) -> Option<Integers> {
    if !arguments.is_of_extension {
        return None;
    }
    let dims = arguments.dims(0, before).unwrap_or_default();
    let rank = dims.len() as u32;
    let last = dims.last().copied().unwrap_or(1);
    Some(match (arguments.operation, name) {
        (tflite::BROADCAST_ARGS, _) => broadcasting(arguments),
        (tflite::RFFT2D, "lengths") => {
            Integers::vector((0..2).map(|_| 1 << arguments.choices.below(4)).collect())
        }
        (tflite::DILATE, "dilations" | "edges") => dilated(arguments.choices, rank, name == "edges"),
        (tflite::GATHER_REGIONS | tflite::SCATTER_REGIONS, _) => regions(arguments, name, &dims, before)?,
        (tflite::REDUCE_WINDOW, "window" | "windowstrides" | "windowdilations") => {
            let most = |extent: &u32| {
                if name == "window" {
                    (*extent).clamp(1, 3)
                } else {
                    2
                }
            };
            let value = |extent: &u32| 1 + arguments.choices.below(most(extent)) as i32;
            Integers::vector(dims.iter().map(value).collect())
        }
        (tflite::CUMSUM, "axis") => one(arguments, |choices| choices.below(2 * rank) as i32 - rank as i32),
        (tflite::ONE_HOT, "depth") => one(arguments, |choices| choices.below(5) as i32),
        (O::TOPK_V2, "k") => one(arguments, |choices| 1 + choices.below(last) as i32),
        (tflite::NON_MAX_SUPPRESSION_V4 | tflite::NON_MAX_SUPPRESSION_V5, "maxoutputsize") => {
            one(arguments, |choices| choices.below(6) as i32)
        }
        (O::GATHER, "indices") => gathered(arguments, &dims, before)?,
        (tflite::GATHER_ND, "indices") => {
            let depth = 1 + arguments.choices.below(rank);
            let mut places: Vec<u32> = arguments.extents[..2].to_vec();
            places.truncate(1 + arguments.choices.below(2) as usize);
            places_in(arguments.choices, &dims, places, depth)
        }
        (tflite::SCATTER_ND | tflite::SPARSE_TO_DENSE, "indices") => {
            let Places { count, depth } = Places::of(arguments);
            let outer = arguments.spelled_out.clone();
            let mut indices = places_in(arguments.choices, &outer, vec![count], depth);
            // A list of places along the only axis.
            if arguments.operation == tflite::SPARSE_TO_DENSE && depth == 1 && arguments.choices.once_in(2) {
                indices.dims.pop();
            }
            indices
        }
        (tflite::SCATTER_ND | tflite::SPARSE_TO_DENSE, "shape") => Integers::vector(
            arguments
                .spelled_out
                .iter()
                .map(|extent| *extent as i32)
                .collect(),
        ),
        (tflite::DYNAMIC_UPDATE_SLICE, "start") => {
            // Also before the tensor and behind it.
            let start = |extent: &u32| arguments.choices.below(extent + 3) as i32 - 1;
            Integers::vector(dims.iter().map(start).collect())
        }
        (tflite::REVERSE_SEQUENCE, "lengths") if rank > 0 => {
            let [sequence, batch] = sequence_and_batch(arguments, dims.len());
            let length = |_| arguments.choices.below(dims[sequence] + 1) as i32;
            Integers::vector((0..dims[batch]).map(length).collect())
        }
        (tflite::SEGMENT_SUM, "segmentids") => rising(arguments.choices, *dims.first()?),
        (_, "segmentids") => {
            let count = segments(arguments);
            // One below all segments is left out.
            let id = |_| arguments.choices.below(count + 1) as i32 - 1;
            Integers::vector((0..*dims.first()?).map(id).collect())
        }
        (_, "numsegments") => {
            let count = segments(arguments) as i32;
            one(arguments, |_| count)
        }
        (tflite::BROADCAST_TO, "shape") => wider(arguments.choices, &dims),
        (tflite::RNG_BIT_GENERATOR, "state") => {
            let words = 2 + arguments.choices.below(2);
            Integers {
                dims: vec![words, 2],
                values: (0..2 * words).map(|_| any_word(arguments.choices)).collect(),
            }
        }
        (_, "generator") => {
            // Zeros only would stand for any generator.
            let seed = std::iter::once(1 + arguments.choices.below(9) as i32);
            Integers::vector(seed.chain((0..5).map(|_| any_word(arguments.choices))).collect())
        }
        (tflite::MULTINOMIAL, "samplecount") => one(arguments, |choices| choices.below(9) as i32),
        (O::FILL, "dims")
        | (tflite::RANDOM_UNIFORM | tflite::RANDOM_STANDARD_NORMAL | tflite::RNG_BIT_GENERATOR, "shape") => {
            let count = 1 + arguments.choices.below(MAX_RANK as u32);
            let extent = |_| [1, 2, 3, 0][arguments.choices.below(4) as usize];
            Integers::vector((0..count).map(extent).collect())
        }
        (O::STRIDED_SLICE, "begin" | "end" | "strides") => {
            // Axes behind the last bounds are whole.
            let bounds = dims
                .len()
                .saturating_sub(arguments.extents[0] as usize - 1)
                .max(1);
            let step = name == "strides";
            let bound = |extent: &u32| {
                if step {
                    [1, 2, -1, -2][arguments.choices.below(4) as usize]
                } else {
                    arguments.choices.below(2 * extent + 3) as i32 - *extent as i32 - 1
                }
            };
            Integers::vector(dims.iter().take(bounds).map(bound).collect())
        }
        // Seldom around so many axes, or there are too many elements.
        (_, "paddings") if rank > 4 => Integers {
            dims: vec![rank, 2],
            values: (0..2 * rank)
                .map(|_| i32::from(arguments.choices.once_in(4)))
                .collect(),
        },
        (tflite::CONV_3D_TRANSPOSE, "outputshape") => volume(arguments, before)?,
        _ => return None,
    })
}

/// One integer.
fn one(arguments: &mut Arguments<'_>, value: impl FnOnce(&mut Choices) -> i32) -> Integers {
    Integers {
        values: vec![value(arguments.choices)],
        dims: single(arguments.choices),
    }
}

/// A number whose bits all count, often the last one before it begins anew.
fn any_word(choices: &mut Choices) -> i32 {
    [-1, 0, 1, 0x6b5f_1a03][choices.below(4) as usize]
}

/// Some last dimensions of a shape that both lists of BROADCAST_ARGS broadcast to.
fn broadcasting(arguments: &mut Arguments<'_>) -> Integers {
    let shape = arguments.extents;
    let choices = &mut *arguments.choices;
    let left_out = choices.below(shape.len() as u32) as usize;
    let extents = shape[left_out..].iter();
    Integers::vector(
        extents
            .map(|extent| if choices.once_in(3) { 1 } else { *extent as i32 })
            .collect(),
    )
}

/// Corners, axes and sizes of regions of a tensor of these dimensions: the axes of the indices come first.
fn regions(arguments: &mut Arguments<'_>, name: &str, dims: &[u32], before: &[u32]) -> Option<Integers> {
    let rank = dims.len();
    let indices = arguments.dims(1, before);
    let axes = region_axes(arguments, before);
    let choices = &mut *arguments.choices;
    Some(match name {
        "indices" => {
            let depth = 1 + choices.below(rank.min(3) as u32);
            let mut of_indices: Vec<u32> = Vec::new();
            if rank < MAX_RANK && !choices.once_in(4) {
                of_indices.push(1 + choices.below(3));
            }
            of_indices.push(depth);
            let count = of_indices.iter().product::<u32>();
            Integers {
                // Also before the tensor and behind it.
                values: (0..count).map(|_| choices.below(6) as i32 - 1).collect(),
                dims: of_indices,
            }
        }
        "regionaxes" => {
            let mut next = indices?.len() as i32 - 2;
            let mut axis = |_: &u32| {
                if choices.once_in(4) {
                    return -1;
                }
                next += 1;
                next
            };
            Integers::vector(dims.iter().map(&mut axis).collect())
        }
        "corneraxes" => Integers::vector((0..*indices?.last()? as i32).rev().collect()),
        "sizes" => {
            let size = |(extent, axis): (&u32, i32)| match axis {
                0.. => 1 + choices.below((*extent).max(1)) as i32,
                _ => 1,
            };
            Integers::vector(dims.iter().zip(axes?).map(size).collect())
        }
        _ => return None,
    })
}

/// Dilations for so many axes, or edges around them. Around many axes there is seldom room, or there are too
/// many elements.
fn dilated(choices: &mut Choices, rank: u32, is_edges: bool) -> Integers {
    let least = i32::from(!is_edges);
    let count = if is_edges { 2 * rank } else { rank };
    let value = |_| match choices.once_in(if rank > 4 { 6 } else { 2 }) {
        true if is_edges => choices.below(4) as i32 - 1,
        true => 1 + choices.below(3) as i32,
        false => least,
    };
    let values: Vec<i32> = (0..count).map(value).collect();
    if is_edges {
        Integers {
            dims: vec![rank, 2],
            values,
        }
    } else {
        Integers::vector(values)
    }
}

/// Indices of GATHER, which begin with the axes that they share with the input.
fn gathered(arguments: &mut Arguments<'_>, dims: &[u32], before: &[u32]) -> Option<Integers> {
    let axis = shapes::axis(arguments, before)?;
    let extent = *dims.get(axis)?;
    let mut of_indices = dims[..shared_axes(arguments, axis)].to_vec();
    let picked = arguments.choices.below(3).max(u32::from(of_indices.is_empty()));
    of_indices.extend((0..picked).map(|_| 1 + arguments.choices.below(3)));
    let count = of_indices.iter().product::<u32>();
    Some(Integers {
        dims: of_indices,
        values: (0..count)
            .map(|_| arguments.choices.below(extent) as i32)
            .collect(),
    })
}

/// Places of a tensor, in lists of these dimensions, each named by so many indices along its first axes.
fn places_in(choices: &mut Choices, dims: &[u32], places: Vec<u32>, depth: u32) -> Integers {
    let count = places.iter().product::<u32>();
    let axes = &dims[..dims.len().min(depth as usize)];
    let values = (0..count)
        .flat_map(|_| axes)
        .map(|extent| choices.below(*extent) as i32);
    Integers {
        values: values.collect(),
        dims: [places, vec![depth]].concat(),
    }
}

/// The segments of so many rows, in order; some may have none.
fn rising(choices: &mut Choices, rows: u32) -> Integers {
    let mut segment = choices.below(2) as i32;
    let mut next = || {
        let this = segment;
        segment += choices.below(3) as i32;
        this
    };
    Integers::vector((0..rows).map(|_| next()).collect())
}

/// Dimensions that these broadcast to.
fn wider(choices: &mut Choices, dims: &[u32]) -> Integers {
    let more = choices.below(3).min((MAX_RANK - dims.len()) as u32);
    let added: Vec<i32> = (0..more).map(|_| 1 + choices.below(2) as i32).collect();
    let of_input = dims.iter().map(|extent| match extent {
        1 => [1, 2, 3, 0][choices.below(4) as usize],
        extent => *extent as i32,
    });
    Integers::vector(added.into_iter().chain(of_input).collect())
}

/// The output of CONV_3D_TRANSPOSE, over which the window has as many places as the input.
fn volume(arguments: &mut Arguments<'_>, before: &[u32]) -> Option<Integers> {
    let (input, filter) = (arguments.dims(0, before)?, arguments.dims(1, before)?);
    let mut dims = vec![*input.first()? as i32];
    for axis in 0..3 {
        let places = *input.get(axis + 1)? as i32;
        let window = *filter.get(axis)? as i32;
        let is_padded = arguments.integer(3, before)? == 1;
        let (stride, dilation) = (
            arguments.integer(4 + axis, before)?,
            arguments.integer(7 + axis, before)?,
        );
        let spare = arguments.choices.below(stride as u32) as i32;
        dims.push(if is_padded {
            places * stride - spare
        } else {
            (places - 1) * stride + (window - 1) * dilation + 1 + spare
        });
    }
    dims.push(*filter.get(3)? as i32);
    Some(Integers::vector(dims))
}
