//! Element-wise operations on 32-bit floats as links of a chain: what each computes, and how its operands serve the elements of
//! its result. PAD of rows, as where networks add to a tensor one with fewer channels, is one of them.

use nnhal::hal::{OperandType, OperationType, Shape};
use nnhal::ops::{OperandInfo, OperationContext};

use super::elementwise::{Binary, Unary, known_range, repeats_along_last_axis};
use crate::executor::Declared;

/// What is computed of the elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Unary(Unary),
    /// With what results are cut to.
    Binary(Binary, (f32, f32)),
    /// The greatest integers up to the sums of the elements, cut to a range, and a second operand: how graphs round.
    FloorOfSum((f32, f32)),
    /// Rows with zeros around them.
    Pad(PaddedRow),
}

/// A row with zeros around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PaddedRow {
    /// Zeros before it.
    pub(super) before: usize,
    /// Its elements.
    pub(super) length: usize,
    /// All elements.
    pub(super) padded: usize,
}

/// How an operand serves the elements of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Each has its own.
    Each,
    /// One serves all.
    One,
    /// A row of so many serves each row.
    Row(usize),
    /// Each row has a shorter one.
    Shorter(PaddedRow),
}

impl Extent {
    /// How many elements of the result make a row, if that matters.
    pub(super) fn row(self) -> Option<usize> {
        match self {
            Extent::Each | Extent::One => None,
            Extent::Row(length) => Some(length),
            Extent::Shorter(row) => Some(row.padded),
        }
    }
}

/// An operation, by the operands of its graph.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) function: Function,
    pub(super) inputs: Vec<(u32, Extent)>,
    pub(super) output: u32,
}

impl Link {
    /// `operation`, if it is an element-wise one, or pads rows, and gives `elements` floats, with operands that need no walk.
    pub(super) fn of(operation: &Declared<'_>, elements: usize) -> Option<Link> {
        let kind = operation.operation.operation_type;
        if kind == OperationType::PAD {
            return Link::of_pad(operation, elements);
        }
        let (function, count) = match (Unary::of(kind), Binary::of(kind)) {
            (Some(unary), _) => (Function::Unary(unary), 1),
            (_, Some(binary)) => (Function::Binary(binary, known_range(binary, operation)?), 2),
            _ => return None,
        };
        let shapes: Vec<Shape> = (0..count)
            .map(|number| Some(floats(operation.input(number)?)?.shape))
            .collect::<Option<_>>()?;
        let inputs = shapes.iter().enumerate().map(|(number, shape)| {
            let extent = match shape.elements().ok()? {
                count if count == elements => Extent::Each,
                1 => Extent::One,
                // The left one has all elements, so its shape is the result's.
                row if number == 1 && repeats_along_last_axis(&shapes[0], &shapes[0], shape) => {
                    Extent::Row(row)
                }
                _ => return None,
            };
            Some((operation.operation.inputs[number], extent))
        });
        let inputs: Vec<_> = inputs.collect::<Option<_>>()?;
        // Of single elements a result of more is made by broadcasting only.
        let is_whole = inputs.iter().any(|(_, extent)| *extent == Extent::Each);
        is_whole.then_some(Link {
            function,
            inputs,
            output: *operation.operation.outputs.first()?,
        })
    }

    /// The same for one that pads rows with zeros.
    fn of_pad(operation: &Declared<'_>, elements: usize) -> Option<Link> {
        let shape = floats(operation.input(0)?)?.shape;
        let paddings = operation.input(1)?;
        let paddings: &[i32] = bytemuck::try_cast_slice(paddings.bytes?).ok()?;
        let (&[before, after], others) = paddings
            .split_last_chunk::<2>()
            .map(|(others, last)| (last, others))?;
        let length = *shape.dims().last()? as usize;
        let row = PaddedRow {
            before: usize::try_from(before).ok()?,
            length,
            padded: length.checked_add(usize::try_from(before.checked_add(after)?).ok()?)?,
        };
        let rows = shape.elements().ok()?.checked_div(length)?;
        let fits = others.iter().all(|padding| *padding == 0)
            && after >= 0
            && rows.checked_mul(row.padded) == Some(elements);
        fits.then_some(Link {
            function: Function::Pad(row),
            inputs: vec![(*operation.operation.inputs.first()?, Extent::Shorter(row))],
            output: *operation.operation.outputs.first()?,
        })
    }
}

fn floats(operand: OperandInfo<'_>) -> Option<OperandInfo<'_>> {
    (operand.ty() == OperandType::TENSOR_FLOAT32 && operand.shape_known).then_some(operand)
}
