//! GATHER and SCATTER of StableHLO: regions of a tensor whose corners indices name.

use nnhal_hal::tflite;

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::windows::function;
use crate::file::options::{StablehloGatherOptions, StablehloScatterOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::STABLEHLO_GATHER,
        &[tflite::GATHER_REGIONS],
        "results of at least one axis",
        |node| {
            let options = node.options::<StablehloGatherOptions<'_>>()?;
            let axes = Axes {
                window: options.offset_dims.to_vec(),
                dropped: options.collapsed_slice_dims.to_vec(),
                corner: options.start_index_map.to_vec(),
                index: options.index_vector_dim,
            };
            let mut inputs = arguments(node, &axes)?;
            inputs.push(node.narrowed(options.slice_sizes.to_vec().into_iter())?);
            let output = node.output_moved_from(0, inputs[0])?;
            node.emit(tflite::GATHER_REGIONS, &inputs, &[output])
        },
    ),
    Mapping::new(
        Builtin::STABLEHLO_SCATTER,
        &[tflite::SCATTER_REGIONS],
        "one input; the body gives the update, or is one addition, product, maximum or minimum",
        |node| {
            if node.input_count() != 3 || node.output_count() != 1 {
                return Err("it writes to several tensors, must be one".into());
            }
            let options = node.options::<StablehloScatterOptions<'_>>()?;
            let axes = Axes {
                window: options.update_window_dims.to_vec(),
                dropped: options.inserted_window_dims.to_vec(),
                corner: options.scatter_dims_to_operand_dims.to_vec(),
                index: options.index_vector_dim,
            };
            let combination = combination(node, options.update_computation_subgraph_index)?;
            let mut inputs = arguments(node, &axes)?;
            inputs.push(node.input(2)?);
            inputs.push(node.scalar_i32(combination)?);
            let output = node.output_moved_from(0, inputs[0])?;
            node.emit(tflite::SCATTER_REGIONS, &inputs, &[output])
        },
    ),
];

/// Lists of axes, as the format has them.
struct Axes {
    /// Axes of the regions that lie along those of the tensor, but for the dropped ones.
    window: Vec<i64>,
    /// Axes of the tensor along which regions have none.
    dropped: Vec<i64>,
    /// Axes of the tensor that the elements of a corner are places along.
    corner: Vec<i64>,
    /// The axis of the indices along which a corner lies.
    index: i64,
}

/// What both operations have first: the tensor, the indices and the axes.
fn arguments(node: &mut Node<'_, '_, '_, '_>, axes: &Axes) -> Result<Vec<Id>, Refusal> {
    let rank = node.rank(0)?;
    let mut window = axes.window.iter();
    let regions: Option<Vec<i64>> = (0..rank as i64)
        .map(|axis| {
            if axes.dropped.contains(&axis) {
                Some(-1)
            } else {
                window.next().copied()
            }
        })
        .collect();
    let (Some(regions), None) = (regions, window.next()) else {
        return Err(Refusal::Reason(format!(
            "its regions have the axes {:?} and not {:?} of a tensor of rank {rank}",
            axes.window, axes.dropped
        )));
    };
    if axes.corner.is_empty() {
        return Err("its regions have no corner".into());
    }
    let index = node.narrowed_values(std::iter::once(axes.index))?;
    Ok(vec![
        node.input(0)?,
        node.input(1)?,
        node.narrowed(regions.into_iter())?,
        node.narrowed(axes.corner.iter().copied())?,
        node.scalar_i32(index[0])?,
    ])
}

/// SCATTER_REGIONS's number of what the graph of an update does.
fn combination(node: &Node<'_, '_, '_, '_>, graph: i32) -> Result<i32, Refusal> {
    let file = node.graph.model.file;
    let found = usize::try_from(graph)
        .ok()
        .and_then(|graph| file.graphs().get(graph));
    if let Some(body) = found.filter(|body| body.operators.is_empty()) {
        let (inputs, outputs) = (body.inputs.to_vec(), body.outputs.to_vec());
        return match (inputs.as_slice(), outputs.as_slice()) {
            (&[_, update], &[output]) if update == output => Ok(0),
            _ => Err("its body has no operator and does not give the update".into()),
        };
    }
    match function(node, graph)? {
        number @ 1..=4 => Ok(number),
        _ => Err("its body is no addition, product, maximum or minimum".into()),
    }
}
