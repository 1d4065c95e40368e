//! Operators on constants that are computed at import.
//!
//! Files whose shapes are fixed still often compute them: SHAPE, a slice of it, a product, PACK, and the
//! result is what a RESHAPE takes. NNAPI has none of that for integers, and with known dimensions it is all
//! constant.

use super::builtin::Builtin;
use super::node::{Node, Refusal};
use super::shape::new_shape;
use super::slicing::spell_out;
use crate::file::options::{
    ConcatenationOptions, GatherOptions, PackOptions, SqueezeOptions, StridedSliceOptions,
};
use crate::tensor::ElementType;

/// Largest number of integers that are computed with: shapes, not data.
const MAX_ELEMENTS: usize = 4096;

/// Integers with the dimensions that the file gives them: none for a scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Integers {
    dimensions: Vec<u32>,
    values: Vec<i64>,
}

impl Integers {
    fn vector(values: Vec<i64>) -> Integers {
        Integers {
            dimensions: vec![values.len() as u32],
            values,
        }
    }

    fn scalar(value: i64) -> Integers {
        Integers {
            dimensions: Vec::new(),
            values: vec![value],
        }
    }
}

/// Computes the operator, if its inputs are constants and it is one of those that shapes are computed with.
/// Whether it did; if not, the operator is mapped like any other.
pub(super) fn fold(node: &mut Node<'_, '_, '_, '_>, operator: Builtin) -> Result<bool, Refusal> {
    let result = match operator {
        Builtin::SHAPE | Builtin::RANK => dimensions_of(node, operator)?,
        Builtin::RESHAPE | Builtin::SQUEEZE | Builtin::EXPAND_DIMS => return reshape(node, operator),
        _ if !all_constant_integers(node) => None,
        Builtin::ADD | Builtin::SUB | Builtin::MUL | Builtin::MAXIMUM | Builtin::MINIMUM => {
            element_wise(node, operator)?
        }
        Builtin::DIV | Builtin::FLOOR_DIV | Builtin::FLOOR_MOD => element_wise(node, operator)?,
        Builtin::CAST => Some(input(node, 0)?),
        Builtin::REDUCE_PROD | Builtin::SUM | Builtin::REDUCE_MAX | Builtin::REDUCE_MIN => {
            reduce(node, operator)?
        }
        Builtin::STRIDED_SLICE => strided_slice(node)?,
        Builtin::SLICE => slice(node)?,
        Builtin::GATHER => gather(node)?,
        Builtin::CONCATENATION => concatenate(node)?,
        Builtin::PACK => pack(node)?,
        Builtin::FILL => fill(node)?,
        Builtin::RANGE => range(node)?,
        Builtin::BROADCAST_ARGS => broadcast_args(node)?,
        _ => None,
    };
    match result {
        Some(integers) => store(node, integers),
        None => Ok(false),
    }
}

/// Whether every input is a constant of few integers, and the output holds integers too.
fn all_constant_integers(node: &Node<'_, '_, '_, '_>) -> bool {
    let is_wide = |element_type| matches!(element_type, ElementType::Int32 | ElementType::Int64);
    let output = node
        .output_tensor(0)
        .is_ok_and(|tensor| is_wide(tensor.element_type));
    output
        && node.output_count() == 1
        && node.input_count() > 0
        && (0..node.input_count()).all(|number| {
            node.tensor(number).is_ok_and(|tensor| {
                is_wide(tensor.element_type)
                    && tensor.is_constant()
                    && tensor.elements().is_some_and(|elements| elements <= MAX_ELEMENTS)
            })
        })
}

fn input(node: &Node<'_, '_, '_, '_>, number: usize) -> Result<Integers, Refusal> {
    Ok(Integers {
        dimensions: node.tensor(number)?.dimensions.clone(),
        values: node.integers(number)?,
    })
}

/// Makes the integers the value of the output; not if one does not fit its type.
fn store(node: &mut Node<'_, '_, '_, '_>, integers: Integers) -> Result<bool, Refusal> {
    let bytes: Option<Vec<u8>> = match node.output_tensor(0)?.element_type {
        ElementType::Int64 => Some(
            integers
                .values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        ),
        ElementType::Int32 => integers
            .values
            .iter()
            .map(|value| i32::try_from(*value).ok().map(i32::to_le_bytes))
            .collect::<Option<Vec<_>>>()
            .map(|chunks| chunks.concat()),
        _ => None,
    };
    let Some(bytes) = bytes else {
        return Ok(false);
    };
    node.set_constant(0, integers.dimensions, bytes)?;
    Ok(true)
}

