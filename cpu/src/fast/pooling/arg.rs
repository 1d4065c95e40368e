//! ARGMAX and ARGMIN of 8-bit values that are neighbours, to the same results as the reference.
//!
//! Each value makes a key with its place below it, such that the largest key is that of the first extreme; so
//! the largest of many is found side by side.

use nnhal_hal::ops::{OperationContext, ShapeIssue, shapes};
use nnhal_hal::{OperandType, OperationType};

use crate::fast::serves::Serves;
use crate::fast::simd::{Instructions, WIDE, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE, partition};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::plan::Declared;
use crate::plan::cost::BYTES_PER_PLACE;
use crate::threads::Cost;

/// Values that are compared at once.
const AT_ONCE: usize = 2 * WIDE;

/// Most values along the axis: places fill what a key has below its value.
const MOST: usize = 1 << u8::BITS;

/// A search for the places of the largest or of the smallest values.
#[derive(Debug)]
pub(in crate::fast) struct ArgStep {
    largest: bool,
    serves: Serves,
    /// For other types and axes.
    fallback: Kernel,
}

impl ArgStep {
    /// The step of an operation, if it is one of the two and may be executed as one that it takes.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<ArgStep> {
        let largest = match declared.operation.operation_type {
            OperationType::ARGMAX => true,
            OperationType::ARGMIN => false,
            _ => return None,
        };
        let serves = Serves::if_so(extent(declared).map(|extent| extent.is_some()));
        (serves != Serves::Never).then_some(ArgStep {
            largest,
            serves,
            fallback,
        })
    }
}

/// What makes the values of a type such that the largest unsigned one is the extreme.
pub(in crate::fast) fn flip(largest: bool, ty: OperandType) -> Option<u8> {
    let sign = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => 0,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => 0x80,
        _ => return None,
    };
    Some(if largest { sign } else { !sign })
}

/// How much work it is to look for so many places among so many values.
pub(in crate::fast) fn cost(places: usize, values: usize) -> Cost {
    // As long as its values are moved if they are many.
    Cost::of_bytes(places.saturating_mul(BYTES_PER_PLACE).max(values))
}

/// How many values there are along the axis, if they are neighbours and no more than keys have places for.
pub(in crate::fast) fn extent(context: &dyn OperationContext) -> Result<Option<usize>, ShapeIssue> {
    let shape = context.shape(0)?;
    let axis = shapes::resolve_axis(1, context.i32(1)?, shape.rank())?;
    let extent = shape.dim(axis) as usize;
    Ok((axis + 1 == shape.rank() && (1..=MOST).contains(&extent)).then_some(extent))
}

impl PlannedStep for ArgStep {
    fn name(&self, input: OperandType) -> &'static str {
        match flip(self.largest, input) {
            Some(_) => self.serves.name(
                "8-bit places of extremes",
                "8-bit places of extremes, reference on other axes",
            ),
            None => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        let (Some(flip), Some(extent)) = (flip(self.largest, input.ty()), extent(context.inputs.rules())?)
        else {
            return (self.fallback)(context);
        };
        let values = input.bytes;
        let output = context.outputs.data::<i32>(0)?;
        let cost = cost(output.len(), values.len());
        partition::for_each_part((context.team, cost), (output, 1), |elements, places| {
            dispatch(Search {
                values: &values[elements.start * extent..],
                extent,
                flip,
                places,
            });
        });
        Ok(())
    }
}

/// A search among bytes.
pub(in crate::fast) struct Search<'a> {
    pub(in crate::fast) values: &'a [u8],
    /// So many values for each place.
    pub(in crate::fast) extent: usize,
    /// What [`flip`] says.
    pub(in crate::fast) flip: u8,
    pub(in crate::fast) places: &'a mut [i32],
}

impl Work for Search<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        for (at, place) in self.places.iter_mut().enumerate() {
            let values = &self.values[at * self.extent..];
            let mut keys = [0; AT_ONCE];
            take_in(&mut keys, values, (0, self.extent), self.flip);
            for first in (AT_ONCE..self.extent).step_by(AT_ONCE) {
                take_in(&mut keys, &values[first..], (first, self.extent), self.flip);
            }
            // Of the place, what keys have is how far it is from the last possible one.
            *place = i32::from(!largest(keys) as u8);
        }
    }
}

/// Keeps of each lane the larger key: that which it has, or that of a value. Places count from `first` on and
/// end before `extent`.
#[inline(always)]
fn take_in(keys: &mut [u16; AT_ONCE], values: &[u8], (first, extent): (usize, usize), flip: u8) {
    let mut last = [0; AT_ONCE];
    let values = match values.first_chunk() {
        Some(all) => all,
        None => {
            last[..values.len()].copy_from_slice(values);
            &last
        }
    };
    let left = (extent - first).min(AT_ONCE) as u16;
    for (at, (key, value)) in (0_u16..).zip(keys.iter_mut().zip(values)) {
        let candidate = u16::from(value ^ flip) << u8::BITS | (MOST as u16 - 1 - first as u16 - at);
        *key = (*key).max(if at < left { candidate } else { 0 });
    }
}

/// The largest key.
#[inline(always)]
fn largest(keys: [u16; AT_ONCE]) -> u16 {
    keys.into_iter().fold(0, u16::max)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    #[test]
    fn places_are_those_of_the_reference() {
        for extent in [1, 2, 21, 31, 32, 33, 100, 256, 257] {
            // Few different values, so that many are extremes; and all that there are.
            for different in [1, 3, 256] {
                let data: Vec<u8> = (0..7 * extent)
                    .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 9 & 255) as u8)
                    .map(|value| (u32::from(value) * different / 256 * 255 / different.max(2)) as u8)
                    .collect();
                for operation in [OperationType::ARGMAX, OperationType::ARGMIN] {
                    for (ty, axis) in [
                        (T::TENSOR_QUANT8_ASYMM, -1),
                        (T::TENSOR_QUANT8_ASYMM_SIGNED, 1),
                        (T::TENSOR_QUANT8_ASYMM, 0),
                    ] {
                        let compute = |kernels| {
                            OneOperation::new(operation)
                                .operand(
                                    nnhal_hal::Operand::new(ty, &[7, extent]).with_quantization(0.5, 3),
                                    &data,
                                )
                                .i32(axis)
                                .output(T::TENSOR_INT32, &[])
                                .run_by(kernels, &RunOptions::default())
                                .unwrap()
                                .remove(0)
                                .bytes
                        };
                        let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
                        assert_eq!(found, exact, "{operation} {ty} {extent} {axis}");
                    }
                }
            }
        }
    }
}
