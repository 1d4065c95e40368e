//! Convolutions of floats that follow each other, and the element-wise operations behind them, computed some
//! rows of the image at a time: what is between them is some rows in a strip that stays in the cache, and no
//! tensor. Rows that the next windows see again stay in their strip, so nothing is computed twice but at the
//! borders between threads.
//!
//! Worth it for large images with few channels, as at the beginning of networks: their tensors do not fit in
//! a second-level cache, and the matrices, which pass the processor once for every few rows, do. For several
//! threads smaller ones are worth it, too ([`FusionThreshold`]): a thread then reads its own rows, but at the
//! borders, and waits for the others once in place of once a layer.

use std::ops::Range;

use nnhal_hal::ops::padding::Window;
use nnhal_os::buffer::ALIGNMENT;

use super::borders::{self, LayerRows};
use super::epilogue::{Clamp, Epilogue};
use super::epilogue_operations::EpilogueOperations;
use super::fused::{Fused, Sources};
use super::layer_with_epilogue::epilogue_operations;
use super::lines::Lines;
use super::patches::Patches;
use super::steps::{FloatLayer, FloatWeights};
use super::strips::{Frame, Outputs, seen};
use super::{convolution, depthwise, partition};
use crate::executor::{Declared, Interrupt};
use crate::kernel::KernelError;
use crate::scratch::Scratch;
use crate::threads::{Block, Cost, Grid, Team};

/// Most layers of a chain.
const MOST_LAYERS: usize = 8;

/// Most bytes of a layer's matrix.
const MOST_MATRIX_BYTES: usize = 128 * 1024;

/// Most bytes of a thread's strips.
const STRIPS_BYTES: usize = 768 * 1024;

/// The same for more rows at a time than [`FEW_ROWS`].
const STRIPS_OF_MANY_BYTES: usize = 128 * 1024;

/// Fewer rows at a time cost more than strips that fill much of a second-level cache: what is done once for
/// each step weighs more.
const FEW_ROWS: usize = 4;

/// From where on operations are worth a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FusionThreshold {
    /// Fewest threads that compute it.
    threads: usize,
    /// Least bytes of a tensor between two layers, and of a result on which element-wise operations follow.
    bytes: usize,
    /// Least rows of the result: with fewer there is little between those that are computed at a time and
    /// all, and among threads.
    rows: usize,
    /// Fewest layers.
    layers: usize,
}

impl FusionThreshold {
    /// For any number of threads: smaller tensors stay near without being parted.
    pub(crate) const ALWAYS: FusionThreshold = FusionThreshold {
        threads: 1,
        bytes: 512 * 1024,
        rows: 16,
        layers: 1,
    };

    /// For several threads, as far as they compute little twice ([`borders`]): a chain is as long as is good
    /// for two, and where that is too long for more, those compute as one does. To fetch a smaller tensor
    /// from the processor that has computed it, and to wait for that, takes less time than to compute borders
    /// twice.
    pub(crate) const BY_SEVERAL: FusionThreshold = FusionThreshold {
        threads: 2,
        bytes: 64 * 1024,
        rows: 8,
        layers: 2,
    };
}

/// An operation that may be one of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'d> {
    pub(crate) declared: Declared<'d>,
    pub(crate) layer: Option<FloatLayer<'d>>,
    /// How many elements its only output has, if that is known.
    pub(crate) elements: Option<usize>,
}

impl Candidate<'_> {
    pub(super) fn output(&self) -> Option<u32> {
        self.declared.operation.outputs.first().copied()
    }
}

/// Layers that are computed together.
#[derive(Debug)]
pub(crate) struct StripChain {
    links: Vec<Link>,
    /// How many operations they are.
    operations: usize,
    input: u32,
    output: u32,
    worth: FusionThreshold,
    /// Most threads that it is worth it for.
    most_threads: usize,
    /// How many rows of the result are computed at a time.
    step: usize,
    /// Where in a thread's memory results are that element-wise operations pass over.
    followed: Range<usize>,
    /// Where there the first layer's input is with its padding.
    padded: Range<usize>,
    /// What matrices take to be multiplied.
    multiplied: Range<usize>,
}