fn dimensions_of(node: &mut Node<'_, '_, '_, '_>, operator: Builtin) -> Result<Option<Integers>, Refusal> {
    if operator == Builtin::RANK {
        let rank = match node.is_constant(0) {
            true => node.tensor(0)?.dimensions.len(),
            false => node.rank(0)?,
        };
        return Ok(Some(Integers::scalar(rank as i64)));
    }
    let dimensions = if node.is_constant(0) {
        node.tensor(0)?.dimensions.clone()
    } else {
        let input = node.input(0)?;
        match node.graph.builder.dimensions(input) {
            Some(dimensions) => dimensions.to_vec(),
            None => return Ok(None),
        }
    };
    Ok(Some(Integers::vector(
        dimensions.into_iter().map(i64::from).collect(),
    )))
}

/// A constant of any type with other dimensions.
fn reshape(node: &mut Node<'_, '_, '_, '_>, operator: Builtin) -> Result<bool, Refusal> {
    let tensor = node.tensor(0)?;
    let Some(data) = tensor.data.clone().filter(|_| !tensor.is_sparse) else {
        return Ok(false);
    };
    let old = tensor.dimensions.clone();
    let new = match operator {
        Builtin::EXPAND_DIMS => {
            let axis = node.single_i32(1)?;
            let mut new = old;
            new.insert(node.axis(axis, new.len() + 1)?, 1);
            Some(new)
        }
        Builtin::SQUEEZE => {
            let axes = node.options::<SqueezeOptions<'_>>()?.squeeze_dims.to_vec();
            let dropped: Vec<usize> = axes
                .iter()
                .map(|axis| node.axis(*axis, old.len()))
                .collect::<Result<_, _>>()?;
            let kept = |(axis, extent): (usize, u32)| {
                let drops = extent == 1 && (dropped.is_empty() || dropped.contains(&axis));
                (!drops).then_some(extent)
            };
            Some(old.into_iter().enumerate().filter_map(kept).collect())
        }
        _ => match new_shape(node)? {
            Some(shape) => resolved(&shape, &old),
            None => None,
        },
    };
    let Some(new) = new else {
        return Ok(false);
    };
    node.set_constant(0, new, data.into_owned())?;
    Ok(true)
}

/// The dimensions that `shape` asks for, its one -1 resolved; `None` if the number of elements would change.
fn resolved(shape: &[i32], old: &[u32]) -> Option<Vec<u32>> {
    let elements = old
        .iter()
        .try_fold(1_u64, |product, extent| product.checked_mul(u64::from(*extent)))?;
    let open = shape.iter().filter(|extent| **extent == -1).count();
    let given = shape
        .iter()
        .filter(|extent| **extent != -1)
        .try_fold(1_u64, |product, extent| {
            product.checked_mul(u64::try_from(*extent).ok()?)
        })?;
    let rest = match open {
        0 if given == elements => 1,
        1 if given > 0 && elements % given == 0 => elements / given,
        _ => return None,
    };
    let extent = |extent: &i32| {
        u32::try_from(if *extent == -1 {
            rest
        } else {
            u64::try_from(*extent).ok()?
        })
        .ok()
    };
    shape.iter().map(extent).collect()
}

fn element_wise(node: &Node<'_, '_, '_, '_>, operator: Builtin) -> Result<Option<Integers>, Refusal> {
    let (left, right) = (input(node, 0)?, input(node, 1)?);
    // Vectors of one length, or one value against a vector.
    let dimensions = match (left.values.len(), right.values.len()) {
        (left_count, right_count) if left_count == right_count || right_count == 1 => left.dimensions.clone(),
        (1, _) => right.dimensions.clone(),
        _ => return Ok(None),
    };
    let count = left.values.len().max(right.values.len());
    let value = |side: &Integers, at: usize| side.values[at % side.values.len().max(1)];
    let values: Option<Vec<i64>> = (0..count)
        .map(|at| {
            let (a, b) = (value(&left, at), value(&right, at));
            match operator {
                Builtin::ADD => a.checked_add(b),
                Builtin::SUB => a.checked_sub(b),
                Builtin::MUL => a.checked_mul(b),
                Builtin::MAXIMUM => Some(a.max(b)),
                Builtin::MINIMUM => Some(a.min(b)),
                // Integers are divided towards zero by DIV, downwards by FLOOR_DIV.
                Builtin::DIV => a.checked_div(b),
                Builtin::FLOOR_DIV => floor_div(a, b),
                Builtin::FLOOR_MOD => a.checked_sub(floor_div(a, b)?.checked_mul(b)?),
                _ => None,
            }
        })
        .collect();
    Ok(values.map(|values| Integers { dimensions, values }))
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = a.checked_rem(b)? != 0;
    Some(if inexact && (a < 0) != (b < 0) {
        quotient - 1
    } else {
        quotient
    })
}

