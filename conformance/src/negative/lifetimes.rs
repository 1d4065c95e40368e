//! M06 and M07: lifetimes against writers and against the index lists.

use nnhal_hal::{DataLocation, Model, OperandLifeTime};

use super::mutant::{Mutant, Place};

use OperandLifeTime::{ConstantCopy, ConstantReference, SubgraphInput, SubgraphOutput, TemporaryVariable};

/// M06: what is written becomes an input or a constant, what is not written becomes a temporary or an output.
/// The index lists and locations follow. What is omitted, or refers to a graph, stays.
pub(super) fn written_or_not(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let others: &[OperandLifeTime] = match operand.lifetime {
            TemporaryVariable | SubgraphOutput => &[SubgraphInput, ConstantCopy],
            ConstantCopy | ConstantReference | SubgraphInput => &[TemporaryVariable, SubgraphOutput],
            OperandLifeTime::NoValue | OperandLifeTime::Subgraph => &[],
        };
        for lifetime in others {
            let mut model = model.clone();
            // A constant's size must be known.
            if place(&mut model, at, *lifetime).is_some() {
                list(&mut model, at);
                emit(mutant(model, at, *lifetime));
            }
        }
    }
}

/// M07: the lifetime changes between constant and input, or output and temporary; the index lists do not.
pub(super) fn index_lists(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let lifetime = match operand.lifetime {
            ConstantCopy | ConstantReference => SubgraphInput,
            SubgraphInput => ConstantCopy,
            SubgraphOutput => TemporaryVariable,
            TemporaryVariable => SubgraphOutput,
            OperandLifeTime::NoValue | OperandLifeTime::Subgraph => continue,
        };
        let mut model = model.clone();
        if place(&mut model, at, lifetime).is_some() {
            emit(mutant(model, at, lifetime));
        }
    }
}

fn mutant(model: Model, at: usize, lifetime: OperandLifeTime) -> Mutant {
    Mutant {
        change: format!("operand {at} gets lifetime {lifetime:?}"),
        model,
        places: vec![Place::Operand(at)],
    }
}

/// Gives an operand a lifetime, with the location that goes with it. `None` for a constant of unknown size.
fn place(model: &mut Model, at: usize, lifetime: OperandLifeTime) -> Option<()> {
    let operand = &mut model.main.operands[at];
    operand.lifetime = lifetime;
    operand.location = DataLocation::default();
    if lifetime != ConstantCopy {
        return Some(());
    }
    let elements: usize = operand.dimensions.iter().map(|extent| *extent as usize).product();
    let unknown_rank = operand.operand_type.is_tensor() && operand.dimensions.is_empty();
    if unknown_rank || elements == 0 {
        return None;
    }
    let length = elements * operand.operand_type.element_size();
    let offset = model.operand_values.len().next_multiple_of(4);
    model.operand_values.resize(offset + length, 0);
    operand.location = DataLocation {
        pool_index: 0,
        offset: offset as u32,
        length: length as u32,
    };
    Some(())
}

/// Puts an operand into the index list of its lifetime and out of the other.
fn list(model: &mut Model, at: usize) {
    let main = &mut model.main;
    let lifetime = main.operands[at].lifetime;
    for (list, its) in [
        (&mut main.input_indexes, SubgraphInput),
        (&mut main.output_indexes, SubgraphOutput),
    ] {
        list.retain(|index| *index as usize != at);
        if lifetime == its {
            list.push(at as u32);
        }
    }
}
