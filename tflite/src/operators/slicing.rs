//! Parts of tensors.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{SplitOptions, StridedSliceOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::SLICE, &[O::SLICE], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::SLICE, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::STRIDED_SLICE,
        &[O::STRIDED_SLICE, tflite::STRIDED_SLICE, O::RESHAPE],
        "begin, end and shrink masks passed on; an ellipsis is spelled out and new axes are a RESHAPE, for constant \
         bounds",
        strided_slice,
    ),
    Mapping::new(Builtin::SPLIT, &[O::SPLIT], "constant axis", |node| {
        let input = node.input(1)?;
        let axis = node.single_i32(0)?;
        let count = node.options::<SplitOptions>()?.num_splits;
        split(node, input, axis, count)
    }),
    Mapping::new(
        Builtin::SPLIT_V,
        &[O::SPLIT, O::SLICE],
        "constant sizes and axis; SPLIT if the sizes are equal, else a SLICE for each output",
        split_v,
    ),
    Mapping::new(
        Builtin::REVERSE_V2,
        &[O::REVERSE],
        "constant axes, a REVERSE for each",
        reverse,
    ),
];

fn split(node: &mut Node<'_, '_, '_, '_>, input: Id, axis: i32, count: i32) -> Result<(), Refusal> {
    if usize::try_from(count) != Ok(node.output_count()) {
        return Err(Refusal::Reason(format!(
            "it splits into {count} parts and has {} outputs",
            node.output_count()
        )));
    }
    let inputs = [input, node.scalar_i32(axis)?, node.scalar_i32(count)?];
    let outputs = (0..node.output_count())
        .map(|number| node.output_moved_from(number, input))
        .collect::<Result<Vec<_>, _>>()?;
    node.emit(O::SPLIT, &inputs, &outputs)
}

fn split_v(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let dimensions = node.dimensions(0)?;
    let axis = node.single_i32(2)?;
    let axis = node.axis(axis, dimensions.len())?;
    let extent = i64::from(dimensions[axis]);
    let mut sizes = node.integers(1)?;
    let given: i64 = sizes
        .iter()
        .filter(|size| **size >= 0)
        .fold(0, |sum, size| sum.saturating_add(*size));
    // One size may be left open with -1.
    for size in sizes.iter_mut().filter(|size| **size == -1) {
        *size = extent - given;
    }
    let total: i64 = sizes.iter().fold(0, |sum, size| sum.saturating_add(*size));
    if total != extent || sizes.iter().any(|size| *size <= 0) || sizes.len() != node.output_count() {
        return Err(Refusal::Reason(format!(
            "it splits extent {extent} into the sizes {sizes:?} for {} outputs; the sizes must be above 0, add up \
             to the extent, and be as many as the outputs",
            node.output_count()
        )));
    }
    if sizes.windows(2).all(|pair| pair[0] == pair[1]) {
        // Both fit: the sizes are at most an extent, and there are as many as outputs.
        return split(node, input, axis as i32, sizes.len() as i32);
    }
    let mut begin = 0_i64;
    for (number, size) in sizes.into_iter().enumerate() {
        let mut begins = vec![0_i32; dimensions.len()];
        let mut extents = vec![-1_i32; dimensions.len()];
        begins[axis] = i32::try_from(begin).map_err(|error| error.to_string())?;
        extents[axis] = i32::try_from(size).map_err(|error| error.to_string())?;
        let inputs = [input, node.tensor_i32(&begins)?, node.tensor_i32(&extents)?];
        let output = node.output_moved_from(number, input)?;
        node.emit(O::SLICE, &inputs, &[output])?;
        begin += size;
    }
    Ok(())
}

/// Bounds of a slice in NNAPI's form: one entry for each axis of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) begin: Vec<i32>,
    pub(super) end: Vec<i32>,
    pub(super) strides: Vec<i32>,
    pub(super) begin_mask: i32,
    pub(super) end_mask: i32,
    pub(super) shrink_mask: i32,
    /// Where the result has additional axes of extent 1: positions in the final shape.
    pub(super) new_axes: Vec<usize>,
}

