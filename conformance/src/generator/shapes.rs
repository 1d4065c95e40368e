//! What parameters look like, by their names: shapes of weights, values of axes, strides and paddings.

use nnhal_hal::ops::Rank;
use nnhal_hal::{MAX_RANK, OperationType};

use super::arguments::{Arguments, CHANNELS, allows};
use super::choices::Choices;
use super::resizing;

/// Dimensions for a tensor with one of these ranks; larger ones for a network.
pub(super) fn any(arguments: &mut Arguments<'_>, rank: Rank) -> Vec<u32> {
    // NNAPI's have more than four only where the HAL has no bound of its own. With the long axes of networks,
    // tensors of more would be large.
    let most = match rank {
        _ if arguments.is_of_extension && !arguments.graph.is_network => MAX_RANK,
        Rank::Any => 5,
        _ => 4,
    };
    let ranks: Vec<usize> = (1..=most).filter(|candidate| allows(rank, *candidate)).collect();
    let choices = &mut *arguments.choices;
    let rank = choices.pick(&ranks).copied().unwrap_or(1);
    if !arguments.graph.is_network {
        // Of many axes few are longer, or there are too many elements.
        let most = if rank > 5 { 2 } else { 4 };
        return (0..rank).map(|_| 1 + choices.below(most)).collect();
    }
    let extent = |axis: usize| {
        if axis + 1 == rank {
            choices.pick(CHANNELS).copied().unwrap_or(1)
        } else {
            1 + choices.below(if axis == 0 { 2 } else { 7 })
        }
    };
    (0..rank).map(extent).collect()
}

/// Height, width and channels of the image that argument 0 is.
fn image(arguments: &Arguments<'_>, before: &[u32]) -> Option<[u32; 3]> {
    let dims = arguments.dims(0, before)?;
    let &[_, first, second, third] = dims.as_slice() else {
        return None;
    };
    Some(if arguments.nchw {
        [second, third, first]
    } else {
        [first, second, third]
    })
}

/// Names of tensors that hold boxes: corners that are in order.
pub(super) const BOXES: &[&str] = &["rois", "boxes", "anchors"];

/// The dimensions of the tensor with this name. `None` if what it depends on does not fit the operation.
pub(super) fn of(arguments: &mut Arguments<'_>, name: &str, rank: Rank, before: &[u32]) -> Option<Vec<u32>> {
    let operation = arguments.operation;
    let [one, two, three, _] = arguments.extents;
    let known = recurrent(arguments, name, before).or_else(|| of_boxes(arguments, name, before));
    if let Some(dims) = known {
        return Some(dims);
    }
    match name {
        "filter" | "weights" if operation == OperationType::FULLY_CONNECTED => {
            let input = arguments.dims(0, before)?;
            Some(vec![one, *input.last()?])
        }
        "filter" => {
            let [_, _, channels] = image(arguments, before)?;
            Some(match operation {
                OperationType::DEPTHWISE_CONV_2D => vec![1, two, three, channels * one],
                OperationType::GROUPED_CONV_2D => {
                    let groups = grouping(arguments, before)?;
                    vec![groups * one, two, three, channels / groups]
                }
                _ => vec![one, two, three, channels],
            })
        }
        "bias" => {
            let filter = arguments.dims(1, before)?;
            Some(vec![if operation == OperationType::DEPTHWISE_CONV_2D {
                *filter.last()?
            } else {
                *filter.first()?
            }])
        }
        "values" => Some(vec![one, two]),
        "right" => {
            let mut dims = arguments.dims(0, before)?;
            let [transpose_left, transpose_right] = arguments.transposes();
            let matrix = dims.len().checked_sub(2)?;
            let inner = dims[if transpose_left { matrix } else { matrix + 1 }];
            let sides = if transpose_right {
                [one, inner]
            } else {
                [inner, one]
            };
            dims[matrix..].copy_from_slice(&sides);
            Some(dims)
        }
        "inputs" if operation == OperationType::PACK => arguments.dims(1, before),
        _ => Some(companion(arguments, rank, before)),
    }
}

