//! Depth-first fusion: which layers are worth a chain, how many rows of it are computed at a time, and where
//! they lie.

use std::sync::Arc;

use nnhal_os::buffer::ALIGNMENT;

use super::borders::{self, LayerRows};
use super::candidate::Candidate;
use super::depth_first::{Behind, DepthFirstChain, Link, MOST_LAYERS, frame};
use super::float_layer::{FloatLayer, FloatWeights};
use super::fused::Fused;
use super::fusions::layer_with_epilogue::epilogue_operations;
use super::strips::most_seen;
use crate::plan::cost::{
    ChainThreshold, FEW_ROWS, MOST_CHAINED_MATRIX_BYTES, STRIPS_BYTES, STRIPS_OF_MANY_BYTES,
};
use crate::threads::Cost;

/// Layers that may become a chain.
struct Draft<'l> {
    layers: Vec<FloatLayer<'l>>,
    /// By layer: how many operations there are up to the last one behind it.
    ends: Vec<usize>,
}

impl DepthFirstChain {
    /// As many of the first operations as are worth computing together by `threshold`, as many as `may_be`
    /// says; with how many they are. `ends_within(operand, count)` says whether no other than the first
    /// `count` read an operand.
    pub(crate) fn longest(
        operations: &[Candidate<'_>],
        (threshold, may_be): (ChainThreshold, impl Fn(usize) -> bool),
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<(DepthFirstChain, usize)> {
        let (draft, links) = Draft::new(operations, threshold, ends_within)?;
        let shortest = if threshold.threads > 1 {
            threshold.layers
        } else {
            links.len()
        };
        let mut chain = DepthFirstChain {
            links,
            input: *operations.first()?.declared.operation.inputs.first()?,
            threshold,
            most_threads: usize::MAX,
            cost: Cost::default(),
            step: 1,
            followed: 0..0,
            padded: 0..0,
            multiplied: 0..0,
        };
        for count in (shortest.max(1)..=draft.layers.len()).rev() {
            chain.links.truncate(count);
            let operations = draft.ends[count - 1];
            if may_be(operations) && chain.settle(&draft.layers[..count]).is_some() {
                return Some((chain, operations));
            }
        }
        None
    }

    /// Finds out how these layers, which are all of the chain's, are computed; `None` if they are not worth
    /// it.
    fn settle(&mut self, layers: &[FloatLayer<'_>]) -> Option<()> {
        let last = self.links.last()?;
        let is_one_layer = layers.len() == 1 && matches!(last.behind, Behind::Nothing);
        if is_one_layer
            || last.height < self.threshold.rows
            || layers.iter().any(|layer| layer.patches.count() == 0)
        {
            return None;
        }
        let costs = || self.links.iter().filter_map(|link| link.layer.cost());
        if self.threshold.threads > 1 {
            let rows = layers.iter().zip(costs()).map(|(layer, cost)| LayerRows {
                vertical: layer.patches.vertical,
                input: layer.patches.input.height as usize,
                output: layer.patches.output.height as usize,
                work: cost.nanos() / layer.images(),
            });
            self.most_threads = borders::most_threads(&rows.collect::<Vec<_>>());
        }
        self.cost = costs().sum();
        (self.most_threads >= self.threshold.threads).then_some(())?;
        self.choose_step(layers)
    }

    /// As many rows at a time as strips fit for, about equally many each time. `None` if they do not even for
    /// one.
    fn choose_step(&mut self, layers: &[FloatLayer<'_>]) -> Option<()> {
        // Of a thread, with the fewest threads.
        let rows = self.links.last()?.height.div_ceil(self.threshold.threads);
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
            None if !layers[0].takes_rows() => return None,
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
}

impl<'l> Draft<'l> {
    /// The first operations, as far as each layer of them may follow on the one before, with what the chain
    /// has of each.
    fn new(
        operations: &'l [Candidate<'_>],
        threshold: ChainThreshold,
        ends_within: impl Fn(u32, usize) -> bool,
    ) -> Option<(Draft<'l>, Vec<Link>)> {
        let mut links: Vec<Link> = Vec::new();
        let mut draft = Draft {
            layers: Vec::new(),
            ends: Vec::new(),
        };
        let (mut count, mut output) = (0, 0);
        while let Some(operation) = operations.get(count).filter(|_| links.len() < MOST_LAYERS) {
            let layer = operation.float_layer();
            let Some(layer) = layer.filter(|layer| layer.matrix_bytes() <= MOST_CHAINED_MATRIX_BYTES) else {
                break;
            };
            if let Some(before) = draft.layers.last() {
                let between = before.patches.image_size(&before.patches.output) * size_of::<f32>();
                let follows = operation.declared.operation.inputs.first() == Some(&output)
                    && before.patches.output == layer.patches.input
                    && ends_within(output, count + 1);
                if !(follows && layer.takes_rows() && between >= threshold.bytes) {
                    break;
                }
            }
            output = operation.output()?;
            let number = count;
            count += 1;
            let is_worth = (!links.is_empty(), threshold.bytes);
            let behind = Behind::of(&operations[number..], is_worth, |operand, some| {
                ends_within(operand, number + some)
            });
            if let Some((operations, last)) = behind.operations() {
                count += operations;
                output = last;
            }
            links.push(Link {
                layer: Arc::clone(operation.layer.as_ref()?),
                behind,
                row: layer.patches.output.width as usize * layer.patches.output.channels as usize,
                height: layer.patches.output.height as usize,
                strip: 0..0,
            });
            draft.layers.push(layer);
            draft.ends.push(count);
        }
        Some((draft, links))
    }
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
