//! REDUCE_MAX and REDUCE_MIN of 32-bit floats: many elements side by side.

use nnhal::hal::{OperandType, OperationType};
use nnhal::ops::reduction::reduced_axes;

use super::simd::{Instructions, LANES, Work, dispatch};
use super::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::broadcast::for_each_run;

/// Vectors of extremes that are kept side by side, so that one need not wait for the one before.
const VECTORS: usize = 4;

/// Which of two elements is kept. Of a number and a NaN it is the number, as in the reference; of two zeros it may be
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extreme {
    Largest,
    Smallest,
}

impl Extreme {
    /// Which every element takes the place of.
    fn start(self) -> f32 {
        match self {
            Extreme::Largest => f32::NEG_INFINITY,
            Extreme::Smallest => f32::INFINITY,
        }
    }
}

/// A reduction to the largest or the smallest elements.
#[derive(Debug)]
pub(super) struct ExtremumStep {
    extreme: Extreme,
    /// For other types, and for what has no elements.
    fallback: Kernel,
}

impl ExtremumStep {
    /// The step of an operation, if it is one of the two.
    pub(super) fn of(operation: OperationType, fallback: Kernel) -> Option<ExtremumStep> {
        let extreme = match operation {
            OperationType::REDUCE_MAX => Extreme::Largest,
            OperationType::REDUCE_MIN => Extreme::Smallest,
            _ => return None,
        };
        Some(ExtremumStep { extreme, fallback })
    }
}

impl PlannedStep for ExtremumStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 extremum",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        if input.ty() != OperandType::TENSOR_FLOAT32 || input.bytes.is_empty() {
            return (self.fallback)(context);
        }
        let reduced = reduced_axes(context.inputs.rules())?;
        let mut kept = input.shape;
        for (extent, is_reduced) in kept.dims_mut().iter_mut().zip(reduced) {
            if is_reduced {
                *extent = 1;
            }
        }
        let data = input.data::<f32>()?;
        let output = context.outputs.data::<f32>(0)?;
        output.fill(self.extreme.start());
        // The results broadcast to the input: a run has one of them, or one for each element.
        for_each_run(&input.shape, &kept, &input.shape, |run| {
            let results = if run.left_moves { run.length } else { 1 };
            dispatch(Reduce {
                extreme: self.extreme,
                elements: &data[run.output..][..run.length],
                results: &mut output[run.left..][..results],
            });
        })?;
        Ok(())
    }
}

/// Takes elements into one result, or each into its own.
struct Reduce<'a> {
    extreme: Extreme,
    elements: &'a [f32],
    results: &'a mut [f32],
}

impl Work for Reduce<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        match self.extreme {
            Extreme::Largest => self.take_in(f32::max),
            Extreme::Smallest => self.take_in(f32::min),
        }
    }
}

impl Reduce<'_> {
    #[inline(always)]
    fn take_in(self, choose: impl Fn(f32, f32) -> f32) {
        let [result] = self.results else {
            for (result, element) in self.results.iter_mut().zip(self.elements) {
                *result = choose(*result, *element);
            }
            return;
        };
        let (whole, rest) = self.elements.as_chunks::<{ VECTORS * LANES }>();
        let mut lanes = [self.extreme.start(); VECTORS * LANES];
        for elements in whole {
            for (lane, element) in lanes.iter_mut().zip(elements) {
                *lane = choose(*lane, *element);
            }
        }
        *result = lanes
            .iter()
            .chain(rest)
            .fold(*result, |extreme, element| choose(extreme, *element));
    }
}

#[cfg(test)]
mod tests {
    use nnhal::hal::{OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    fn assert_alike(dims: &[u32], axes: &[i32], value: impl Fn(u32) -> f32) {
        let data: Vec<f32> = (0..dims.iter().product()).map(value).collect();
        for operation in [OperationType::REDUCE_MAX, OperationType::REDUCE_MIN] {
            let compute = |kernels| {
                OneOperation::new(operation)
                    .tensor(T::TENSOR_FLOAT32, dims, &data)
                    .tensor(T::TENSOR_INT32, &[axes.len() as u32], axes)
                    .tensor(T::BOOL, &[], &[1_u8])
                    .output(T::TENSOR_FLOAT32, &[])
                    .run_by(kernels, &RunOptions::default())
                    .map(|mut outputs| outputs.remove(0).bytes)
            };
            let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
            assert_eq!(found, exact, "{operation} {dims:?} {axes:?}");
        }
    }

    #[test]
    fn extremes_along_any_axes_are_those_of_the_reference() {
        let value = |at: u32| ((at * 7919 + 13) % 1009) as f32 - 400.5;
        for dims in [[1, 1, 1], [2, 3, 5], [3, 67, 2], [1, 5, 131]] {
            for axes in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, -1], &[0, 1, 2], &[]] {
                assert_alike(&dims, axes, value);
            }
        }
    }

    #[test]
    fn numbers_win_over_nan_wherever_they_are() {
        for number in [0, 1, 31, 32, 64, 98] {
            assert_alike(&[99], &[0], |at| if at == number { -3.0 } else { f32::NAN });
        }
        assert_alike(&[99], &[0], |_| f32::NAN);
    }

    #[test]
    fn nothing_to_reduce_is_the_same_error() {
        assert_alike(&[2, 0], &[1], |_| 0.0);
        assert_alike(&[0, 2], &[1], |_| 0.0);
    }
}
