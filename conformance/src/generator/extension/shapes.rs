//! Dimensions of tensors.

use nnhal_hal::ops::Rank;
use nnhal_hal::{MAX_RANK, OperationType as O, tflite};

use super::extents::{Places, region_axes};
use crate::generator::arguments::Arguments;
use crate::generator::choices::Choices;
use crate::generator::shapes::any;

/// Parameters of one element.
const SINGLE: &[&str] = &["value", "onvalue", "offvalue", "default", "padvalue"];

/// The dimensions of the tensor with this name; `None` if it is one that NNAPI's operations have, too, or if
/// what it depends on does not fit.
pub(in super::super) fn of(arguments: &mut Arguments<'_>, name: &str, before: &[u32]) -> Option<Vec<u32>> {
    if !arguments.is_of_extension {
        return None;
    }
    if SINGLE.contains(&name) {
        return Some(single(arguments.choices));
    }
    let first = arguments.dims(0, before);
    let [one, two, three, four] = arguments.extents;
    Some(match (arguments.operation, name) {
        (O::EMBEDDING_LOOKUP, "values") => {
            let more = arguments.choices.below(MAX_RANK as u32 - 1);
            let mut dims = vec![one, two];
            dims.extend((0..more).map(|_| 1 + arguments.choices.below(2)));
            dims
        }
        (tflite::MATRIX_SET_DIAG, "diagonal") => {
            let mut dims = first?;
            let (columns, rows) = (dims.pop()?, dims.pop()?);
            dims.push(rows.min(columns));
            dims
        }
        (tflite::DYNAMIC_UPDATE_SLICE, "update") => {
            let inside = |extent: u32| extent.min(1) + arguments.choices.below(extent);
            first?.into_iter().map(inside).collect()
        }
        (tflite::SCATTER_ND, "updates") => {
            let Places { count, depth } = Places::of(arguments);
            let mut dims = vec![count];
            dims.extend(arguments.spelled_out.iter().skip(depth as usize));
            dims
        }
        (tflite::SCATTER_REGIONS, "updates") => {
            let (first, mut places) = (first?, arguments.dims(1, before)?);
            places.pop();
            let axes = region_axes(arguments, before)?;
            for (extent, axis) in first.iter().zip(axes) {
                if axis >= 0 {
                    places.push(1 + arguments.choices.below((*extent).max(1)));
                }
            }
            places
        }
        (tflite::REDUCE_WINDOW, "start") => single(arguments.choices),
        (tflite::SPARSE_TO_DENSE, "values") => vec![if four == 1 { 1 } else { Places::of(arguments).count }],
        (tflite::NON_MAX_SUPPRESSION_V4 | tflite::NON_MAX_SUPPRESSION_V5, "boxes") => vec![one * two, 4],
        (tflite::NON_MAX_SUPPRESSION_V4 | tflite::NON_MAX_SUPPRESSION_V5, "scores") => vec![one * two],
        (tflite::CONV_3D, "filter") => vec![two, three, four, *first?.last()?, one],
        (tflite::CONV_3D_TRANSPOSE, "filter") => vec![two, three, four, one, *first?.last()?],
        (tflite::CONV_3D | tflite::CONV_3D_TRANSPOSE, "bias") => vec![one],
        _ => return None,
    })
}

/// Dimensions of one element, seldom of more than one axis.
pub(super) fn single(choices: &mut Choices) -> Vec<u32> {
    let axes = if choices.once_in(4) {
        1 + choices.below(MAX_RANK as u32)
    } else {
        1
    };
    vec![1; axes as usize]
}

/// The dimensions of the output, for operations with an argument that holds them and others that must fit.
pub(in super::super) fn spelled_out(arguments: &mut Arguments<'_>) -> Vec<u32> {
    match arguments.operation {
        tflite::SCATTER_ND | tflite::SPARSE_TO_DENSE => any(arguments, Rank::Any),
        _ => Vec::new(),
    }
}
