//! Element-wise operations on 32-bit floats as links of a chain: what each computes, and how its operands
//! serve the elements of its result. PAD of rows, as where networks add to a tensor one with fewer channels,
//! is one of them.

use nnhal_hal::ops::{OperandInfo, OperationContext};
use nnhal_hal::{OperandType, OperationType, Shape};

use super::elementwise::binary::{Binary, known_range, repeats_along_last_axis};
use super::elementwise::unary::Unary;
use super::padded_row::PaddedRow;
use crate::kernels::activation_range::Activation;
use crate::plan::Declared;

/// What is computed of the elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Unary(Unary),
    /// With what results are clamped to.
    Binary(Binary, (f32, f32)),
    /// The greatest integers up to the sums of the elements, clamped to a range, and a second operand: how
    /// graphs round.
    FloorOfSum((f32, f32)),
    /// Elements rounded to integers: what is left of two sums that are rounded down, one of the positive
    /// elements and one of the negative ones. What is added to these are the second and the third operand; a
    /// fourth one scales elements before. They have one element each.
    Round,
    /// Rows with zeros around them.
    Pad(PaddedRow),
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
    /// `operation`, if it is an element-wise one, or pads rows, and gives `elements` floats, with operands
    /// that need no walk.
    pub(super) fn of(operation: &Declared<'_>, elements: usize) -> Option<Link> {
        let kind = operation.operation.operation_type;
        if kind == OperationType::PAD {
            return Link::of_pad(operation, elements);
        }
        let (function, count) = match (Unary::of(operation), Binary::of(kind)) {
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

/// Joins operations that one function computes, where nothing else reads what is between them: several passes
/// would store and load it each time.
pub(super) fn joined(links: &[Link]) -> Vec<Link> {
    let sums = replaced::<3>(links, floor_of_sum);
    let rounds = replaced::<2>(&replaced::<4>(&sums, round), scaled_round);
    replaced::<2>(&rounds, clamped_result)
}

/// The links with those that `join` makes of neighbours in their place; nothing else reads what is between
/// these.
fn replaced<const N: usize>(links: &[Link], join: fn(&[Link; N]) -> Option<Link>) -> Vec<Link> {
    let is_read_once = |link: &Link| {
        let readers = links.iter().flat_map(|link| &link.inputs);
        readers.filter(|(input, _)| *input == link.output).count() == 1
    };
    let mut joined = Vec::with_capacity(links.len());
    let mut rest = links;
    while let [first, after @ ..] = rest {
        let some = rest.first_chunk::<N>();
        let some = some.filter(|some| some[..N - 1].iter().all(is_read_once));
        let together = some.and_then(join);
        rest = if together.is_some() { &rest[N..] } else { after };
        joined.push(together.unwrap_or_else(|| first.clone()));
    }
    joined
}

/// [`Function::FloorOfSum`] of what clamps, adds and rounds.
fn floor_of_sum([clamp, sum, floor]: &[Link; 3]) -> Option<Link> {
    let Function::Unary(Unary::Clamp(activation)) = clamp.function else {
        return None;
    };
    let is_sum =
        matches!(sum.function, Function::Binary(Binary::Add, range) if range == Activation::None.range());
    let is_floor = matches!(floor.function, Function::Unary(Unary::Floor));
    let position = sum.inputs.iter().position(|(input, _)| *input == clamp.output)?;
    let follow = floor.inputs[0].0 == sum.output;
    (is_sum && is_floor && follow).then(|| Link {
        function: Function::FloorOfSum(activation.range()),
        inputs: vec![clamp.inputs[0], sum.inputs[1 - position]],
        output: floor.output,
    })
}

/// [`Function::Round`] of what rounds the positive elements and the negative ones, in either order, and
/// subtracts.
fn round(links: &[Link; 4]) -> Option<Link> {
    let [before @ .., difference] = links;
    let is_difference = matches!(difference.function, Function::Binary(Binary::Sub, range) if range == Activation::None.range());
    let part = |number: usize| {
        let (operand, _) = *difference.inputs.get(number)?;
        before.iter().find(|link| {
            let is_positive_part =
                matches!(link.function, Function::FloorOfSum(range) if range == Activation::Relu.range());
            is_positive_part && link.output == operand
        })
    };
    let (positive, of_negative) = (part(0)?, part(1)?);
    let is_negate = |link: &&Link| matches!(link.function, Function::Unary(Unary::Negate));
    let negative = before.iter().find(is_negate)?;
    let (value, addends) = (positive.inputs[0], [positive.inputs[1], of_negative.inputs[1]]);
    let are_alike = negative.inputs[0] == value
        && of_negative.inputs[0] == (negative.output, Extent::Each)
        && value.1 == Extent::Each
        && addends.iter().all(|(_, extent)| *extent == Extent::One);
    (is_difference && are_alike).then(|| Link {
        function: Function::Round,
        inputs: vec![value, addends[0], addends[1]],
        output: difference.output,
    })
}

/// [`Function::Round`] with what scales before.
fn scaled_round([scale, round]: &[Link; 2]) -> Option<Link> {
    let is_scale =
        matches!(scale.function, Function::Binary(Binary::Mul, range) if range == Activation::None.range());
    let is_round = matches!(round.function, Function::Round) && round.inputs.len() == 3;
    let follow = round.inputs[0].0 == scale.output;
    let (value, by) = match scale.inputs[..] {
        [value, by] if by.1 == Extent::One => (value, by),
        [by, value] if by.1 == Extent::One => (value, by),
        _ => return None,
    };
    (is_scale && is_round && follow && value.1 == Extent::Each).then(|| Link {
        function: Function::Round,
        inputs: vec![value, round.inputs[1], round.inputs[2], by],
        output: round.output,
    })
}

/// An operation with an activation, and what clamps its result.
fn clamped_result([first, clamp]: &[Link; 2]) -> Option<Link> {
    let (Function::Binary(binary, range), Function::Unary(Unary::Clamp(activation))) =
        (first.function, clamp.function)
    else {
        return None;
    };
    let is_whole = range == Activation::None.range() && binary.has_activation();
    let follow = clamp.inputs[0].0 == first.output;
    (is_whole && follow).then(|| Link {
        function: Function::Binary(binary, activation.range()),
        inputs: first.inputs.clone(),
        output: clamp.output,
    })
}

fn floats(operand: OperandInfo<'_>) -> Option<OperandInfo<'_>> {
    (operand.ty() == OperandType::TENSOR_FLOAT32 && operand.shape_known).then_some(operand)
}

#[cfg(test)]
mod tests {
    use super::{Activation, Binary, Extent, Function, Link, Unary, joined};

    fn link(function: Function, inputs: &[u32], output: u32) -> Link {
        Link {
            function,
            inputs: inputs.iter().map(|input| (*input, Extent::Each)).collect(),
            output,
        }
    }

    #[test]
    fn what_cuts_a_result_is_joined_with_it_if_nothing_else_reads_it() {
        let sum = link(
            Function::Binary(Binary::Add, Activation::None.range()),
            &[0, 1],
            2,
        );
        let clamp = link(Function::Unary(Unary::Clamp(Activation::Relu6)), &[2], 3);
        let alone = joined(&[sum.clone(), clamp.clone()]);
        assert_eq!((alone.len(), alone[0].output), (1, 3));
        assert!(matches!(alone[0].function, Function::Binary(Binary::Add, range) if range == (0.0, 6.0)));
        let reader = link(
            Function::Binary(Binary::Mul, Activation::None.range()),
            &[2, 3],
            4,
        );
        assert_eq!(joined(&[sum.clone(), clamp.clone(), reader]).len(), 3);
        // What is clamped already, or has no activation, is clamped once more.
        for function in [
            Function::Binary(Binary::Add, Activation::Relu1.range()),
            Function::Binary(Binary::Maximum, Activation::None.range()),
        ] {
            assert_eq!(joined(&[link(function, &[0, 1], 2), clamp.clone()]).len(), 2);
        }
    }
}
