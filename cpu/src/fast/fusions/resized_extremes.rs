//! RESIZE_BILINEAR and ARGMAX or ARGMIN of the channels, as networks have them that say what each pixel
//! shows: row by row, so that the resized image, the largest tensor of such a network, is none.

use nnhal_hal::ops::resize::{ResizeGeometry, geometry};
use nnhal_hal::{OperandType, OperationType};

use crate::fast::FusedStep;
use crate::fast::candidate::Candidates;
use crate::fast::pooling::arg::{self, Search};
use crate::fast::resize::sixteenths::are_sixteenths;
use crate::fast::resize::step::{self, fill_bytes, for_each_block};
use crate::fast::simd::dispatch;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::element::Quant8;

/// Places of extremes in a resized image of 8-bit values.
#[derive(Debug)]
pub(super) struct ResizedExtremes {
    input: u32,
    ty: OperandType,
    geometry: ResizeGeometry,
    /// What [`Search`] takes.
    flip: u8,
}

impl ResizedExtremes {
    /// The first two operations, if that is what they do.
    pub(super) fn of(candidates: &Candidates<'_, '_>) -> Option<ResizedExtremes> {
        let both = candidates.pair()?;
        let [resize, search] = both.map(|candidate| &candidate.declared);
        let is_largest = match [resize, search].map(|declared| declared.operation.operation_type) {
            [OperationType::RESIZE_BILINEAR, OperationType::ARGMAX] => true,
            [OperationType::RESIZE_BILINEAR, OperationType::ARGMIN] => false,
            _ => return None,
        };
        let input = *resize.operation.inputs.first()?;
        let ty = resize.operands.get(input as usize)?.operand_type;
        let geometry = geometry(resize).ok().filter(step::is_served)?;
        let channels = arg::extent(search).ok()??;
        let flip = arg::flip(is_largest, ty)?;
        let [values, places] = both.map(|candidate| candidate.elements);
        let is_it = channels == geometry.output.channels as usize
            && values? > 0
            && values? == places?.checked_mul(channels)?;
        is_it.then_some(ResizedExtremes {
            input,
            ty,
            geometry,
            flip,
        })
    }

    fn compute<T: Quant8>(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let (Some(input), Some(output)) = (context.inputs.operand(self.input), context.outputs.bytes(0))
        else {
            return Ok(false);
        };
        let (from, places): (&[T], &mut [i32]) =
            (bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output));
        let in_sixteenths = are_sixteenths(&self.geometry);
        let extents = &self.geometry.output;
        let (width, channels) = (extents.width as usize, extents.channels as usize);
        let values = width * channels;
        let words = values.div_ceil(size_of::<f32>());
        let cost = [
            step::cost(&self.geometry),
            arg::cost(places.len(), places.len() * channels),
        ];
        let output = (places, width, cost.into_iter().sum());
        let memory = (&mut *context.scratch, context.team);
        for_each_block(
            (&self.geometry, from),
            output,
            words,
            memory,
            |resized, mut block, memory| {
                let (row, lines) = memory.split_at_mut(words);
                let row: &mut [T] = &mut bytemuck::cast_slice_mut(row)[..values];
                let first = block.first_row();
                for (number, places) in block.all().chunks_exact_mut(width).enumerate() {
                    fill_bytes(resized.rows(first + number, row, lines), in_sixteenths);
                    dispatch(Search {
                        values: bytemuck::cast_slice(row),
                        extent: channels,
                        flip: self.flip,
                        places,
                    });
                }
            },
        )?;
        Ok(true)
    }
}

impl FusedStep for ResizedExtremes {
    fn name(&self) -> &'static str {
        "8-bit resizing row by row, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        match self.ty {
            OperandType::TENSOR_QUANT8_ASYMM => self.compute::<u8>(context),
            _ => self.compute::<i8>(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};
    use nnhal_os::cores::OwnCores;

    use crate::test_graph::TestGraph;
    use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

    const FUSED: &str = "8-bit resizing row by row, with the next";

