//! Dimensions of tensors, held without allocation.

use serde::{Deserialize, Serialize};

/// Highest rank that a tensor may have here. NNAPI's operations stop at rank 4 or say "any", LiteRT's tensors
/// stop at 8 as well; a fixed bound keeps shapes on the stack, and with it the executions free of allocation.
pub const MAX_RANK: usize = 8;

/// The dimensions of an operand. A dimension of 0 in a model means "not specified"; in an executed tensor it
/// is an extent that really is zero. Rank 0 is a scalar, or a tensor of unknown rank in a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Shape {
    rank: u8,
    dims: [u32; MAX_RANK],
}

/// Why dimensions cannot be a [`Shape`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// More dimensions than [`MAX_RANK`].
    #[error("rank {rank} is above {MAX_RANK}, the highest rank supported")]
    RankTooHigh {
        /// The rank that was asked for.
        rank: usize,
    },
    /// The element count or byte size does not fit 32 bits (HAL: operand sizes are `uint32_t`).
    #[error("the size of a tensor with dimensions {dims:?} does not fit 32 bits")]
    TooLarge {
        /// The offending dimensions.
        dims: Vec<u32>,
    },
}

impl Shape {
    /// The shape of scalars.
    pub const SCALAR: Shape = Shape {
        rank: 0,
        dims: [0; MAX_RANK],
    };

    /// The shape with these dimensions.
    pub fn new(dims: &[u32]) -> Result<Shape, ShapeError> {
        if dims.len() > MAX_RANK {
            return Err(ShapeError::RankTooHigh { rank: dims.len() });
        }
        let mut shape = Shape {
            rank: dims.len() as u8,
            dims: [0; MAX_RANK],
        };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.rank).min(MAX_RANK)
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn dims(&self) -> &[u32] {
        &self.dims[..self.rank()]
    }

    /// The dimensions, to change in place.
    pub fn dims_mut(&mut self) -> &mut [u32] {
        let rank = self.rank();
        &mut self.dims[..rank]
    }

    /// The extent along `axis`, or 1 beyond the rank.
    #[must_use]
    pub fn dim(&self, axis: usize) -> u32 {
        self.dims().get(axis).copied().unwrap_or(1)
    }

    /// Product of the dimensions; 1 for rank 0.
    pub fn elements(&self) -> Result<usize, ShapeError> {
        let mut product: u64 = 1;
        for &dim in self.dims() {
            product *= u64::from(dim);
            if product > u64::from(u32::MAX) {
                // A zero further on would bring the product back to 0.
                return if self.dims().contains(&0) {
                    Ok(0)
                } else {
                    Err(self.too_large())
                };
            }
        }
        Ok(product as usize)
    }

    /// Size in bytes for elements of `element_size` bytes; an error above `u32::MAX`.
    pub fn byte_size(&self, element_size: usize) -> Result<usize, ShapeError> {
        let bytes = self.elements()? as u64 * element_size as u64;
        if bytes > u64::from(u32::MAX) {
            return Err(self.too_large());
        }
        Ok(bytes as usize)
    }

    /// Whether no dimension is 0. Rank 0 counts as specified.
    #[must_use]
    pub fn is_fully_specified(&self) -> bool {
        !self.dims().contains(&0)
    }

    /// The shape that agrees with both, where an empty list is a wildcard for the whole shape and 0 a
    /// wildcard for one axis (the HAL's `combineDimensions`); `None` if they contradict each other.
    #[must_use]
    pub fn combine(&self, other: &Shape) -> Option<Shape> {
        if self.rank() == 0 {
            return Some(*other);
        }
        if other.rank() == 0 {
            return Some(*self);
        }
        if self.rank() != other.rank() {
            return None;
        }
        let mut combined = *self;
        for (dim, &theirs) in combined.dims_mut().iter_mut().zip(other.dims()) {
            if *dim == 0 {
                *dim = theirs;
            } else if theirs != 0 && theirs != *dim {
                return None;
            }
        }
        Some(combined)
    }