/// A layer and the element-wise operations behind it.
#[derive(Debug)]
struct Link {
    /// Which of the operations the layer is.
    number: usize,
    /// How many operations there are up to the last one behind it, and the operand that this one computes.
    end: (usize, u32),
    behind: Behind,
    /// Elements of a row of the result.
    row: usize,
    /// Rows of the result.
    height: usize,
    /// Where in a thread's memory the rows of the result are; nowhere for the last one.
    strip: Range<usize>,
}

/// The element-wise operations behind a layer.
#[derive(Debug)]
enum Behind {
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
    /// Those behind the first one of `operations`, a layer, that are worth computing with it. Behind a small
    /// result they are worth no chain of their own, and no strip to pass over, but in a chain an epilogue
    /// costs nothing.
    fn of(
        operations: &[Candidate<'_>],
        (is_in_chain, least_bytes): (bool, usize),
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Behind {
        let elements = operations.first().and_then(|first| first.elements);
        let is_large = elements.is_some_and(|elements| elements * size_of::<f32>() >= least_bytes);
        let epilogue_operations = (is_large || is_in_chain)
            .then(|| epilogue_operations(operations, &ends_within))
            .flatten();
        let passes = is_large.then(|| passes(operations, &ends_within)).flatten();
        let most = passes.as_ref().map_or(0, |(fused, _)| fused.operations());
        match (epilogue_operations, passes) {
            (Some(epilogue_operations), _) if epilogue_operations.operations() >= most => {
                Behind::Epilogue(epilogue_operations)
            }
            (_, Some((fused, layer))) => Behind::Passes(fused, layer),
            _ => Behind::Nothing,
        }
    }

    /// How many operations these are, and the operand that they compute.
    fn operations(&self) -> Option<(usize, u32)> {
        match self {
            Behind::Nothing => None,
            Behind::Epilogue(epilogue_operations) => {
                Some((epilogue_operations.operations(), epilogue_operations.output()))
            }
            Behind::Passes(fused, _) => Some((fused.operations(), fused.output())),
        }
    }

    /// What they read, if it is there.
    fn coming<'v>(&self, bytes: impl Fn(u32) -> Option<&'v [u8]>) -> Option<Coming<'v>> {
        Some(match self {
            Behind::Nothing => Coming::Nothing,
            Behind::Epilogue(epilogue_operations) => Coming::Epilogue(epilogue_operations.ready(bytes)?),
            Behind::Passes(fused, layer) => Coming::Passes(fused.sources(bytes, Some(*layer))?),
        })
    }
}

/// At most how many rows of the input so many neighbouring rows of the output see.
fn most_seen(window: &Window, height: usize, rows: usize) -> usize {
    let seen = (rows.saturating_sub(1) as u64)
        .saturating_mul(u64::from(window.stride))
        .saturating_add(window.effective().unsigned_abs());
    usize::try_from(seen).unwrap_or(usize::MAX).min(height)
}

/// As they are packed: for tiles half as many again, and what is then too large for a chain is faster by
/// itself, too.
fn matrix_bytes(layer: &FloatLayer<'_>) -> usize {
    match layer.weights {
        FloatWeights::Matrix(weights) => weights.packed().bytes().len(),
        FloatWeights::Depthwise(_) => 0,
    }
}

/// How many images [`cost`] is of.
fn images(layer: &FloatLayer<'_>) -> u64 {
    match layer.weights {
        FloatWeights::Matrix(_) => u64::from(layer.patches.input.batch).max(1),
        FloatWeights::Depthwise(_) => 1,
    }
}

fn cost(layer: &FloatLayer<'_>) -> Cost {
    match layer.weights {
        FloatWeights::Matrix(weights) => {
            convolution::cost(layer.patches, matrix_bytes(layer), weights.times_as_fast())
        }
        FloatWeights::Depthwise(_) => depthwise::cost(layer.patches),
    }
}

fn row(patches: &Patches) -> usize {
    patches.output.width as usize * patches.output.channels as usize
}

/// Whether a layer takes its input row by row: depthwise, or single pixels.
fn takes_rows(layer: &FloatLayer<'_>) -> bool {
    match layer.weights {
        FloatWeights::Matrix(_) => layer.patches.are_pixels(),
        FloatWeights::Depthwise(_) => true,
    }
}

