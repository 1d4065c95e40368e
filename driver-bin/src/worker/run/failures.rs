//! What can be wrong with a run, in words. Boxed, so that what is right is told in a register.

use nnhal_hal::validate::{ArgumentPlan, Direction};
use nnhal_hal::{ErrorStatus, Failure, Place, Shape};

#[cold]
pub(super) fn no_memory(pool: u32) -> Box<Failure> {
    Failure::invalid_argument(format!("pool {pool} of the request is no memory")).into()
}

#[cold]
pub(super) fn not_computed(output: usize) -> Box<Failure> {
    Failure::general(format!("the device did not compute output {output}")).into()
}

#[cold]
pub(super) fn read_only(index: usize, pool: u32) -> Box<Failure> {
    Failure::invalid_argument(format!(
        "output {index} is in pool {pool}, which is shared for reading only"
    ))
    .at(Place {
        pool: Some(pool),
        ..Place::default()
    })
    .into()
}

#[cold]
pub(super) fn too_short(index: usize, given: u64, needed: u64) -> Box<Failure> {
    Failure::invalid_argument(format!(
        "input {index} has {given} bytes, the device needs {needed}"
    ))
    .into()
}

#[cold]
pub(super) fn contradicts(index: usize, expected: &Shape, found: &Shape) -> Box<Failure> {
    Failure::general(format!(
        "output {index} has dimensions {found:?} when computed, model and request say {expected:?}"
    ))
    .into()
}

#[cold]
pub(super) fn insufficient(
    index: usize,
    plan: Option<&ArgumentPlan>,
    output: Option<(&Shape, &[u8])>,
) -> Box<Failure> {
    let room = match plan {
        Some(ArgumentPlan::Memory { length, .. }) => *length,
        _ => 0,
    };
    let (shape, needed) = output.map_or((Shape::SCALAR, 0), |(shape, bytes)| (*shape, bytes.len()));
    Failure::new(
        ErrorStatus::OutputInsufficientSize,
        format!("output {index} has room for {room} bytes; with dimensions {shape:?} it takes {needed}"),
    )
    .into()
}

/// A failure to copy, with what was copied.
#[cold]
pub(super) fn of_argument(direction: Direction, index: usize, pool: u32, failure: Failure) -> Box<Failure> {
    let detail = format!("{direction} {index}: {}", failure.detail);
    Failure { detail, ..failure }
        .at(Place {
            pool: Some(pool),
            ..Place::default()
        })
        .into()
}
