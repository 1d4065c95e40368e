//! PAD, PAD_V2 and MIRROR_PAD: more room around a tensor.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape, tflite};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{Level7, V1_1, V1_2, V1_3};

const PAD_TYPES: &[Variant] = &[
    Variant::new(V1_1, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_1, &[T::TENSOR_QUANT8_ASYMM]).only_if(zero_means_zero),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

/// The tensor and the scalar that fills the room; the quantised ones take an integer in the tensor's own
/// steps.
const PAD_V2_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::INT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::INT32]),
];

const MIRROR_PAD_TYPES: &[Variant] = &[
    Variant::new(Level7, &[T::TENSOR_FLOAT32]),
    Variant::new(Level7, &[T::TENSOR_FLOAT16]),
    Variant::new(Level7, &[T::TENSOR_INT32]),
    Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const INPUT: Param = Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4));
pub(super) const PADDINGS: Param = Param::new("paddings", Ty::Is(T::TENSOR_INT32)).late_rank(Rank::Is(2));
const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::PAD,
        variants: PAD_TYPES,
        forms: &[Form::default(&[INPUT, PADDINGS])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(padded),
    },
    OperationEntry {
        operation: OperationType::PAD_V2,
        variants: PAD_V2_TYPES,
        forms: &[Form::default(&[
            INPUT,
            PADDINGS,
            Param::new("pad_value", Ty::Var(1)),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: check_pad_v2,
        shape: ShapeRule::Infer(padded),
    },
    OperationEntry {
        operation: OperationType::MIRROR_PAD,
        variants: MIRROR_PAD_TYPES,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK)),
            Param::new("paddings", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2)),
            Param::scalar("mode", T::INT32),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: check_mirror_pad,
        shape: ShapeRule::Infer(mirrored),
    },
];

/// Before 1.2 the HAL does not say what fills a quantised tensor; only with zero point 0 there is no choice.
pub(super) fn zero_means_zero(context: &dyn OperationContext) -> Result<(), OpError> {
    let zero_point = context.required(0)?.operand.zero_point;
    if zero_point == 0 {
        return Ok(());
    }
    Err(OpError::input(
        0,
        format!("(input) has zero point {zero_point}, must be 0 before HAL 1.2"),
    ))
}

fn check_pad_v2(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    let range = match context.required(0)?.ty() {
        T::TENSOR_QUANT8_ASYMM => 0..=255,
        T::TENSOR_QUANT8_ASYMM_SIGNED => -128..=127,
        T::TENSOR_QUANT16_SYMM => -32768..=32767,
        tflite::TENSOR_INT64 => return context.check_single_element(2, "pad_value"),
        _ => return Ok(()),
    };
    match unless_unknown(context.i32(2))? {
        Some(value) if !range.contains(&value) => Err(OpError::input(
            2,
            format!(
                "(pad_value) is {value}, must be from {} to {}",
                range.start(),
                range.end()
            ),
        )),
        _ => Ok(()),
    }
}

/// Every extent with what input 1 puts before and after it.
fn padded(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut shape = context.shape(0)?;
    let paddings = context.i32s(1)?;
    let given = context.shape(1)?;
    if given.dims() != [shape.rank() as u32, 2] {
        let message = format!(
            "(paddings) has dimensions {given:?}, must be [{}, 2] for input 0 of rank {0}",
            shape.rank()
        );
        return Err(OpError::input(1, message).into());
    }
    for (axis, (extent, around)) in shape
        .dims_mut()
        .iter_mut()
        .zip(paddings.chunks_exact(2))
        .enumerate()
    {
        *extent = around
            .iter()
            .try_fold(*extent, |extent, &room| extent.checked_add(u32::try_from(room).ok()?))
            .ok_or_else(|| {
                let message = format!(
                    "(paddings) puts {around:?} around axis {axis}, must not be negative, nor the sum beyond 32 bits"
                );
                OpError::input(1, message)
            })?;
    }
    set(outputs, 0, shape_of(shape.dims())?)
}

/// How MIRROR_PAD mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// At the border element, which is not repeated: mode 0, REFLECT.
    AtBorder,
    /// Behind the border element, which is: mode 1, SYMMETRIC.
    BehindBorder,
}

impl Mirror {
    /// That of a MIRROR_PAD.
    ///
    /// # Errors
    /// Another number than 0 and 1.
    pub fn of(context: &dyn OperationContext) -> Result<Mirror, ShapeIssue> {
        match context.i32(2)? {
            0 => Ok(Mirror::AtBorder),
            1 => Ok(Mirror::BehindBorder),
            other => {
                let message = format!("(mode) is {other}, must be 0 (REFLECT) or 1 (SYMMETRIC)");
                Err(OpError::input(2, message).into())
            }
        }
    }

    /// The most elements that can be mirrored of an axis of this extent.
    fn most(self, extent: u32) -> u32 {
        match self {
            Mirror::AtBorder => extent.saturating_sub(1),
            Mirror::BehindBorder => extent,
        }
    }
}

fn check_mirror_pad(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    unless_unknown(Mirror::of(context))?;
    Ok(())
}

/// As PAD, by no more than there is to mirror.
fn mirrored(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mirror = Mirror::of(context)?;
    padded(context, outputs)?;
    let shape = context.shape(0)?;
    let paddings = context.i32s(1)?.chunks_exact(2);
    for (axis, (&extent, around)) in shape.dims().iter().zip(paddings).enumerate() {
        let most = mirror.most(extent);
        // None is negative.
        if around.iter().any(|&room| room as u32 > most) {
            let message = format!(
                "(paddings) puts {around:?} around axis {axis}, at most {most} can be mirrored of an extent of {extent}"
            );
            return Err(OpError::input(1, message).into());
        }
    }
    Ok(())
}
