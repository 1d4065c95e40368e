//! Depth-first fusion of convolutions of floats that follow each other, and the element-wise operations
//! behind them: some rows of the image pass all of them, then the next rows. What is between two layers is no
//! tensor but a strip, a line buffer that stays in the cache. Rows that the next windows see again stay in
//! it, so nothing is computed twice but at the borders between threads.
//!
//! Worth it for large images with few channels, as at the beginning of networks: their tensors do not fit in
//! a second-level cache, and the matrices, which pass the processor once for every few rows, do. For several
//! threads smaller ones are worth it, too ([`ChainThreshold`]): a thread then reads its own rows, but at the
//! borders, and waits for the others once in place of once a layer.

use std::ops::Range;
use std::sync::Arc;

use super::epilogue::{Clamp, Epilogue};
use super::epilogue_operations::EpilogueOperations;
use super::float_layer::{FloatLayer, FloatWeights};
use super::fused::Fused;
use super::layer::Layer;
use super::matmul::lines::Lines;
use super::pass::Sources;
use super::strips::{Frame, Outputs, seen};
use super::{FusedStep, convolution, partition};
use crate::interrupt::Interrupt as _;
use crate::kernel::{KernelContext, KernelError};
use crate::plan::cost::ChainThreshold;
use crate::scratch::Scratch;
use crate::threads::{Block, Checks, Cost, Grid, Parts, Team};

/// Most layers of a chain.
pub(super) const MOST_LAYERS: usize = 8;

/// Layers that are computed together, depth-first.
#[derive(Debug)]
pub(crate) struct DepthFirstChain {
    pub(super) links: Vec<Link>,
    pub(super) input: u32,
    pub(super) threshold: ChainThreshold,
    /// Most threads that it is worth it for.
    pub(super) most_threads: usize,
    /// Of all layers.
    pub(super) cost: Cost,
    /// How many rows of the result are computed at a time.
    pub(super) step: usize,
    /// Where in a thread's memory results are that element-wise operations pass over.
    pub(super) followed: Range<usize>,
    /// Where there the first layer's input is with its padding.
    pub(super) padded: Range<usize>,
    /// What matrices take to be multiplied.
    pub(super) multiplied: Range<usize>,
}

/// A layer and the element-wise operations behind it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) layer: Arc<Layer>,
    pub(super) behind: Behind,
    /// Elements of a row of the result.
    pub(super) row: usize,
    /// Rows of the result.
    pub(super) height: usize,
    /// Where in a thread's memory the rows of the result are; nowhere for the last one.
    pub(super) strip: Range<usize>,
}

/// The element-wise operations behind a layer.
#[derive(Debug)]
pub(super) enum Behind {
    Nothing,
    /// Its epilogue computes them.
    Epilogue(EpilogueOperations),
    /// They pass over its results. With the operand that these are.
    Passes(Fused, u32),
}

/// What comes from outside for them.
enum Coming<'v> {
    Nothing,
    Epilogue(Epilogue<'v>),
    Passes(Sources<'v>),
}

impl Behind {
    /// What they read, if it is there.
    fn coming<'v>(&self, bytes: impl Fn(u32) -> Option<&'v [u8]>) -> Option<Coming<'v>> {
        Some(match self {
            Behind::Nothing => Coming::Nothing,
            Behind::Epilogue(epilogue_operations) => Coming::Epilogue(epilogue_operations.ready(bytes)?),
            Behind::Passes(fused, layer) => Coming::Passes(fused.sources(bytes, Some(*layer))?),
        })
    }
}

impl DepthFirstChain {
    /// Everything that they need, if it is there.
    fn ready<'v>(&'v self, bytes: impl Fn(u32) -> Option<&'v [u8]>) -> Option<ReadyChain<'v>> {
        let mut layers = [const { None }; MOST_LAYERS];
        for (ready, link) in layers.iter_mut().zip(&self.links) {
            *ready = Some((link.layer.float_layer()?, link.behind.coming(&bytes)?));
        }
        let (first, _) = layers[0].as_ref()?;
        let input: &[f32] = bytemuck::try_cast_slice(bytes(self.input)?).ok()?;
        (input.len() == first.inputs()).then_some(ReadyChain {
            chain: self,
            layers,
            input,
        })
    }
}