/// The entries of the file's lists, spelled out for an input of this rank.
///
/// An entry of the file is one of: a new axis (takes no axis of the input), the ellipsis (takes as many as
/// are left over), or the bounds of one axis, which may vanish from the result. Axes beyond the entries are
/// taken whole.
pub(super) fn spell_out(
    rank: usize,
    [begin, end, strides]: [&[i32]; 3],
    options: &StridedSliceOptions,
) -> Result<Bounds, String> {
    let entries = begin.len();
    if end.len() != entries || strides.len() != entries || entries > 31 {
        return Err(format!(
            "its begin, end and strides have {entries}, {} and {} elements, must have as many, at most 31",
            end.len(),
            strides.len()
        ));
    }
    if options.offset {
        return Err("its ends are counted from its begins, which NNAPI has not".to_owned());
    }
    let has = |mask: i32, entry: usize| mask & (1 << entry) != 0;
    let takes_axis = |entry: usize| !has(options.new_axis_mask, entry) && !has(options.ellipsis_mask, entry);
    let taken = (0..entries).filter(|entry| takes_axis(*entry)).count();
    let left_over = rank
        .checked_sub(taken)
        .ok_or_else(|| format!("it has bounds for {taken} axes, its input has rank {rank}"))?;
    let mut bounds = Bounds {
        begin: Vec::new(),
        end: Vec::new(),
        strides: Vec::new(),
        begin_mask: 0,
        end_mask: 0,
        shrink_mask: 0,
        new_axes: Vec::new(),
    };
    let mut result_axis = 0;
    let mut ellipsis_seen = false;
    for entry in 0..entries {
        if has(options.ellipsis_mask, entry) {
            if !ellipsis_seen {
                bounds.push_whole(left_over);
                result_axis += left_over;
            }
            ellipsis_seen = true;
        } else if has(options.new_axis_mask, entry) {
            bounds.new_axes.push(result_axis);
            result_axis += 1;
        } else {
            let bit = 1 << bounds.begin.len();
            bounds.begin.push(begin[entry]);
            bounds.end.push(end[entry]);
            bounds.strides.push(strides[entry]);
            bounds.begin_mask |= if has(options.begin_mask, entry) { bit } else { 0 };
            bounds.end_mask |= if has(options.end_mask, entry) { bit } else { 0 };
            if has(options.shrink_axis_mask, entry) {
                bounds.shrink_mask |= bit;
                // The result has one element there, wherever the file's end is.
                bounds.end[bit.trailing_zeros() as usize] = begin[entry].wrapping_add(1);
                bounds.end_mask |= if begin[entry] == -1 { bit } else { 0 };
            } else {
                result_axis += 1;
            }
        }
    }
    bounds.push_whole(rank - bounds.begin.len());
    Ok(bounds)
}

impl Bounds {
    /// Takes the next `count` axes whole.
    fn push_whole(&mut self, count: usize) {
        for _ in 0..count {
            let bit = 1 << self.begin.len();
            self.begin.push(0);
            self.end.push(0);
            self.strides.push(1);
            self.begin_mask |= bit;
            self.end_mask |= bit;
        }
    }
}

