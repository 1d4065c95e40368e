//! REDUCE_MAX and REDUCE_MIN of 32-bit floats: many elements side by side.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::reduction::reduced_axes;
use nnhal_hal::{OperandType, OperationType};

use crate::fast::candidate::{Candidate, Candidates};
use crate::fast::matmul::tile::for_each_constant;
use crate::fast::simd::{Instructions, Simd, WIDE, Work, dispatch};
use crate::fast::{FusedStep, PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::broadcast::for_each_run;

/// Vectors of extremes that are kept side by side, so that one need not wait for the one before.
const VECTORS: usize = 4;

/// Which of two elements is kept. Of a number and a NaN it is the number, as in the reference; of two zeros
/// it may be either.
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
pub(in crate::fast) struct ExtremumStep {
    extreme: Extreme,
    /// For other types, and for what has no elements.
    fallback: Kernel,
}

impl ExtremumStep {
    /// The step of an operation, if it is one of the two.
    pub(in crate::fast) fn of(operation: OperationType, fallback: Kernel) -> Option<ExtremumStep> {
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
    fn run<S: Instructions>(self, simd: S) {
        if let [result] = self.results {
            let [least, most] = ends(simd, self.elements);
            *result = match self.extreme {
                Extreme::Largest => larger(*result, most),
                Extreme::Smallest => smaller(*result, least),
            };
            return;
        }
        let both = self.results.iter_mut().zip(self.elements);
        match self.extreme {
            Extreme::Largest => both.for_each(|(result, element)| *result = larger(*result, *element)),
            Extreme::Smallest => both.for_each(|(result, element)| *result = smaller(*result, *element)),
        }
    }
}

/// The larger one; that which is kept, if the other is a NaN. It never is one itself. As one instruction of a
/// vector.
#[inline(always)]
fn larger(kept: f32, element: f32) -> f32 {
    if element > kept { element } else { kept }
}

/// The smaller one likewise.
#[inline(always)]
fn smaller(kept: f32, element: f32) -> f32 {
    if element < kept { element } else { kept }
}

/// The smallest and the largest element.
#[inline(always)]
fn ends<S: Instructions>(simd: S, elements: &[f32]) -> [f32; 2] {
    let simd = simd.wide();
    let (whole, rest) = elements.as_chunks::<{ VECTORS * WIDE }>();
    let mut least = [simd.splat(f32::INFINITY); VECTORS];
    let mut most = [simd.splat(f32::NEG_INFINITY); VECTORS];
    for elements in whole {
        let vectors = elements.as_chunks::<WIDE>().0;
        for_each_constant!(at in [0 1 2 3] {
            let vector = simd.load(&vectors[at]);
            // Of what is kept and a NaN these are what is kept.
            least[at] = simd.at_most(least[at], vector);
            most[at] = simd.at_least(most[at], vector);
        });
    }
    let (mut least_of, mut most_of) = ([f32::INFINITY; WIDE], [f32::NEG_INFINITY; WIDE]);
    let halves = |vectors: [_; VECTORS], choose: fn(S::Wide, _, _) -> _| {
        let [first, second, third, fourth] = vectors;
        choose(simd, choose(simd, first, second), choose(simd, third, fourth))
    };
    simd.store(halves(least, S::Wide::at_most), &mut least_of);
    simd.store(halves(most, S::Wide::at_least), &mut most_of);
    let all = |start: f32, lanes: &[f32; WIDE], choose: fn(f32, f32) -> f32| {
        let elements = lanes.iter().chain(rest);
        elements.fold(start, |kept, element| choose(kept, *element))
    };
    [
        all(f32::INFINITY, &least_of, smaller),
        all(f32::NEG_INFINITY, &most_of, larger),
    ]
}

/// ABS and REDUCE_MAX to one value that follow each other, as where a layer's input is scaled to its range.
#[derive(Debug)]
pub(in crate::fast) struct LargestMagnitude {
    input: u32,
}

impl LargestMagnitude {
    /// The first two operations, if that is what they do.
    pub(in crate::fast) fn of(candidates: &Candidates<'_, '_>) -> Option<LargestMagnitude> {
        let both = candidates.pair()?;
        let is_float = |candidate: &Candidate<'_>| {
            let input = candidate.declared.input(0);
            input.is_some_and(|input| input.ty() == OperandType::TENSOR_FLOAT32)
        };
        let types = both.map(|candidate| candidate.declared.operation.operation_type);
        let is_it = types == [OperationType::ABS, OperationType::REDUCE_MAX]
            && both.into_iter().all(is_float)
            && both[0].elements? > 0
            && both[1].elements? == 1;
        is_it.then_some(LargestMagnitude {
            input: *both[0].declared.operation.inputs.first()?,
        })
    }
}

impl FusedStep for LargestMagnitude {
    fn name(&self) -> &'static str {
        "f32 largest magnitude, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let (Some(input), Some(output)) = (context.inputs.operand(self.input), context.outputs.bytes(0))
        else {
            return Ok(false);
        };
        let (Ok(input), Ok([result])) = (
            bytemuck::try_cast_slice::<_, f32>(input),
            bytemuck::try_cast_slice_mut::<_, f32>(output),
        ) else {
            return Ok(false);
        };
        *result = dispatch(Magnitudes(input));
        Ok(true)
    }
}

/// Finds the largest magnitude.
struct Magnitudes<'a>(&'a [f32]);

impl Work for Magnitudes<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> f32 {
        let [least, most] = ends(simd, self.0);
        // No magnitude is -0, which the negative of 0 is.
        larger(-least, most) + 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType, Shape};

    use crate::kernels::testing::OneOperation;
    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    #[test]
    fn largest_magnitudes_are_those_of_the_reference() {
        let repeated = |values: &[f32], count: usize| -> Vec<f32> {
            values.iter().copied().cycle().take(count).collect()
        };
        let cases = [
            &[0.0][..],
            &[-0.0],
            &[0.0, -0.0],
            &[-3.0, 2.0],
            &[1.0, -1.0, 0.5],
            &[f32::NEG_INFINITY, 1.0],
            &[f32::INFINITY, -2.0],
        ];
        for values in cases {
            for count in [1, 7, 64, 67, 200] {
                let mut graph = TestGraph::default();
                let dims = [count as u32];
                let input = graph.input(Operand::new(T::TENSOR_FLOAT32, &dims));
                let magnitudes = graph.operation(
                    OperationType::ABS,
                    &[input],
                    Operand::new(T::TENSOR_FLOAT32, &dims),
                );
                let axes = graph.constant(Operand::new(T::TENSOR_INT32, &[1]), &[0; 4]);
                let keeps = graph.constant(Operand::new(T::BOOL, &[]), &[1]);
                let inputs = [magnitudes, axes, keeps];
                let largest = Operand::new(T::TENSOR_FLOAT32, &[1]);
                let largest = graph.operation(OperationType::REDUCE_MAX, &inputs, largest);
                let model = graph.valid(&[largest]);
                let data = repeated(values, count);
                let compute = |kernels| {
                    let program = Program::with_kernels(Arc::clone(&model), &NoPools, kernels).unwrap();
                    let mut execution = Execution::new(Arc::new(program));
                    let bytes = execution.input(0, &Shape::new(&dims).unwrap()).unwrap();
                    bytes.copy_from_slice(bytemuck::cast_slice(&data));
                    execution.run(&RunOptions::default()).unwrap();
                    execution.output(0).unwrap().1.to_vec()
                };
                let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
                assert_eq!(found, exact, "{count} of {values:?}");
            }
        }
    }

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