impl FusedStep for DepthFirstChain {
    fn name(&self) -> &'static str {
        "f32 row by row, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let inputs = &context.inputs;
        let (Some(ready), Some(output)) = (self.ready(|at| inputs.operand(at)), context.outputs.bytes(0))
        else {
            return Ok(false);
        };
        ready.run(output, (context.scratch, context.team))
    }

    fn suits(&self, threads: usize) -> bool {
        (self.threshold.threads..=self.most_threads).contains(&threads)
    }

    fn suits_team(&self, team: &Team<'_>) -> bool {
        self.suits(team.threads_that_partition(self.cost))
    }
}

/// How the windows of a layer lie in strips for so many rows of its output, unless it takes its input as it
/// is.
pub(super) fn frame<'a>(layer: &FloatLayer<'a>, rows: usize) -> Option<Frame<'a>> {
    let outputs = rows * layer.patches.output.width as usize;
    (!layer.takes_rows())
        .then(|| Frame::of(layer.patches, outputs))
        .flatten()
}

/// A chain with everything that it needs.
struct ReadyChain<'v> {
    chain: &'v DepthFirstChain,
    /// Each with what comes from outside for the operations behind it.
    layers: [Option<(FloatLayer<'v>, Coming<'v>)>; MOST_LAYERS],
    input: &'v [f32],
}

