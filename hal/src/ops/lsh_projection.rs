//! LSH_PROJECTION: a bit vector by locality-sensitive hashing.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::LSH_PROJECTION,
    variants: &[
        Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    ],
    forms: &[Form::default(&[
        Param::new("hash", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new(
            "input",
            Ty::AnyOf(&[
                (T::TENSOR_FLOAT32, V1_0),
                (T::TENSOR_FLOAT16, V1_2),
                (T::TENSOR_INT32, V1_0),
                (T::TENSOR_QUANT8_ASYMM, V1_0),
            ]),
        ),
        Param::new("weight", Ty::Var(0)).rank(Rank::Is(1)).omissible(),
        Param::scalar("type", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1))],
    outputs_repeat: false,
    check: check_projection,
    shape: ShapeRule::Infer(projected),
}];

/// What a projection gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// One integer for each hash function: its bits.
    SparseWithoutOffset,
    /// Every bit as an integer of its own.
    Dense,
    /// One integer for each hash function: its bits, plus an offset that tells the functions apart. Since
    /// 1.2.
    Sparse,
}

/// The projection that input 3 names.
pub fn projection(context: &dyn OperationContext) -> Result<Projection, ShapeIssue> {
    match context.i32(3)? {
        1 => Ok(Projection::SparseWithoutOffset),
        2 => Ok(Projection::Dense),
        3 => Ok(Projection::Sparse),
        other => {
            let message =
                format!("(type) is {other}, must be 1 (sparse, deprecated), 2 (dense) or 3 (sparse)");
            Err(OpError::input(3, message).into())
        }
    }
}

fn check_projection(context: &dyn OperationContext) -> Result<(), OpError> {
    unless_unknown(projection(context)).map(|_| ())
}

fn projected(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let projection = projection(context)?;
    let (hash, input) = (context.shape_of_rank(0, 2)?, context.shape(1)?);
    // Any number of them would cost no memory but be hashed for every bit.
    if input.dim(0) > 0 && input.dims().contains(&0) {
        let message =
            format!("has dimensions {input:?}: items without elements, must have at least one each");
        return Err(OpError::input(1, message).into());
    }
    let (functions, bits) = (hash.dim(0), hash.dim(1));
    // The offset of the last function and its bits must fit 32 bits together.
    let offset_bits = match projection {
        Projection::Sparse => functions.max(1).next_power_of_two().trailing_zeros(),
        _ => 0,
    };
    if bits > 32 || bits + offset_bits > 32 {
        let message = format!(
            "(hash) has {functions} functions of {bits} bits; the bits, with {offset_bits} for the offset, must be at \
             most 32"
        );
        return Err(OpError::input(0, message).into());
    }
    if context.input(2).is_some() {
        let weight = context.shape(2)?;
        if weight.dims() != [input.dim(0)] {
            let message = format!(
                "(weight) has dimensions {weight:?}, must be [{}] as input 1 has items",
                input.dim(0)
            );
            return Err(OpError::input(2, message).into());
        }
    }
    let length = match projection {
        Projection::Dense => functions.checked_mul(bits).ok_or_else(|| {
            OpError::input(
                0,
                format!("(hash) has {functions} functions of {bits} bits, beyond 32 bits in all"),
            )
        })?,
        Projection::Sparse | Projection::SparseWithoutOffset => functions,
    };
    set(outputs, 0, shape_of(&[length])?)
}