    /// The shape of an argument that comes with dimensions of its own, for an operand that is declared with
    /// these: they may say what the declaration leaves open, and must say what it says. An empty list says
    /// nothing. `None` if they contradict the declaration, or leave open what it says.
    #[must_use]
    pub fn refined(&self, given: &Shape) -> Option<Shape> {
        if given.rank() == 0 {
            return Some(*self);
        }
        self.allows(given).then_some(*given)
    }

    /// Whether an operand that is declared with these dimensions, where an empty list and 0 stand for
    /// anything, may have exactly the shape `exact`, where 0 is an extent.
    #[must_use]
    pub fn allows(&self, exact: &Shape) -> bool {
        let agree = |(declared, exact): (&u32, &u32)| *declared == 0 || declared == exact;
        self.rank() == 0 || (self.rank() == exact.rank() && self.dims().iter().zip(exact.dims()).all(agree))
    }

    fn too_large(&self) -> ShapeError {
        ShapeError::TooLarge {
            dims: self.dims().to_vec(),
        }
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.dims(), f)
    }
}

impl TryFrom<&[u32]> for Shape {
    type Error = ShapeError;

    fn try_from(dims: &[u32]) -> Result<Shape, ShapeError> {
        Shape::new(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, ShapeError};

    #[test]
    fn elements_of_a_product_beyond_32_bits_is_an_error_unless_a_dimension_is_zero() {
        assert!(matches!(
            Shape::new(&[65536, 65536]).unwrap().elements(),
            Err(ShapeError::TooLarge { .. })
        ));
        assert_eq!(Shape::new(&[65536, 65536, 0]).unwrap().elements(), Ok(0));
        assert_eq!(Shape::SCALAR.elements(), Ok(1));
    }

    #[test]
    fn combine_takes_what_is_known_and_refuses_contradictions() {
        let left = Shape::new(&[0, 3]).unwrap();
        let right = Shape::new(&[2, 0]).unwrap();
        assert_eq!(left.combine(&right), Some(Shape::new(&[2, 3]).unwrap()));
        assert_eq!(left.combine(&Shape::SCALAR), Some(left));
        assert_eq!(left.combine(&Shape::new(&[2, 4]).unwrap()), None);
        assert_eq!(left.combine(&Shape::new(&[1, 2, 3]).unwrap()), None);
    }

    #[test]
    fn refined_shape_says_all_that_the_declared_one_says() {
        let shape = |dims: &[u32]| Shape::new(dims).unwrap();
        let refined = |declared: &[u32], given: &[u32]| shape(declared).refined(&shape(given));
        assert_eq!(refined(&[0, 3], &[2, 3]), Some(shape(&[2, 3])));
        assert_eq!(refined(&[0, 3], &[0, 3]), Some(shape(&[0, 3])));
        assert_eq!(refined(&[], &[0, 3]), Some(shape(&[0, 3])));
        assert_eq!(refined(&[2, 3], &[]), Some(shape(&[2, 3])));
        for given in [&[2, 0][..], &[0, 3], &[0, 0], &[2, 4], &[2, 3, 1], &[2]] {
            assert_eq!(refined(&[2, 3], given), None, "{given:?}");
        }
    }

    #[test]
    fn extents_of_zero_are_no_wildcards_in_an_exact_shape() {
        let shape = |dims: &[u32]| Shape::new(dims).unwrap();
        assert!(shape(&[0, 3]).allows(&shape(&[2, 3])));
        assert!(shape(&[0, 3]).allows(&shape(&[0, 3])));
        assert!(shape(&[]).allows(&shape(&[0, 3])));
        assert!(!shape(&[2, 3]).allows(&shape(&[0, 3])));
        assert!(!shape(&[2, 3]).allows(&shape(&[3])));
        assert!(!shape(&[2, 3]).allows(&Shape::SCALAR));
    }
}
