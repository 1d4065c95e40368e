//! Products of matrices.
//!
//! NNAPI multiplies tensors of the same rank, at most 4, and the same extents before the last two. TFLite
//! broadcasts these extents.

use nnhal_hal::{Operand, OperationType as O};

use super::builtin::Builtin;
use super::joining::broadcast_to;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::BatchMatMulOptions;
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[Mapping::new(
    Builtin::BATCH_MATMUL,
    &[O::BATCH_MATMUL, O::RESHAPE, O::EXPAND_DIMS, O::TILE],
    "one matrix on the right is multiplied with the rows of all on the left at once; other matrices are repeated where \
     TFLite broadcasts them",
    batch_matmul,
)];

/// The most axes that an operand of BATCH_MATMUL has.
const MOST_AXES: usize = 4;

fn batch_matmul(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<BatchMatMulOptions>()?;
    let (left, right) = (node.input(0)?, node.weights(0, 1)?);
    let dimensions = |number: usize, id: Id| match node.graph.builder.dimensions(id) {
        Some(dimensions) => Ok(dimensions.to_vec()),
        None => Err(node.input_error(number, "has dimensions that are not known before execution")),
    };
    let (of_left, of_right) = (dimensions(0, left)?, dimensions(1, right)?);
    let (Some(left_batches), Some(right_batches)) =
        (of_left.len().checked_sub(2), of_right.len().checked_sub(2))
    else {
        return Err("its inputs must have two axes at least".into());
    };
    let flags = [options.adj_x, options.adj_y];
    if left_batches == right_batches && of_left[..left_batches] == of_right[..right_batches] {
        let output = node.output(0)?;
        return emit(node, [left, right], flags, output);
    }
    if of_right[..right_batches].iter().all(|extent| *extent == 1) && !options.adj_x {
        return with_one_matrix(node, (left, &of_left), (right, &of_right), options.adj_y);
    }
    let batches = broadcast(&of_left[..left_batches], &of_right[..right_batches])?;
    if batches.len() + 2 > MOST_AXES {
        return Err(Refusal::Reason(format!(
            "its inputs of dimensions {of_left:?} and {of_right:?} are broadcast to more than {MOST_AXES} axes"
        )));
    }
    let left = broadcast_to(node, left, &[&batches[..], &of_left[left_batches..]].concat())?;
    let right = broadcast_to(node, right, &[&batches[..], &of_right[right_batches..]].concat())?;
    let output = node.output(0)?;
    emit(node, [left, right], flags, output)
}

fn emit(
    node: &mut Node<'_, '_, '_, '_>,
    [left, right]: [Id; 2],
    [transpose_left, transpose_right]: [bool; 2],
    output: Id,
) -> Result<(), Refusal> {
    let flags = [
        node.scalar_bool(transpose_left)?,
        node.scalar_bool(transpose_right)?,
    ];
    node.emit(O::BATCH_MATMUL, &[left, right, flags[0], flags[1]], &[output])
}

/// The product with one matrix on the right: the left ones, one below the other, are one matrix too.
fn with_one_matrix(
    node: &mut Node<'_, '_, '_, '_>,
    (left, of_left): (Id, &[u32]),
    (right, of_right): (Id, &[u32]),
    transpose_right: bool,
) -> Result<(), Refusal> {
    let matrix = &of_right[of_right.len() - 2..];
    let columns = if transpose_right { matrix[0] } else { matrix[1] };
    let (before, inner) = of_left.split_at(of_left.len() - 1);
    let rows = before
        .iter()
        .try_fold(1_u32, |rows, extent| rows.checked_mul(*extent));
    let rows = rows.ok_or("its left matrices have more rows than 32 bits can count")?;
    let left = reshaped(node, left, &[rows, inner[0]])?;
    let right = reshaped(node, right, matrix)?;
    let output = node.output(0)?;
    let product = Operand {
        dimensions: vec![rows, columns],
        ..node.graph.builder.operand(output).clone()
    };
    let product = node.temporary(product)?;
    emit(node, [left, right], [false, transpose_right], product)?;
    // A batch of the right one counts as well.
    let mut dimensions = vec![1; of_right.len().saturating_sub(of_left.len())];
    dimensions.extend([before, &[columns]].concat());
    emit_reshape(node, product, output, &dimensions)
}

/// The operand with these dimensions.
fn reshaped(node: &mut Node<'_, '_, '_, '_>, from: Id, dimensions: &[u32]) -> Result<Id, Refusal> {
    if node.graph.builder.dimensions(from) == Some(dimensions) {
        return Ok(from);
    }
    let to = node.temporary(Operand {
        dimensions: dimensions.to_vec(),
        ..node.graph.builder.operand(from).clone()
    })?;
    emit_reshape(node, from, to, dimensions)?;
    Ok(to)
}

/// Adds a RESHAPE to dimensions of which one may be open.
fn emit_reshape(
    node: &mut Node<'_, '_, '_, '_>,
    from: Id,
    to: Id,
    dimensions: &[u32],
) -> Result<(), Refusal> {
    if dimensions.iter().filter(|extent| **extent == 0).count() > 1 {
        return Err("its inputs have more than one extent that is not known before execution".into());
    }
    let extents = dimensions.iter().map(|extent| match extent {
        0 => Ok(-1),
        extent => i32::try_from(*extent),
    });
    let extents = extents.collect::<Result<Vec<_>, _>>();
    let extents =
        extents.map_err(|_| format!("it needs the dimensions {dimensions:?}, which are too large"))?;
    let shape = node.tensor_i32(&extents)?;
    node.emit(O::RESHAPE, &[from, shape], &[to])
}

/// The extents that two lists broadcast to.
fn broadcast(left: &[u32], right: &[u32]) -> Result<Vec<u32>, Refusal> {
    let rank = left.len().max(right.len());
    let at = |extents: &[u32], axis: usize| {
        (axis + extents.len())
            .checked_sub(rank)
            .map_or(1, |at| extents[at])
    };
    (0..rank)
        .map(|axis| match (at(left, axis), at(right, axis)) {
            (0, _) | (_, 0) => Err(Refusal::from(
                "it broadcasts an extent that is not known before execution",
            )),
            (one, other) if one == other => Ok(one),
            (1, other) | (other, 1) => Ok(other),
            _ => Err(Refusal::Reason(format!(
                "its batches {left:?} and {right:?} do not broadcast"
            ))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::broadcast;

    #[test]
    fn batches_broadcast_from_the_last_axis_on() {
        assert_eq!(broadcast(&[3, 1], &[2]).unwrap(), [3, 2]);
        assert_eq!(broadcast(&[], &[2, 5]).unwrap(), [2, 5]);
        assert!(broadcast(&[3], &[2]).is_err());
        assert!(broadcast(&[0], &[2]).is_err());
    }
}