/// The dimensions of a parameter of a recurrent layer, of either direction.
fn recurrent(arguments: &Arguments<'_>, name: &str, before: &[u32]) -> Option<Vec<u32>> {
    let layer = arguments
        .names
        .iter()
        .any(|other| other.contains("recurrent") || other == "weightsfeature");
    if !layer {
        return None;
    }
    let name = name
        .strip_prefix("fw")
        .or_else(|| name.strip_prefix("bw"))
        .unwrap_or(name);
    let input = arguments.dims(0, before)?;
    let [units, outputs, others, memory] = arguments.extents;
    let outputs = if arguments.parts.projection {
        outputs
    } else {
        units
    };
    let columns = *input.last()?;
    let batch = match input.as_slice() {
        [_, batch, _] if arguments.time_major => *batch,
        [batch, ..] => *batch,
        [] => return None,
    };
    // SVDF: so many filters for each unit.
    let filters = units * others;
    Some(match name {
        "auxinput" => vec![input[0], *input.get(1)?, others],
        _ if name.starts_with("auxinputto") || name == "auxweights" => vec![units, others],
        _ if name.starts_with("inputto") => vec![units, columns],
        _ if name.starts_with("recurrentto") => vec![units, outputs],
        _ if name.starts_with("cellto")
            || name.ends_with("gatebias")
            || name.ends_with("layernormweights") =>
        {
            vec![units]
        }
        "projectionweights" => vec![outputs, units],
        "projectionbias" => vec![outputs],
        "outputstatein" | "prevoutput" | "activationstate" => vec![batch, outputs],
        "cellstatein" | "prevcellstate" | "hiddenstate" | "hiddenstatein" => vec![batch, units],
        "weights" => vec![units, columns],
        "recurrentweights" => vec![units, units],
        "bias" => vec![units],
        "weightsfeature" => vec![filters, columns],
        "weightstime" => vec![filters, memory],
        "statein" => vec![batch, memory * filters],
        _ => return None,
    })
}

/// The dimensions of a parameter of an operation on boxes.
fn of_boxes(arguments: &Arguments<'_>, name: &str, before: &[u32]) -> Option<Vec<u32>> {
    use OperationType as O;
    let first = arguments.dims(0, before);
    let count = arguments.extents[0];
    let classes = arguments.extents[1];
    Some(match (arguments.operation, name) {
        (O::ROI_ALIGN | O::ROI_POOLING | O::AXIS_ALIGNED_BBOX_TRANSFORM, "rois") => vec![count, 4],
        (O::AXIS_ALIGNED_BBOX_TRANSFORM, "deltas") => vec![first?[0], 4 * classes],
        (O::AXIS_ALIGNED_BBOX_TRANSFORM, "imageinfo") => vec![1, 2],
        (O::BOX_WITH_NMS_LIMIT, "rois") => {
            let scores = first?;
            vec![scores[0], 4 * *scores.get(1)?]
        }
        (O::HEATMAP_MAX_KEYPOINT, "boxes") => vec![first?[0], 4],
        (O::GENERATE_PROPOSALS, "deltas") => {
            let mut dims = first?;
            *dims.get_mut(if arguments.nchw { 1 } else { 3 })? *= 4;
            dims
        }
        (O::GENERATE_PROPOSALS, "anchors") => vec![*first?.get(if arguments.nchw { 1 } else { 3 })?, 4],
        (O::GENERATE_PROPOSALS, "imageinfo") => vec![first?[0], 2],
        (O::DETECTION_POSTPROCESSING, "deltas") => {
            let scores = first?;
            vec![scores[0], *scores.get(1)?, 4 + (classes - 1)]
        }
        (O::DETECTION_POSTPROCESSING, "anchors") => vec![*first?.get(1)?, 4],
        _ => return None,
    })
}

/// A number of groups that divides the channels of the image.
fn grouping(arguments: &mut Arguments<'_>, before: &[u32]) -> Option<u32> {
    let [_, _, channels] = image(arguments, before)?;
    let groups = arguments.extents[3].min(channels);
    (groups > 0 && channels % groups == 0).then_some(groups)
}

/// Dimensions that go with those of an earlier argument: the same, or such as broadcast to them.
fn companion(arguments: &mut Arguments<'_>, rank: Rank, before: &[u32]) -> Vec<u32> {
    let Some(mut dims) = arguments.dims(0, before).filter(|dims| !dims.is_empty()) else {
        return any(arguments, rank);
    };
    if arguments.choices.once_in(3) {
        let axis = arguments.choices.below(dims.len() as u32) as usize;
        dims[axis] = 1;
    }
    if arguments.choices.once_in(4) {
        let leading = arguments.choices.below(dims.len() as u32) as usize;
        dims.drain(..leading);
    }
    if allows(rank, dims.len()) {
        dims
    } else {
        any(arguments, rank)
    }
}