/// A reduction of a vector to one value.
fn reduce(node: &Node<'_, '_, '_, '_>, operator: Builtin) -> Result<Option<Integers>, Refusal> {
    let keep = node.options::<crate::file::options::ReducerOptions>()?.keep_dims;
    let vector = input(node, 0)?;
    let axes = node.i32s(1)?;
    if vector.dimensions.len() != 1 || !matches!(axes.as_slice(), [0 | -1]) {
        return Ok(None);
    }
    let mut values = vector.values.into_iter();
    let value = match operator {
        Builtin::REDUCE_PROD => values.try_fold(1_i64, i64::checked_mul),
        Builtin::SUM => values.try_fold(0_i64, i64::checked_add),
        Builtin::REDUCE_MAX => values.max(),
        _ => values.min(),
    };
    Ok(value.map(|value| {
        if keep {
            Integers::vector(vec![value])
        } else {
            Integers::scalar(value)
        }
    }))
}

fn strided_slice(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let options = node.options::<StridedSliceOptions>()?;
    let vector = input(node, 0)?;
    let lists = [node.i32s(1)?, node.i32s(2)?, node.i32s(3)?];
    if vector.dimensions.len() != 1 || options.offset {
        return Ok(None);
    }
    let bounds = spell_out(1, [&lists[0], &lists[1], &lists[2]], &options)?;
    if !bounds.new_axes.is_empty() {
        return Ok(None);
    }
    let stride = i64::from(bounds.strides[0]);
    let mask = |mask: i32, bound: i32| (mask == 0).then_some(i64::from(bound));
    let begin = mask(bounds.begin_mask, bounds.begin[0]);
    let end = mask(bounds.end_mask, bounds.end[0]);
    let values = strided(&vector.values, begin, end, stride)?;
    Ok(match (bounds.shrink_mask, values.as_slice()) {
        (0, _) => Some(Integers::vector(values)),
        (_, &[value]) => Some(Integers::scalar(value)),
        _ => None,
    })
}

/// The elements from `begin` to before `end`; bounds left out reach to the edge.
fn strided(values: &[i64], begin: Option<i64>, end: Option<i64>, stride: i64) -> Result<Vec<i64>, Refusal> {
    if stride == 0 {
        return Err("it has stride 0".into());
    }
    let length = values.len() as i64;
    let (least, most) = if stride > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: Option<i64>, open: i64| match bound {
        Some(bound) if bound < 0 => (bound + length).clamp(least, most),
        Some(bound) => bound.clamp(least, most),
        None => open,
    };
    let (open_begin, open_end) = if stride > 0 { (0, length) } else { (length - 1, -1) };
    let (mut at, end) = (bound(begin, open_begin), bound(end, open_end));
    let mut taken = Vec::new();
    while (stride > 0 && at < end) || (stride < 0 && at > end) {
        let Some(value) = usize::try_from(at).ok().and_then(|at| values.get(at)) else {
            break;
        };
        taken.push(*value);
        at = at.saturating_add(stride);
    }
    Ok(taken)
}

fn slice(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let vector = input(node, 0)?;
    let (begin, size) = (node.integers(1)?, node.integers(2)?);
    let (1, &[begin], &[size]) = (vector.dimensions.len(), begin.as_slice(), size.as_slice()) else {
        return Ok(None);
    };
    let end = if size == -1 { None } else { begin.checked_add(size) };
    if begin < 0 || end.is_some_and(|end| end > vector.values.len() as i64) {
        return Ok(None);
    }
    strided(&vector.values, Some(begin), end, 1).map(|values| Some(Integers::vector(values)))
}

fn gather(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let options = node.options::<GatherOptions>()?;
    let (vector, indices) = (input(node, 0)?, input(node, 1)?);
    if vector.dimensions.len() != 1 || !matches!(options.axis, 0 | -1) || options.batch_dims != 0 {
        return Ok(None);
    }
    let found: Option<Vec<i64>> = indices
        .values
        .iter()
        .map(|index| vector.values.get(usize::try_from(*index).ok()?).copied())
        .collect();
    Ok(found.map(|values| Integers {
        dimensions: indices.dimensions,
        values,
    }))
}

