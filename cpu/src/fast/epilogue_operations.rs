//! Operations behind a convolution of floats that its epilogue computes.

use super::chain::{Extent, Function, Link, joined};
use super::elementwise::binary::Binary;
use super::epilogue::{Added, Both, Epilogue, Scaled};
use super::padded_row::PaddedRow;
use super::simd::WIDE;
use crate::kernels::activation_range::Activation;
use crate::plan::Declared;

/// Most operations behind a layer that are looked at with it: PAD, ADD, what clamps its sums, and PRELU.
const MOST: usize = 4;

/// Operations behind a layer of floats that its epilogue computes.
#[derive(Debug)]
pub(super) struct EpilogueOperations {
    operations: usize,
    /// The operand that is added, and how its rows serve those of the results.
    addend: Option<(u32, PaddedRow)>,
    /// What sums are clamped to.
    range: (f32, f32),
    /// The operand with what negative results are multiplied with, one value for each column.
    slopes: Option<u32>,
    output: u32,
    /// Elements of the results, and of each row.
    elements: usize,
    columns: usize,
}

impl EpilogueOperations {
    /// As many of the first of `operations` as an epilogue computes behind a layer that gives the operand
    /// `layer`, `elements` elements in rows of `columns`, which are whole vectors. `ends_within(operand,
    /// count)` says whether no other than the first `count` of them, and the layer, read an operand.
    pub(super) fn longest<'d>(
        operations: impl Iterator<Item = Declared<'d>>,
        layer: u32,
        (elements, columns): (usize, usize),
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<EpilogueOperations> {
        let links = operations.take(MOST);
        let links: Vec<Link> = links
            .map_while(|operation| Link::of(&operation, elements))
            .collect();
        (1..=links.len()).rev().find_map(|count| {
            let inner = links[..count - 1].iter().map(|link| link.output);
            let is_closed = inner.chain([layer]).all(|operand| ends_within(operand, count));
            let links = joined(&links[..count]);
            is_closed
                .then(|| EpilogueOperations::of((&links, count), layer, (elements, columns)))
                .flatten()
        })
    }

    /// All of these, which are so many operations, if they are such.
    fn of(
        (links, operations): (&[Link], usize),
        layer: u32,
        (elements, columns): (usize, usize),
    ) -> Option<EpilogueOperations> {
        let mut epilogue_operations = EpilogueOperations {
            operations,
            addend: None,
            range: Activation::None.range(),
            slopes: None,
            output: layer,
            elements,
            columns,
        };
        let mut links = links;
        let pad = links.first().and_then(|link| match link.function {
            Function::Pad(row) if row.padded == columns => Some((link, row)),
            _ => None,
        });
        if pad.is_some() {
            links = &links[1..];
        }
        if let [sum, behind @ ..] = links
            && let Function::Binary(Binary::Add, range) = sum.function
        {
            let position = sum
                .inputs
                .iter()
                .position(|input| *input == (layer, Extent::Each))?;
            let (addend, extent) = sum.inputs[1 - position];
            let whole = PaddedRow {
                before: 0,
                length: columns,
                padded: columns,
            };
            epilogue_operations.addend = Some(match pad {
                Some((pad, row)) if pad.output == addend => (pad.inputs[0].0, row),
                None if extent == Extent::Each => (addend, whole),
                _ => return None,
            });
            epilogue_operations.range = range;
            epilogue_operations.output = sum.output;
            links = behind;
        }
        if let [scale, behind @ ..] = links
            && matches!(scale.function, Function::Binary(Binary::Prelu, _))
            && scale.inputs[0] == (epilogue_operations.output, Extent::Each)
            && scale.inputs[1].1 == Extent::Row(columns)
        {
            epilogue_operations.slopes = Some(scale.inputs[1].0);
            epilogue_operations.output = scale.output;
            links = behind;
        }
        let (from_layer, is_padded) = (
            epilogue_operations
                .addend
                .is_some_and(|(operand, _)| operand == layer),
            pad.is_some()
                == epilogue_operations
                    .addend
                    .is_some_and(|(_, row)| row.length < row.padded),
        );
        let are_such = links.is_empty() && epilogue_operations.output != layer && !from_layer && is_padded;
        (are_such && epilogue_operations.adds_whole_vectors()).then_some(epilogue_operations)
    }

    /// Whether zeros begin and end with whole wide vectors, so that all columns of one have something added
    /// or none.
    fn adds_whole_vectors(&self) -> bool {
        self.addend.is_none_or(|(_, row)| {
            row.length == row.padded || (row.before.is_multiple_of(WIDE) && row.length.is_multiple_of(WIDE))
        })
    }

    /// How many operations these are.
    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    /// The operand that they compute.
    pub(super) fn output(&self) -> u32 {
        self.output
    }

    /// The epilogue, if everything that it reads is there.
    pub(super) fn ready<'v>(&self, bytes: impl Fn(u32) -> Option<&'v [u8]>) -> Option<Epilogue<'v>> {
        let floats = |operand: u32, length: usize| {
            let floats: &[f32] = bytemuck::try_cast_slice(bytes(operand)?).ok()?;
            (floats.len() == length).then_some(floats)
        };
        let added = match self.addend {
            Some((operand, row)) => {
                let length = self.elements / row.padded * row.length;
                Some(Added::new(floats(operand, length)?, row, self.range))
            }
            None => None,
        };
        let scaled = match self.slopes {
            Some(operand) => Some(Scaled(floats(operand, self.columns)?)),
            None => None,
        };
        match (added, scaled) {
            (Some(added), Some(scaled)) => Some(Epilogue::AddedAndScaled(Both(added, scaled))),
            (Some(added), None) => Some(Epilogue::Added(added)),
            (None, scaled) => scaled.map(Epilogue::Scaled),
        }
    }
}