/// The value of the `INT32` scalar with this name.
pub(super) fn scalar(arguments: &mut Arguments<'_>, name: &str, before: &[u32]) -> i32 {
    if name == "outputwidth"
        && let Some(columns) = resizing::columns_of_wide(arguments, before)
    {
        return columns;
    }
    let dims = arguments.dims(0, before).unwrap_or_default();
    let rank = dims.len() as u32;
    let choices = &mut *arguments.choices;
    match name {
        // It comes before the tensors.
        "axis" if arguments.operation == OperationType::PACK => choices.below(3) as i32,
        "mode" => choices.below(2) as i32,
        "axis" => {
            let ranks = if arguments.operation == OperationType::EXPAND_DIMS {
                rank + 1
            } else {
                rank
            };
            choices.below(2 * ranks) as i32 - ranks as i32
        }
        "numsplits" => {
            let axis = axis(arguments, before).unwrap_or(0);
            let extent = dims.get(axis).copied().unwrap_or(1);
            let divisors: Vec<u32> = (1..=extent).filter(|count| extent % count == 0).collect();
            arguments.choices.pick(&divisors).copied().unwrap_or(1) as i32
        }
        "k" => 1 + choices.below(dims.last().copied().unwrap_or(1)) as i32,
        "groups" => grouping(arguments, before).unwrap_or(1) as i32,
        // SVDF's filters for each unit.
        "rank" => arguments.extents[2] as i32,
        // Recurrent layers, and SVDF, have more than other operations.
        "activation"
            if arguments
                .names
                .iter()
                .any(|name| name.contains("recurrent") || name.contains("feature")) =>
        {
            choices.pick(&[4, 0, 1, 2, 3, 6]).copied().unwrap_or(4)
        }
        "depthmultiplier" => arguments.extents[0] as i32,
        "paddingscheme" => 1 + choices.below(2) as i32,
        _ if ["stride", "dilation", "filter", "block", "sample", "output", "num"]
            .iter()
            .any(|start| name.starts_with(start)) =>
        {
            1 + choices.below(3) as i32
        }
        _ if name.starts_with("pad") => choices.below(2) as i32,
        _ => choices.below(4) as i32,
    }
}

/// The axis that the argument of that name gives, counted from the front.
pub(super) fn axis(arguments: &Arguments<'_>, before: &[u32]) -> Option<usize> {
    let at = arguments.names.iter().position(|name| name == "axis")?;
    let axis = arguments.integer(at, before)?;
    let rank = arguments.dims(0, before)?.len() as i32;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}

/// A tensor of integers that parametrises an operation.
pub(super) struct Integers {
    pub(super) dims: Vec<u32>,
    pub(super) values: Vec<i32>,
}

impl Integers {
    pub(super) fn vector(values: Vec<i32>) -> Integers {
        Integers {
            dims: vec![values.len() as u32],
            values,
        }
    }
}

