//! BATCH_MATMUL: the matrices of two tensors multiplied, batch by batch.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::Level6;

/// Tensors of fewer axes hold no matrix, the HAL text has no more.
const RANK: Rank = Rank::Between(2, 4);

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::BATCH_MATMUL,
    variants: &[
        Variant::new(Level6, &[T::TENSOR_FLOAT32]),
        Variant::new(Level6, &[T::TENSOR_FLOAT16]),
        Variant::new(Level6, &[T::TENSOR_INT32]),
        Variant::new(Level6, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    // The HAL text calls the flags optional; its reference takes no other number of inputs than 4.
    forms: &[Form::default(&[
        Param::new("left", Ty::Var(0)).late_rank(RANK),
        Param::new("right", Ty::Var(0)).late_rank(RANK),
        Param::scalar("transpose_left", T::BOOL),
        Param::scalar("transpose_right", T::BOOL),
    ])],
    outputs: &[Param::new("output", Ty::Var(0)).late_rank(RANK)],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(infer),
}];

/// How many matrices of which extents are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMatMul {
    /// Pairs of matrices.
    pub batches: usize,
    /// Rows of the left matrix, once transposed, and of the result.
    pub rows: usize,
    /// Columns of the left matrix and rows of the right one, once transposed.
    pub inner: usize,
    /// Columns of the right matrix, once transposed, and of the result.
    pub columns: usize,
    /// Whether the left matrix is stored transposed.
    pub transpose_left: bool,
    /// Whether the right matrix is stored transposed.
    pub transpose_right: bool,
}

impl BatchMatMul {
    /// Reads the extents from the operation's inputs.
    ///
    /// # Errors
    /// Ranks or batches that differ, and matrices that do not fit each other or have no elements, as in the
    /// HAL's reference.
    pub fn new(context: &dyn OperationContext) -> Result<BatchMatMul, ShapeIssue> {
        let (left, right) = (context.shape(0)?, context.shape(1)?);
        let (transpose_left, transpose_right) = (context.bool(2)?, context.bool(3)?);
        let fits = left.rank() == right.rank() && RANK.allows(left.rank());
        let matrix = left.rank().saturating_sub(2);
        if !fits || left.dims()[..matrix] != right.dims()[..matrix] {
            let message = format!(
                "(right) has dimensions {right:?} beside {left:?}, both must have the same rank, {RANK}, and the same \
                 extents before the last two"
            );
            return Err(OpError::input(1, message).into());
        }
        let extents = |shape: &Shape, is_transposed: bool| {
            let (first, second) = (shape.dim(matrix) as usize, shape.dim(matrix + 1) as usize);
            if is_transposed {
                (second, first)
            } else {
                (first, second)
            }
        };
        let (rows, inner) = extents(&left, transpose_left);
        let (right_rows, columns) = extents(&right, transpose_right);
        if inner != right_rows || rows == 0 || inner == 0 || columns == 0 {
            let message = format!(
                "(right) is a matrix of {right_rows} x {columns} beside one of {rows} x {inner}, must have as many rows \
                 as that has columns, and neither may be empty"
            );
            return Err(OpError::input(1, message).into());
        }
        let batches = left.dims()[..matrix].iter();
        Ok(BatchMatMul {
            // Matrices have elements, so that the batches are no more than these.
            batches: batches.map(|extent| *extent as usize).product(),
            rows,
            inner,
            columns,
            transpose_left,
            transpose_right,
        })
    }
}

/// The batches of the inputs, with the rows of the left matrix and the columns of the right one.
fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let product = BatchMatMul::new(context)?;
    let mut shape = context.shape(0)?;
    let rank = shape.rank();
    // They were extents of 32 bits.
    shape.dims_mut()[rank - 2..].copy_from_slice(&[product.rows as u32, product.columns as u32]);
    set(outputs, 0, shape_of(shape.dims())?)
}
