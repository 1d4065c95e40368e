//! Shape rules that many operations share, and the arithmetic below them.

use crate::{MAX_RANK, Shape, ShapeError};

use super::context::{OpError, OperationContext, ShapeIssue};

/// Every output has the shape of input 0.
pub fn same_as_input(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    outputs.fill(shape);
    Ok(())
}

/// Output 0 has the broadcast shape of inputs 0 and 1.
pub fn broadcast_of_two(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = broadcast(&context.shape(0)?, &context.shape(1)?)?;
    set(outputs, 0, shape)
}

/// The shape that two operands broadcast to: aligned at the last axis, sizes equal or one of them 1.
pub fn broadcast(left: &Shape, right: &Shape) -> Result<Shape, OpError> {
    let rank = left.rank().max(right.rank());
    let mut dims = [0; crate::MAX_RANK];
    for from_last in 1..=rank {
        let at = |shape: &Shape| {
            shape
                .rank()
                .checked_sub(from_last)
                .map_or(1, |axis| shape.dim(axis))
        };
        dims[rank - from_last] = match (at(left), at(right)) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            (a, b) => {
                return Err(OpError::operation(format!(
                    "inputs with dimensions {left:?} and {right:?} do not broadcast: {a} against {b}"
                )));
            }
        };
    }
    shape_of(&dims[..rank])
}

/// The axis that a possibly negative number names, counted from the end if negative.
pub fn resolve_axis(input: usize, axis: i32, rank: usize) -> Result<usize, OpError> {
    let resolved = if axis < 0 {
        i64::from(axis) + rank as i64
    } else {
        i64::from(axis)
    };
    usize::try_from(resolved)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| {
            OpError::input(
                input,
                format!("names axis {axis}, must be from -{rank} to {}", rank as i64 - 1),
            )
        })
}

/// The shape with these dimensions, its element count within 32 bits.
pub fn shape_of(dims: &[u32]) -> Result<Shape, OpError> {
    let shape = Shape::new(dims).map_err(shape_error)?;
    shape.elements().map_err(shape_error)?;
    Ok(shape)
}

/// The shape with the dimensions of these parts, one after the other; `[1]` if they have none.
pub fn chained(parts: &[&[u32]]) -> Result<Shape, OpError> {
    let rank: usize = parts.iter().map(|part| part.len()).sum();
    let mut dims = [1_u32; MAX_RANK];
    let slots = dims.get_mut(..rank).ok_or_else(|| {
        let message = format!("gives a tensor of rank {rank}, at most {MAX_RANK} are supported");
        OpError::operation(message)
    })?;
    for (slot, extent) in slots.iter_mut().zip(parts.iter().copied().flatten()) {
        *slot = *extent;
    }
    // A tensor has at least one axis; one element is [1].
    shape_of(&dims[..rank.max(1)])
}

/// A shape error as an error of the operation's output.
pub fn shape_error(error: ShapeError) -> OpError {
    OpError::operation(error.to_string())
}

/// Sets the shape of an output.
pub fn set(outputs: &mut [Shape], index: usize, shape: Shape) -> Result<(), ShapeIssue> {
    match outputs.get_mut(index) {
        Some(slot) => {
            *slot = shape;
            Ok(())
        }
        None => Err(OpError::output(index, "is missing").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{broadcast, chained, resolve_axis};
    use crate::{MAX_RANK, Shape};

    fn shape(dims: &[u32]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn broadcast_aligns_at_the_last_axis() {
        assert_eq!(
            broadcast(&shape(&[4, 1, 3]), &shape(&[2, 1])),
            Ok(shape(&[4, 2, 3]))
        );
        assert_eq!(broadcast(&shape(&[2]), &shape(&[])), Ok(shape(&[2])));
        assert_eq!(broadcast(&shape(&[0, 2]), &shape(&[1, 2])), Ok(shape(&[0, 2])));
        assert!(broadcast(&shape(&[2]), &shape(&[3])).is_err());
    }

    #[test]
    fn chained_parts_have_no_more_axes_than_tensors_have() {
        assert_eq!(chained(&[&[2], &[], &[0, 3]]), Ok(shape(&[2, 0, 3])));
        assert_eq!(chained(&[&[], &[]]), Ok(shape(&[1])));
        assert!(chained(&[&[1; MAX_RANK], &[1]]).is_err());
        assert!(chained(&[&[1 << 31], &[1 << 31]]).is_err());
    }

    #[test]
    fn axes_count_from_the_end_when_negative() {
        assert_eq!(resolve_axis(1, -1, 4), Ok(3));
        assert_eq!(resolve_axis(1, 3, 4), Ok(3));
        assert!(resolve_axis(1, 4, 4).is_err());
        assert!(resolve_axis(1, i32::MIN, 4).is_err());
    }
}