fn concatenate(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let options = node.options::<ConcatenationOptions>()?;
    let parts = (0..node.input_count())
        .map(|number| input(node, number))
        .collect::<Result<Vec<_>, _>>()?;
    let joins_vectors = parts.iter().all(|part| part.dimensions.len() == 1)
        && matches!(options.axis, 0 | -1)
        && options.activation == 0;
    Ok(joins_vectors.then(|| Integers::vector(parts.into_iter().flat_map(|part| part.values).collect())))
}

fn pack(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let axis = node.options::<PackOptions>()?.axis;
    let parts = (0..node.input_count())
        .map(|number| input(node, number))
        .collect::<Result<Vec<_>, _>>()?;
    let packs_scalars = parts
        .iter()
        .all(|part| part.dimensions.is_empty() && part.values.len() == 1)
        && matches!(axis, 0 | -1);
    Ok(packs_scalars.then(|| Integers::vector(parts.into_iter().flat_map(|part| part.values).collect())))
}

/// The dimensions that two lists broadcast to; none if they do not.
fn broadcast_args(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let (left, right) = (input(node, 0)?.values, input(node, 1)?.values);
    let length = left.len().max(right.len());
    let aligned = |list: &[i64], at: usize| match (at + list.len()).checked_sub(length) {
        Some(place) => list[place],
        None => 1,
    };
    let values: Option<Vec<i64>> = (0..length)
        .map(|at| match (aligned(&left, at), aligned(&right, at)) {
            (one, other) if one == other || other == 1 => Some(one),
            (1, other) => Some(other),
            _ => None,
        })
        .collect();
    Ok(values.map(Integers::vector))
}

fn fill(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let (shape, value) = (node.integers(0)?, node.integers(1)?);
    let dimensions: Option<Vec<u32>> = shape.iter().map(|extent| u32::try_from(*extent).ok()).collect();
    let (Some(dimensions), &[value]) = (dimensions, value.as_slice()) else {
        return Ok(None);
    };
    let count = dimensions
        .iter()
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent as usize))
        .filter(|count| *count <= MAX_ELEMENTS);
    Ok(count.map(|count| Integers {
        dimensions,
        values: vec![value; count],
    }))
}

fn range(node: &Node<'_, '_, '_, '_>) -> Result<Option<Integers>, Refusal> {
    let [Ok(start), Ok(limit), Ok(step)] = [0, 1, 2].map(|number| node.single_i32(number).map(i64::from))
    else {
        return Ok(None);
    };
    if step == 0 {
        return Err("it has step 0".into());
    }
    let count = (limit - start + step - step.signum()) / step;
    if !(0..=MAX_ELEMENTS as i64).contains(&count) {
        return Ok(None);
    }
    Ok(Some(Integers::vector(
        (0..count).map(|at| start + at * step).collect(),
    )))
}

#[cfg(test)]
mod tests {
    use super::{floor_div, resolved, strided};

    #[test]
    fn an_open_extent_takes_what_is_left() {
        assert_eq!(resolved(&[-1, 3], &[2, 6]), Some(vec![4, 3]));
        assert_eq!(resolved(&[], &[1]), Some(vec![]));
        assert_eq!(resolved(&[-1, 5], &[2, 6]), None);
        assert_eq!(resolved(&[-1, -1], &[4]), None);
        assert_eq!(resolved(&[3], &[4]), None);
    }

    #[test]
    fn slices_stop_at_the_edge() {
        let values = [1, 2, 3, 4];
        assert_eq!(strided(&values, Some(1), Some(9), 1).unwrap(), [2, 3, 4]);
        assert_eq!(strided(&values, Some(-1), None, 1).unwrap(), [4]);
        assert_eq!(strided(&values, None, None, -2).unwrap(), [4, 2]);
        assert_eq!(strided(&values, Some(2), Some(1), 1).unwrap(), []);
        assert!(strided(&values, None, None, 0).is_err());
    }

    #[test]
    fn floor_division_rounds_downwards() {
        assert_eq!(floor_div(-7, 2), Some(-4));
        assert_eq!(floor_div(7, -2), Some(-4));
        assert_eq!(floor_div(7, 2), Some(3));
        assert_eq!(floor_div(7, 0), None);
        assert_eq!(floor_div(i64::MIN, -1), None);
    }
}
