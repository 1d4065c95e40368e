//! Random numbers: RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL, MULTINOMIAL and RNG_BIT_GENERATOR.
//!
//! Each takes the state of a generator and gives the one after it. Equal states lead to equal numbers. But a
//! generator of zeros stands for any: the numbers differ from one execution to the next.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::fill::shape_in;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank, Ty, Variant};
use crate::{HalVersion, OperandType as T, OperationType, Shape, tflite};

/// The words of a generator: two of its key, then the counter of what comes next, the lowest first.
pub const GENERATOR_WORDS: usize = 6;

const GENERATOR: Param = Param::integers("generator");

/// 64-bit words as their halves, the lower one first.
const STATE: Param = Param::new("state", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2));

pub(super) const ENTRIES: &[OperationEntry] = &[
    floats(tflite::RANDOM_UNIFORM),
    floats(tflite::RANDOM_STANDARD_NORMAL),
    OperationEntry {
        operation: tflite::MULTINOMIAL,
        variants: &[Variant::new(HalVersion::V1_2, &[T::TENSOR_FLOAT32])],
        forms: &[Form::default(&[
            Param::new("logits", Ty::Var(0)).rank(Rank::Is(2)),
            Param::new("sample_count", Ty::Is(T::TENSOR_INT32)),
            GENERATOR,
        ])],
        outputs: &[
            Param::new("classes", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2)),
            GENERATOR,
        ],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(sampled),
    },
    OperationEntry {
        operation: tflite::RNG_BIT_GENERATOR,
        variants: &[],
        forms: &[Form::default(&[
            STATE,
            Param::integers("shape"),
            Param::scalar("algorithm", T::INT32),
        ])],
        outputs: &[STATE, Param::new("bits", Ty::Is(T::TENSOR_INT32))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(words),
    },
];

const SPELLED_OUT: &[Form] = &[Form::default(&[Param::integers("shape"), GENERATOR])];

const FLOATS: &[Param] = &[Param::new("values", Ty::Is(T::TENSOR_FLOAT32)), GENERATOR];

const fn floats(operation: OperationType) -> OperationEntry {
    OperationEntry {
        operation,
        variants: &[],
        forms: SPELLED_OUT,
        outputs: FLOATS,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(spelled_out),
    }
}

/// The shape of a generator that is this input.
fn generator(context: &dyn OperationContext, input: usize) -> Result<Shape, ShapeIssue> {
    let shape = context.shape_of_rank(input, 1)?;
    if shape.dims() != [GENERATOR_WORDS as u32] {
        let message = format!("(generator) has dimensions {shape:?}, must have [{GENERATOR_WORDS}]");
        return Err(OpError::input(input, message).into());
    }
    Ok(shape)
}

fn spelled_out(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 1, generator(context, 1)?)?;
    set(outputs, 0, shape_in(context, 0, "shape")?)
}

/// As many samples as asked for, for each batch.
fn sampled(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 1, generator(context, 2)?)?;
    let logits = context.shape_of_rank(0, 2)?;
    if logits.dim(1) == 0 {
        return Err(OpError::input(0, "(logits) has no classes to draw from").into());
    }
    let samples = context.i32(1)?;
    let samples = u32::try_from(samples)
        .map_err(|_| OpError::input(1, format!("(sample_count) is {samples}, must be 0 or above")))?;
    set(outputs, 0, shape_of(&[logits.dim(0), samples])?)
}

/// How RNG_BIT_GENERATOR makes bits of a key and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Philox4x32-10. The counter's upper half is the state's third word, or the key where there is none.
    Philox,
    /// Threefry2x32-20.
    Threefry,
}

/// The algorithm that input 2 names.
pub fn algorithm(context: &dyn OperationContext) -> Result<Algorithm, ShapeIssue> {
    match context.i32(2)? {
        // The first one leaves the choice to whoever computes it.
        0 | 1 => Ok(Algorithm::Philox),
        2 => Ok(Algorithm::Threefry),
        other => {
            let message = format!("(algorithm) is {other}, must be 0 (any), 1 (Philox) or 2 (Threefry)");
            Err(OpError::input(2, message).into())
        }
    }
}

/// The state's own shape, and for the bits the one that input 1 holds.
fn words(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let algorithm = algorithm(context)?;
    let state = context.shape_of_rank(0, 2)?;
    let (fits, wanted) = match algorithm {
        Algorithm::Philox => (matches!(state.dims(), [2 | 3, 2]), "[2, 2] or [3, 2]"),
        Algorithm::Threefry => (state.dims() == [2, 2], "[2, 2]"),
    };
    if !fits {
        let message = format!("(state) has dimensions {state:?}, must have {wanted} for {algorithm:?}");
        return Err(OpError::input(0, message).into());
    }
    set(outputs, 0, state)?;
    set(outputs, 1, shape_in(context, 1, "shape")?)
}