impl StripChain {
    /// As many of the first operations as are `worth` computing together, as many as `may_be` says.
    /// `ends_within(operand, count)` says whether no other than the first `count` read an operand.
    pub(crate) fn longest(
        operations: &[Candidate<'_>],
        (worth, may_be): (FusionThreshold, impl Fn(usize) -> bool),
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<StripChain> {
        let mut links: Vec<Link> = Vec::new();
        let mut layers: Vec<FloatLayer<'_>> = Vec::new();
        let (mut count, mut output) = (0, 0);
        while let Some(operation) = operations.get(count).filter(|_| links.len() < MOST_LAYERS) {
            let Some(layer) = operation
                .layer
                .filter(|layer| matrix_bytes(layer) <= MOST_MATRIX_BYTES)
            else {
                break;
            };
            if let Some(before) = layers.last() {
                let between = before.patches.image_size(&before.patches.output) * size_of::<f32>();
                let follows = operation.declared.operation.inputs.first() == Some(&output)
                    && before.patches.output == layer.patches.input
                    && ends_within(output, count + 1);
                if !(follows && takes_rows(&layer) && between >= worth.bytes) {
                    break;
                }
            }
            output = operation.output()?;
            let number = count;
            count += 1;
            let is_worth = (!links.is_empty(), worth.bytes);
            let behind = Behind::of(&operations[number..], is_worth, |operand, some| {
                ends_within(operand, number + some)
            });
            if let Some((operations, last)) = behind.operations() {
                count += operations;
                output = last;
            }
            links.push(Link {
                number,
                end: (count, output),
                behind,
                row: row(layer.patches),
                height: layer.patches.output.height as usize,
                strip: 0..0,
            });
            layers.push(layer);
        }
        let shortest = if worth.threads > 1 {
            worth.layers
        } else {
            links.len()
        };
        let mut chain = StripChain {
            links,
            operations: 0,
            input: *operations.first()?.declared.operation.inputs.first()?,
            output,
            worth,
            most_threads: usize::MAX,
            step: 1,
            followed: 0..0,
            padded: 0..0,
            multiplied: 0..0,
        };
        for count in (shortest..=layers.len()).rev() {
            chain.links.truncate(count);
            let operations = chain.links.last().map_or(0, |last| last.end.0);
            if may_be(operations) && chain.settle(&layers[..count]).is_some() {
                return Some(chain);
            }
        }
        None
    }

    /// Finds out how these layers, which are all of the chain's, are computed; `None` if they are not worth
    /// it.
    fn settle(&mut self, layers: &[FloatLayer<'_>]) -> Option<()> {
        let last = self.links.last()?;
        (self.operations, self.output) = last.end;
        let is_one_layer = layers.len() == 1 && matches!(last.behind, Behind::Nothing);
        if is_one_layer
            || last.height < self.worth.rows
            || layers.iter().any(|layer| layer.patches.count() == 0)
        {
            return None;
        }
        if self.worth.threads > 1 {
            let rows = layers.iter().map(|layer| LayerRows {
                vertical: layer.patches.vertical,
                input: layer.patches.input.height as usize,
                output: layer.patches.output.height as usize,
                work: cost(layer).nanos() / images(layer),
            });
            self.most_threads = borders::most_threads(&rows.collect::<Vec<_>>());
        }
        (self.most_threads >= self.worth.threads).then_some(())?;
        self.choose_step(layers)
    }

    /// How many operations these are.
    pub(crate) fn operations(&self) -> usize {
        self.operations
    }

    /// The operand that they compute.
    pub(crate) fn output(&self) -> u32 {
        self.output
    }

    /// Whether so many threads had better compute these together.
    pub(crate) fn suits(&self, threads: usize) -> bool {
        (self.worth.threads..=self.most_threads).contains(&threads)
    }

    /// As many rows at a time as strips fit for, about equally many each time. `None` if they do not even for
    /// one.
    fn choose_step(&mut self, layers: &[FloatLayer<'_>]) -> Option<()> {
        // Of a thread, with the fewest threads.
        let rows = self.links.last()?.height.div_ceil(self.worth.threads);
        let few = self.most_rows(layers, FEW_ROWS.min(rows), STRIPS_BYTES)?;
        let many = self.most_rows(layers, rows, STRIPS_OF_MANY_BYTES).unwrap_or(few);
        self.step = rows.div_ceil(rows.div_ceil(few.max(many)));
        self.lay_out(layers, self.step)?;
        Some(())
    }

    /// How many rows of the result can be computed at a time, up to `most`, with strips of no more than so
    /// many bytes; `None` if not even one.
    fn most_rows(&mut self, layers: &[FloatLayer<'_>], most: usize, bytes: usize) -> Option<usize> {
        let mut fits = |step: usize| {
            let elements = self.lay_out(layers, step);
            elements.is_some_and(|elements| elements <= bytes / size_of::<f32>())
        };
        if !fits(1) {
            return None;
        }
        // More rows never need less.
        let (mut fitting, mut unfit) = (1, most + 1);
        while fitting + 1 < unfit {
            let step = fitting.midpoint(unfit);
            if fits(step) {
                fitting = step;
            } else {
                unfit = step;
            }
        }
        Some(fitting)
    }

    /// Places what a thread needs for `step` rows of the result at a time; how many elements that is. `None`
    /// if the first layer's windows would not lie in a strip.
    fn lay_out(&mut self, layers: &[FloatLayer<'_>], step: usize) -> Option<usize> {
        let mut end = 0;
        let mut place = |elements: usize| {
            let start = end;
            end = start + elements;
            // The next begins on a line.
            end = end.next_multiple_of(ALIGNMENT / size_of::<f32>());
            start..start + elements
        };
        let mut rows = [0; MOST_LAYERS];
        let mut most = step;
        for (rows, layer) in rows[..layers.len()].iter_mut().zip(layers).rev() {
            *rows = most;
            let height = layer.patches.input.height as usize;
            most = most_seen(&layer.patches.vertical, height, most);
        }
        let last = self.links.len() - 1;
        for (link, rows) in self.links.iter_mut().zip(rows).take(last) {
            link.strip = place(rows * link.row);
        }
        let followed = self
            .links
            .iter()
            .zip(rows)
            .filter(|(link, _)| matches!(link.behind, Behind::Passes(..)));
        let followed = followed.map(|(link, rows)| rows * link.row).max();
        self.followed = place(followed.unwrap_or(0));
        self.padded = match frame(&layers[0], rows[0]) {
            Some(frame) if !frame.is_image() => {
                place(frame.len(rows[0] * layers[0].patches.output.width as usize)?)
            }
            None if !takes_rows(&layers[0]) => return None,
            _ => place(0),
        };
        let needs = layers.iter().zip(rows).map(|(layer, rows)| match layer.weights {
            FloatWeights::Matrix(weights) => weights.scratch(rows * layer.patches.output.width as usize),
            FloatWeights::Depthwise(_) => 0,
        });
        self.multiplied = place(needs.max().unwrap_or(0));
        // For the last one, whose rows are in the output.
        self.links[last].strip = self.followed.start..self.followed.start;
        Some(end)
    }

    /// Whether everything is there that they need, given the layers by their numbers among the operations and
    /// the bytes of the operands that are there, and the team has as many threads for them as they are worth.
    pub(crate) fn ready<'v>(
        &self,
        layer: impl Fn(usize) -> Option<FloatLayer<'v>>,
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
        team: &Team<'_>,
    ) -> Option<ReadyChain<'v, '_>> {
        let mut layers = [const { None }; MOST_LAYERS];
        for (ready, link) in layers.iter_mut().zip(&self.links) {
            *ready = Some((layer(link.number)?, link.behind.coming(&bytes)?));
        }
        let (first, _) = layers[0].as_ref()?;
        let input: &[f32] = bytemuck::try_cast_slice(bytes(self.input)?).ok()?;
        let patches = first.patches;
        let whole = patches.image_size(&patches.input) * patches.input.batch as usize;
        let ready = (input.len() == whole).then_some(ReadyChain {
            chain: self,
            layers,
            input,
        })?;
        self.suits(team.threads_that_partition(ready.cost()))
            .then_some(ready)
    }
}

/// The element-wise operations behind the first one of `operations`, a layer, that can pass over its results,
/// with the operand that these are.
fn passes(operations: &[Candidate<'_>], ends_within: impl Fn(u32, usize) -> bool) -> Option<(Fused, u32)> {
    let (first, after) = operations.split_first()?;
    let elements = first.elements?;
    let layer = first.output()?;
    let alike = after
        .iter()
        .take_while(|operation| operation.elements == Some(elements))
        .map(|operation| operation.declared);
    let fused = Fused::longest(alike, (elements, 1), |operand, count| {
        ends_within(operand, count + 1)
    })?;
    let is_followed = fused.passes(layer) && ends_within(layer, fused.operations() + 1);
    is_followed.then_some((fused, layer))
}

/// How the windows of a layer lie in strips for so many rows of its output, unless it takes its input as it
/// is.
fn frame<'a>(layer: &FloatLayer<'a>, rows: usize) -> Option<Frame<'a>> {
    let outputs = rows * layer.patches.output.width as usize;
    (!takes_rows(layer))
        .then(|| Frame::of(layer.patches, outputs))
        .flatten()
}

/// A chain with everything that it needs.
pub(crate) struct ReadyChain<'v, 'c> {
    chain: &'c StripChain,
    /// Each with what comes from outside for the operations behind it.
    layers: [Option<(FloatLayer<'v>, Coming<'v>)>; MOST_LAYERS],
    input: &'v [f32],
}

impl ReadyChain<'_, '_> {
    /// Computes the result; says whether it did, which it does unless the memory is not that of floats.
    /// `interrupt` is asked before each image.
    pub(crate) fn run(
        &self,
        output: &mut [u8],
        (scratch, team): (&mut Scratch, &Team<'_>),
        interrupt: &dyn Interrupt,
    ) -> Result<bool, KernelError> {
        let (Some(last), Some((first, _)), Ok(output)) = (
            self.chain.links.last(),
            &self.layers[0],
            bytemuck::try_cast_slice_mut::<u8, f32>(output),
        ) else {
            return Ok(false);
        };
        let threads = team.threads_for(self.cost());
        let grid = self.grid(threads, last);
        let threads = threads.min(grid.blocks().max(1));
        let memory = scratch.shares::<f32>(threads, self.chain.multiplied.end)?;
        let input = self
            .input
            .chunks_exact(first.patches.image_size(&first.patches.input));
        let images = input.zip(output.chunks_exact_mut(last.row * last.height));
        for (number, (input, output)) in images.enumerate() {
            interrupt.check()?;
            team.for_each_block(threads, &grid, (output, &mut *memory), |mut block, memory| {
                let rows = block.first_row()..block.first_row() + block.rows();
                self.rows((number, input), (rows, block.all()), memory);
            });
        }
        Ok(true)
    }

    /// How the result's rows are parted. Strips of large images take several steps in any case: threads that
    /// come late find blocks left.
    fn grid(&self, threads: usize, last: &Link) -> Grid {
        if self.chain.worth.threads > 1 {
            partition::rows_at_once(threads, last.height, last.row)
        } else {
            partition::rows(threads, last.height, last.row)
        }
    }

    fn cost(&self) -> Cost {
        let mut all = Cost::default();
        for (layer, _) in self.layers.iter().flatten() {
            let each = cost(layer);
            all.multiply_adds = all.multiply_adds.saturating_add(each.multiply_adds);
            all.bytes = all.bytes.saturating_add(each.bytes);
        }
        all
    }

    /// Computes some rows of the result of an image.
    fn rows(
        &self,
        (image, input): (usize, &[f32]),
        (rows, output): (Range<usize>, &mut [f32]),
        memory: &mut [f32],
    ) {
        let chain = self.chain;
        let last = chain.links.len() - 1;
        let row = chain.links[last].row;
        let mut held = [const { 0..0 }; MOST_LAYERS];
        let steps = rows.clone().step_by(chain.step);
        for (from, output) in steps.zip(output.chunks_mut(chain.step * row)) {
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
#[path = "strip_chain_tests.rs"]
mod tests;