/// Shape and values of the tensor of integers with this name; `None` if it is data like any other.
pub(super) fn integers(arguments: &mut Arguments<'_>, name: &str, before: &[u32]) -> Option<Integers> {
    let dims = arguments.dims(0, before).unwrap_or_default();
    let rank = dims.len();
    let found = axis(arguments, before);
    let rows = arguments.extents[0];
    let choices = &mut *arguments.choices;
    let mut each = |least: i32, count: u32| -> Vec<i32> {
        (0..rank).map(|_| least + choices.below(count) as i32).collect()
    };
    Some(match name {
        "axes" => {
            let count = 1 + arguments.choices.below(2);
            let ranks = rank.max(1) as u32;
            let axes = (0..count).map(|_| arguments.choices.below(2 * ranks) as i32 - ranks as i32);
            Integers::vector(axes.collect())
        }
        "axis" => Integers::vector(vec![choices.below(rank as u32) as i32]),
        "multiples" => {
            let mut multiples = each(1, 2);
            if arguments.choices.once_in(6)
                && let Some(first) = multiples.first_mut()
            {
                *first = 0;
            }
            Integers::vector(multiples)
        }
        "paddings" if arguments.operation == OperationType::SPACE_TO_BATCH_ND => Integers {
            dims: vec![2, 2],
            values: (0..4).map(|_| arguments.choices.below(3) as i32).collect(),
        },
        // No more than there is to mirror.
        "paddings" if arguments.operation == OperationType::MIRROR_PAD => Integers {
            dims: vec![rank as u32, 2],
            values: dims
                .iter()
                .flat_map(|extent| [3, 2].map(|most| choices.below(most.min(*extent)) as i32))
                .collect(),
        },
        // As networks pad images before convolutions.
        "paddings" if rank == 4 && arguments.graph.is_network => Integers {
            dims: vec![4, 2],
            values: [0, 0, 1, 1, 1, 1, 0, 0].to_vec(),
        },
        "paddings" => Integers {
            dims: vec![rank as u32, 2],
            values: each(0, 3).into_iter().flat_map(|head| [head, 1]).collect(),
        },
        "blocksize" | "blockshape" | "blocksizes" => {
            Integers::vector((0..2).map(|_| 1 + arguments.choices.below(2) as i32).collect())
        }
        "permutation" => {
            let mut axes: Vec<i32> = (0..rank as i32).collect();
            for at in (1..axes.len()).rev() {
                let other = at - arguments.choices.below(at as u32 + 1) as usize;
                axes.swap(at, other);
            }
            Integers::vector(axes)
        }
        "shape" => Integers::vector(reshaped(choices, &dims)),
        "begin" | "begins" => {
            let begins = dims.iter().map(|extent| choices.below(*extent) as i32);
            Integers::vector(begins.collect())
        }
        "size" | "sizes" => Integers::vector(each(-1, 3)),
        "end" | "ends" => {
            let ends = dims.iter().map(|extent| 1 + choices.below(*extent) as i32);
            Integers::vector(ends.collect())
        }
        "strides" => Integers::vector(each(1, 2)),
        "dims" => Integers::vector(
            (0..1 + choices.below(3))
                .map(|_| 1 + choices.below(3) as i32)
                .collect(),
        ),
        "batchsplit" => {
            let boxes = arguments
                .argument("rois", before)
                .and_then(|drawn| drawn.shape)
                .map_or(1, |shape| shape.dim(0));
            Integers::vector(vec![0; boxes as usize])
        }
        "outputshape" => {
            let dims = image(arguments, before);
            let filter = arguments.dims(1, before);
            let (Some([height, width, _]), Some(filter)) = (dims, filter) else {
                return None;
            };
            let [height, width] = [height, width].map(|extent| {
                let stride = 1 + arguments.choices.below(2);
                (extent * stride + arguments.choices.below(2)) as i32
            });
            let (batch, channels) = (dims_of_batch(arguments, before), *filter.first()? as i32);
            Integers::vector(if arguments.nchw {
                vec![batch, channels, height, width]
            } else {
                vec![batch, height, width, channels]
            })
        }
        "seeds" => Integers::vector(vec![choices.below(100) as i32, 1]),
        "indices" => {
            let extent = dims.get(found?).copied()?;
            let count = 1 + choices.below(3);
            Integers::vector((0..count).map(|_| choices.below(extent) as i32).collect())
        }
        "lookups" => {
            let count = 1 + choices.below(3);
            Integers::vector((0..count).map(|_| choices.below(rows) as i32).collect())
        }
        "keys" => Integers::vector((0..rows as i32).collect()),
        _ => return None,
    })
}

fn dims_of_batch(arguments: &Arguments<'_>, before: &[u32]) -> i32 {
    let dims = arguments.dims(0, before).unwrap_or_default();
    dims.first().copied().unwrap_or(1) as i32
}

/// Dimensions for the same number of elements: the old ones with two neighbours made one, one left to be
/// found, or all in a row.
fn reshaped(choices: &mut Choices, dims: &[u32]) -> Vec<i32> {
    let mut shape: Vec<i32> = dims.iter().map(|extent| *extent as i32).collect();
    match choices.below(4) {
        1 => vec![-1],
        2 if shape.len() > 1 => {
            let second = shape.remove(1);
            shape[0] *= second;
            shape
        }
        3 if !shape.is_empty() => {
            let at = choices.below(shape.len() as u32) as usize;
            shape[at] = -1;
            shape
        }
        _ => {
            shape.push(1);
            shape
        }
    }
}