fn strided_slice(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<StridedSliceOptions>()?;
    let input = node.input(0)?;
    if options.offset || !(1..=3).all(|number| node.is_constant(number)) {
        return strided_slice_at_execution(node, input, &options);
    }
    let lists = [node.i32s(1)?, node.i32s(2)?, node.i32s(3)?];
    let rank = node.rank(0)?;
    let bounds = spell_out(rank, [&lists[0], &lists[1], &lists[2]], &options)?;
    let output = node.output_moved_from(0, input)?;
    if bounds.new_axes.is_empty() {
        return emit_slice(node, input, &bounds, output);
    }
    let operand = node.graph.builder.operand(output).clone();
    let sliced = node.temporary(nnhal_hal::Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    emit_slice(node, input, &bounds, sliced)?;
    let mut dimensions = match node.graph.builder.dimensions(sliced) {
        Some(dimensions) => dimensions.to_vec(),
        None => {
            return Err(
                "it has new axes and a result whose dimensions are not known before execution".into(),
            );
        }
    };
    // A slice that shrinks every axis leaves one element, of no axis in the file's terms.
    if bounds.shrink_mask.count_ones() as usize == rank {
        dimensions.clear();
    }
    for axis in bounds.new_axes {
        dimensions.insert(axis.min(dimensions.len()), 1);
    }
    node.emit_reshape(sliced, output, &dimensions)
}

fn emit_slice(
    node: &mut Node<'_, '_, '_, '_>,
    input: Id,
    bounds: &Bounds,
    output: Id,
) -> Result<(), Refusal> {
    let mut inputs = vec![input];
    for list in [&bounds.begin, &bounds.end, &bounds.strides] {
        inputs.push(node.tensor_i32(list)?);
    }
    for mask in [bounds.begin_mask, bounds.end_mask, bounds.shrink_mask] {
        inputs.push(node.scalar_i32(mask)?);
    }
    node.emit(O::STRIDED_SLICE, &inputs, &[output])
}

/// The operation with bounds that are not known yet, or counted from the begins.
fn strided_slice_at_execution(
    node: &mut Node<'_, '_, '_, '_>,
    input: Id,
    options: &StridedSliceOptions,
) -> Result<(), Refusal> {
    if options.ellipsis_mask != 0 || options.new_axis_mask != 0 {
        return Err("it has an ellipsis or new axes, and bounds that are relative or not constant".into());
    }
    let mut inputs = vec![input];
    for number in 1..=3 {
        inputs.push(node.input(number)?);
    }
    for mask in [options.begin_mask, options.end_mask, options.shrink_axis_mask] {
        inputs.push(node.scalar_i32(mask)?);
    }
    // NNAPI's has bounds for every axis, and demands an end that takes one element of an axis that vanishes.
    let rank = node.graph.builder.dimensions(input).map(<[u32]>::len);
    let mut lengths = Vec::with_capacity(3);
    for bounds in &inputs[1..=3] {
        lengths.push(
            node.graph
                .builder
                .dimensions(*bounds)
                .map(|dims| dims[0] as usize),
        );
    }
    let has_all = rank.is_some() && lengths.iter().all(|length| *length == rank);
    let kind = if has_all && options.shrink_axis_mask == 0 && !options.offset {
        O::STRIDED_SLICE
    } else {
        inputs.push(node.scalar_bool(options.offset)?);
        tflite::STRIDED_SLICE
    };
    let output = node.output_moved_from(0, input)?;
    node.emit(kind, &inputs, &[output])
}

fn reverse(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let rank = node.rank(0)?;
    let axes: Vec<usize> = node
        .i32s(1)?
        .into_iter()
        .map(|axis| node.axis(axis, rank))
        .collect::<Result<_, _>>()?;
    let Some((last, others)) = axes.split_last() else {
        return Err(node.input_error(1, "names no axis"));
    };
    let mut turned = input;
    for axis in others {
        let operand = node.graph.builder.operand(input).clone();
        let next = node.temporary(operand)?;
        emit_reverse(node, turned, *axis, next)?;
        turned = next;
    }
    let output = node.output_moved_from(0, input)?;
    emit_reverse(node, turned, *last, output)
}

fn emit_reverse(node: &mut Node<'_, '_, '_, '_>, from: Id, axis: usize, to: Id) -> Result<(), Refusal> {
    let axis = node.tensor_i32(&[axis as i32])?;
    node.emit(O::REVERSE, &[from, axis], &[to])
}

#[cfg(test)]
mod tests {
    use super::spell_out;
    use crate::file::options::StridedSliceOptions;

    #[test]
    fn axes_beyond_the_entries_are_taken_whole() {
        let bounds = spell_out(3, [&[1], &[2], &[1]], &StridedSliceOptions::default()).unwrap();
        assert_eq!(bounds.begin, [1, 0, 0]);
        assert_eq!(bounds.end, [2, 0, 0]);
        assert_eq!(
            (bounds.begin_mask, bounds.end_mask, bounds.shrink_mask),
            (0b110, 0b110, 0)
        );
    }

    #[test]
    fn an_ellipsis_takes_what_is_left_over() {
        let options = StridedSliceOptions {
            ellipsis_mask: 0b010,
            shrink_axis_mask: 0b100,
            ..Default::default()
        };
        let bounds = spell_out(4, [&[1, 9, -1], &[3, 9, 0], &[1, 1, 1]], &options).unwrap();
        assert_eq!(bounds.begin, [1, 0, 0, -1]);
        assert_eq!((bounds.begin_mask, bounds.end_mask), (0b0110, 0b1110));
        assert_eq!(bounds.shrink_mask, 0b1000);
    }

    #[test]
    fn new_axes_take_no_axis_of_the_input() {
        let options = StridedSliceOptions {
            new_axis_mask: 0b101,
            ..Default::default()
        };
        let bounds = spell_out(2, [&[0, 1, 0], &[0, 4, 0], &[1, 2, 1]], &options).unwrap();
        assert_eq!(bounds.begin, [1, 0]);
        assert_eq!(bounds.strides, [2, 1]);
        assert_eq!(bounds.new_axes, [0, 2]);
    }

    #[test]
    fn more_entries_than_axes_are_refused() {
        let options = StridedSliceOptions::default();
        assert!(spell_out(1, [&[0, 0], &[1, 1], &[1, 1]], &options).is_err());
        assert!(spell_out(2, [&[0, 0], &[1], &[1, 1]], &options).is_err());
    }
}
