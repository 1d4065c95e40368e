//! Rules that recurrent layers share: which optional inputs are there, and which dimensions they must have.

use crate::{OperandLifeTime, OperandType};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::signature::{Param, Rank, Ty, Variant};
use crate::HalVersion;

/// Float types: variable 0 the tensors, variable 1 the scalars beside them.
pub(super) const SINCE_1_0: &[Variant] = &[
    Variant::new(
        HalVersion::V1_0,
        &[OperandType::TENSOR_FLOAT32, OperandType::FLOAT32],
    ),
    Variant::new(
        HalVersion::V1_2,
        &[OperandType::TENSOR_FLOAT16, OperandType::FLOAT16],
    ),
];

/// The same for operations of HAL 1.2.
pub(super) const SINCE_1_2: &[Variant] = &[
    Variant::new(
        HalVersion::V1_2,
        &[OperandType::TENSOR_FLOAT32, OperandType::FLOAT32],
    ),
    Variant::new(
        HalVersion::V1_2,
        &[OperandType::TENSOR_FLOAT16, OperandType::FLOAT16],
    ),
];

/// A float tensor of rank 1.
pub(super) const fn vector(name: &'static str) -> Param {
    Param::new(name, Ty::Var(0)).late_rank(Rank::Is(1))
}

/// A float tensor of rank 2.
pub(super) const fn matrix(name: &'static str) -> Param {
    Param::new(name, Ty::Var(0)).late_rank(Rank::Is(2))
}

/// A float tensor of rank 3: time and batch in either order, then values.
pub(super) const fn sequence(name: &'static str) -> Param {
    Param::new(name, Ty::Var(0)).late_rank(Rank::Is(3))
}

/// Whether an optional input has a value; `None` if only the request tells.
pub fn presence(context: &dyn OperationContext, input: usize) -> Option<bool> {
    match context.input(input) {
        None => Some(false),
        Some(info) if !context.executing() && info.operand.lifetime == OperandLifeTime::SubgraphInput => None,
        Some(_) => Some(true),
    }
}

/// Whether these inputs, `what` by name, have values; they must be all given or all omitted. `None` if only
/// the request tells.
pub(super) fn all_or_none(
    context: &dyn OperationContext,
    inputs: &[usize],
    what: &str,
) -> Result<Option<bool>, OpError> {
    let mut known = None;
    for &input in inputs {
        match (presence(context, input), known) {
            (None, _) => {}
            (Some(present), None) => known = Some((input, present)),
            (Some(present), Some((_, same))) if present == same => {}
            (Some(present), Some((other, _))) => {
                let state = if present { "given" } else { "omitted" };
                let message =
                    format!("is {state} but input {other} is not; {what} must be all given or all omitted");
                return Err(OpError::input(input, message));
            }
        }
    }
    Ok(known.map(|(_, present)| present))
}

/// The input must be omitted.
pub(super) fn expect_omitted(context: &dyn OperationContext, input: usize, why: &str) -> Result<(), OpError> {
    if presence(context, input) == Some(true) {
        return Err(OpError::input(input, format!("is given, must be omitted {why}")));
    }
    Ok(())
}

/// The input must have these dimensions, once its own are known.
pub(super) fn expect_dims(context: &dyn OperationContext, input: usize, dims: &[u32]) -> Result<(), OpError> {
    match context.input(input) {
        Some(info) if info.shape_known && info.shape.dims() != dims => Err(OpError::input(
            input,
            format!("has dimensions {:?}, must be {dims:?}", info.shape),
        )),
        _ => Ok(()),
    }
}

/// The same for an input that may be omitted. What may still be omitted may have any dimensions: they say
/// nothing.
pub(super) fn expect_optional_dims(
    context: &dyn OperationContext,
    input: usize,
    dims: &[u32],
) -> Result<(), OpError> {
    match presence(context, input) {
        Some(true) => expect_dims(context, input, dims),
        _ => Ok(()),
    }
}

/// The number of outputs must be one of these.
pub(super) fn expect_output_count(context: &dyn OperationContext, counts: &[usize]) -> Result<(), OpError> {
    let count = context.output_count();
    if counts.contains(&count) {
        return Ok(());
    }
    let list: Vec<String> = counts.iter().map(ToString::to_string).collect();
    Err(OpError::operation(format!(
        "has {count} outputs, gives {} with these inputs",
        list.join(" or ")
    )))
}

/// An integer input must be one of these codes, once it is known.
pub(super) fn check_code(
    context: &dyn OperationContext,
    input: usize,
    name: &str,
    codes: &[i32],
) -> Result<(), OpError> {
    match unless_unknown(context.i32(input))? {
        Some(code) if !codes.contains(&code) => Err(OpError::input(
            input,
            format!("({name}) is {code}, must be one of {codes:?}"),
        )),
        _ => Ok(()),
    }
}

/// The codes of a recurrent layer's activation: none, ReLU, ReLU1 and ReLU6 as in other operations, and tanh
/// and logistic by the numbers that TFLite has for them and sends.
const ACTIVATIONS: &[i32] = &[0, 1, 2, 3, 4, 6];

/// The activation of a recurrent layer must have one of its codes, once it is known.
pub(super) fn check_activation(context: &dyn OperationContext, input: usize) -> Result<(), OpError> {
    check_code(context, input, "activation", ACTIVATIONS)
}

/// A bound must not be negative, once it is known; 0 sets none. Omitted ones set none either.
pub(super) fn check_bound(context: &dyn OperationContext, input: usize, name: &str) -> Result<(), OpError> {
    if context.input(input).is_none() {
        return Ok(());
    }
    match unless_unknown(context.f32(input))? {
        Some(bound) if bound.is_nan() || bound < 0.0 => Err(OpError::input(
            input,
            format!("({name}) is {bound}, must be 0 (no bound) or above"),
        )),
        _ => Ok(()),
    }
}

/// Time steps and batches of a sequence of rank 3 in input `input`, and the length of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceShape {
    /// Time steps.
    pub steps: u32,
    /// Batches.
    pub batches: u32,
    /// Values of each item.
    pub values: u32,
    /// Whether time comes before the batch.
    pub time_major: bool,
}

impl SequenceShape {
    /// The shape of input `input`.
    pub fn of(
        context: &dyn OperationContext,
        input: usize,
        time_major: bool,
    ) -> Result<SequenceShape, ShapeIssue> {
        let shape = context.shape_of_rank(input, 3)?;
        let (time, batch) = if time_major { (0, 1) } else { (1, 0) };
        Ok(SequenceShape {
            steps: shape.dim(time),
            batches: shape.dim(batch),
            values: shape.dim(2),
            time_major,
        })
    }

    /// The dimensions of a sequence of the same steps and batches with items of `values`.
    #[must_use]
    pub fn dims(&self, values: u32) -> [u32; 3] {
        if self.time_major {
            [self.steps, self.batches, values]
        } else {
            [self.batches, self.steps, values]
        }
    }

    /// For item `values` long: where step `step` of the first batch starts, and how far apart batches are.
    #[must_use]
    pub fn rows(&self, step: usize, values: usize) -> (usize, usize) {
        if self.time_major {
            (step * self.batches as usize * values, values)
        } else {
            (step * values, self.steps as usize * values)
        }
    }
}