    /// An image that is resized, and the axis along which extremes are looked for.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        ty: T,
        search: O,
        from: [u32; 4],
        to: [u32; 2],
        axis: i32,
        /// Whether the resized image is an output of the model.
        is_output: bool,
    }

    const CASE: Case = Case {
        ty: T::TENSOR_QUANT8_ASYMM,
        search: O::ARGMAX,
        from: [2, 5, 7, 21],
        to: [33, 49],
        axis: 3,
        is_output: false,
    };

    impl Case {
        fn program(self, kernels: KernelSet) -> Arc<Program> {
            let typed = |dims: &[u32]| Operand::new(self.ty, dims).with_quantization(0.5, 3);
            let [batch, _, _, channels] = self.from;
            let [height, width] = self.to;
            let resized = [batch, height, width, channels];
            let kept = (0..4).filter(|axis| *axis as i32 != self.axis);
            let places: Vec<u32> = kept.map(|axis| resized[axis]).collect();
            let mut graph = TestGraph::default();
            let input = graph.input(typed(&self.from));
            let flag = |graph: &mut TestGraph, is_so: bool| {
                graph.constant(Operand::new(T::BOOL, &[]), &[u8::from(is_so)])
            };
            let mut inputs = vec![input, graph.scalar(width as i32), graph.scalar(height as i32)];
            // NHWC, corners aligned, which lie in sixteenths for some of these extents.
            inputs.extend([false, true, false].map(|is_so| flag(&mut graph, is_so)));
            let image = graph.operation(O::RESIZE_BILINEAR, &inputs, typed(&resized));
            let axis = graph.scalar(self.axis);
            let found = graph.operation(
                self.search,
                &[image, axis],
                Operand::new(T::TENSOR_INT32, &places),
            );
            let outputs: &[u32] = if self.is_output { &[found, image] } else { &[found] };
            Arc::new(Program::with_kernels(graph.valid(outputs), &NoPools, kernels).unwrap())
        }

        /// The places, by one thread and three.
        fn results(self, program: &Arc<Program>) -> [Vec<u8>; 2] {
            let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
            [Threads::ALONE, Threads::new(&helpers, &cores, 3)].map(|threads| {
                let mut execution = Execution::new(Arc::clone(program));
                let input = execution.input(0, &Shape::new(&self.from).unwrap()).unwrap();
                for (at, value) in input.iter_mut().enumerate() {
                    *value = (at * 7919 % 251) as u8;
                }
                let options = RunOptions {
                    threads,
                    ..RunOptions::default()
                };
                execution.run(&options).unwrap();
                execution.output(0).unwrap().1.to_vec()
            })
        }

        fn assert_fused(self, is_fused: bool) {
            let [fast, reference] = [KernelSet::Fast, KernelSet::Reference].map(|set| self.program(set));
            let name = fast.kernel_name(SubgraphIndex::Main, 0, 1);
            assert_eq!(name == FUSED, is_fused, "{self:?}: {name}");
            let [exact, _] = self.results(&reference);
            for found in self.results(&fast) {
                assert!(found == exact, "{self:?}");
            }
        }
    }

    #[test]
    fn places_in_resized_images_are_those_of_the_reference() {
        for ty in [T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED] {
            for search in [O::ARGMAX, O::ARGMIN] {
                for (from, to) in [
                    ([2, 5, 7, 21], [33, 49]),
                    ([1, 3, 3, 21], [17, 33]),
                    ([1, 9, 8, 3], [4, 3]),
                    ([1, 2, 3, 200], [5, 4]),
                ] {
                    let case = Case {
                        ty,
                        search,
                        from,
                        to,
                        ..CASE
                    };
                    case.assert_fused(true);
                }
            }
        }
    }

    #[test]
    fn images_that_others_read_and_other_axes_stay() {
        Case {
            is_output: true,
            ..CASE
        }
        .assert_fused(false);
        Case { axis: 1, ..CASE }.assert_fused(false);
        // More channels than a place in bytes has values for.
        Case {
            from: [1, 2, 2, 257],
            to: [3, 3],
            ..CASE
        }
        .assert_fused(false);
    }
}