impl ReadyChain<'_> {
    /// Computes the result; says whether it did, which it does unless the memory is not that of floats.
    fn run(
        &self,
        output: &mut [u8],
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<bool, KernelError> {
        let (Some(last), Some((first, _)), Ok(output)) = (
            self.chain.links.last(),
            &self.layers[0],
            bytemuck::try_cast_slice_mut::<u8, f32>(output),
        ) else {
            return Ok(false);
        };
        let threads = team.parts_for(self.chain.cost).threads;
        let grid = self.grid(threads, last);
        let threads = grid.most_threads(threads);
        let memory = scratch.shares::<f32>(threads, self.chain.multiplied.end)?;
        let input = self
            .input
            .chunks_exact(first.patches.image_size(&first.patches.input));
        let images = input.zip(output.chunks_exact_mut(last.row * last.height));
        for (number, (input, output)) in images.enumerate() {
            team.check()?;
            team.for_each_long_block(
                threads,
                &grid,
                (output, &mut *memory),
                |mut block, memory, checks| {
                    let rows = block.first_row()..block.first_row() + block.rows();
                    self.rows((number, input), (rows, block.all()), (memory, checks));
                },
            );
        }
        Ok(true)
    }

    /// How the result's rows are parted. Strips of large images take several steps in any case: threads that
    /// come late find blocks left.
    fn grid(&self, threads: usize, last: &Link) -> Grid {
        if self.chain.threshold.threads > 1 {
            partition::rows_at_once(threads, last.height, last.row)
        } else {
            partition::rows(Parts { threads, blocks: 1 }, last.height, last.row)
        }
    }

    /// Computes some rows of the result of an image, unless it is to stop. It asks at each step: blocks of
    /// fewer rows would compute more of them twice.
    fn rows(
        &self,
        (image, input): (usize, &[f32]),
        (rows, output): (Range<usize>, &mut [f32]),
        (memory, checks): (&mut [f32], &Checks<'_>),
    ) {
        let chain = self.chain;
        let last = chain.links.len() - 1;
        let row = chain.links[last].row;
        let mut held = [const { 0..0 }; MOST_LAYERS];
        let steps = rows.clone().step_by(chain.step);
        for (from, output) in steps.zip(output.chunks_mut(chain.step * row)) {
            if from > rows.start && !checks.goes_on() {
                return;
            }
            // By layer: which rows are to be computed for the step.
            let mut new = [const { 0..0 }; MOST_LAYERS];
            new[last] = from..from + output.len() / row;
            for at in (0..last).rev() {
                if let Some((next, _)) = self.layers[at + 1].as_ref().filter(|_| !new[at + 1].is_empty()) {
                    let link = &chain.links[at];
                    let seen = seen(&next.patches.vertical, link.height, &new[at + 1]);
                    new[at] = advance((&mut memory[link.strip.clone()], link.row), &mut held[at], seen);
                }
            }
            for (at, new) in new.iter().enumerate().filter(|(_, new)| !new.is_empty()) {
                let (before, memory) = memory.split_at_mut(chain.links[at].strip.start);
                let source = match at.checked_sub(1) {
                    None => (input, 0),
                    Some(at) => (&before[chain.links[at].strip.clone()], held[at].start),
                };
                let (strip, memory) = memory.split_at_mut(chain.links[at].strip.len());
                let target = if at == last {
                    &mut *output
                } else {
                    &mut strip[(new.start - held[at].start) * chain.links[at].row..]
                };
                self.layer((at, image), source, (new, target), memory);
            }
        }
    }

    /// Computes rows `new` of a layer's output, and what follows on them, from its input, of which the first
    /// row is given. `memory` is what is behind the layer's strip.
    fn layer(
        &self,
        (at, image): (usize, usize),
        source: (&[f32], usize),
        (new, target): (&Range<usize>, &mut [f32]),
        memory: &mut [f32],
    ) {
        let (chain, link) = (self.chain, &self.chain.links[at]);
        let Some((layer, coming)) = &self.layers[at] else {
            return;
        };
        let target = &mut target[..new.len() * link.row];
        let memory = &mut memory[chain.followed.start - link.strip.end..];
        let (results, memory) = memory.split_at_mut(chain.padded.start - chain.followed.start);
        let (padded, multiplied) = memory.split_at_mut(chain.multiplied.start - chain.padded.start);
        let memory = (padded, multiplied);
        let plain = Epilogue::Clamp(Clamp(layer.range));
        let first = image * link.height + new.start;
        match (&link.behind, coming) {
            (Behind::Passes(fused, operand), Coming::Passes(sources)) => {
                let results = &mut results[..target.len()];
                compute(layer, source, (new, results), (plain, memory));
                fused.run_part(sources, (*operand, results), (first * link.row, target));
            }
            (_, Coming::Epilogue(epilogue)) => {
                let epilogue = epilogue.at_row(first * layer.patches.output.width as usize);
                compute(layer, source, (new, target), (epilogue, memory));
            }
            _ => compute(layer, source, (new, target), (plain, memory)),
        }
    }
}

/// Has a strip hold the rows that are seen, of which it keeps those that it has; returns the others. Rows
/// that are seen never go back.
fn advance((strip, row): (&mut [f32], usize), held: &mut Range<usize>, seen: Range<usize>) -> Range<usize> {
    let kept = if held.contains(&seen.start) {
        seen.start..held.end
    } else {
        seen.start..seen.start
    };
    if !kept.is_empty() && kept.start > held.start {
        strip.copy_within((kept.start - held.start) * row..(kept.end - held.start) * row, 0);
    }
    *held = seen.start..seen.end.max(kept.end);
    kept.end..held.end
}

/// Computes rows `new` of a layer's output from its input, whose first row is given. Of a depthwise layer the
/// epilogue only clamps.
fn compute(
    layer: &FloatLayer<'_>,
    (input, first_row): (&[f32], usize),
    (new, output): (&Range<usize>, &mut [f32]),
    (epilogue, (padded, multiplied)): (Epilogue<'_>, (&mut [f32], &mut [f32])),
) {
    let patches = layer.patches;
    let weights = match layer.weights {
        FloatWeights::Depthwise(weights) => {
            return weights.run_rows(patches, (input, first_row), (new.clone(), output), layer.range);
        }
        FloatWeights::Matrix(weights) => weights,
    };
    let width = patches.output.width as usize;
    let outputs = Outputs {
        first: new.start * width,
        count: new.len() * width,
    };
    let depth = weights.depth();
    let lines = match frame(layer, new.len()) {
        Some(frame) => convolution::lines_f32(&frame, input, outputs, padded),
        None => {
            let pixels = &input[(outputs.first - first_row * width) * depth..];
            Lines::of_rows(pixels, outputs.count, (depth, depth))
        }
    };
    let output = Block::whole(output, patches.output.channels as usize);
    weights.multiply(lines, multiplied, output, epilogue);
}

#[cfg(test)]
#[path = "depth_first_tests.rs"]
mod tests;
