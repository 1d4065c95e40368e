//! Which operations of a graph are computed together.

use nnhal_hal::{OperandLifeTime, Subgraph};

use super::declared::Declared;
use super::padded::PaddedConvolution;
use super::program::{Step, Work, operations_from};
use super::{Interrupt, Interrupted};
use crate::fast::{
    Candidate, DynamicallyQuantized, Following, Fused, FusionThreshold, LargestMagnitude, LayerWithEpilogue,
    Offset, PlannedStep, StripChain,
};
use crate::kernel::Constant;

/// Operations that are computed together.
#[derive(Debug)]
pub(super) enum FusedGroup {
    /// Element-wise ones, some elements at a time.
    Elements(Fused),
    /// Convolutions and what follows on them, some rows of the image at a time.
    Rows(StripChain),
    /// A convolution and what follows on it, tile by tile.
    Layer(LayerWithEpilogue),
    /// PAD and a convolution.
    Padded(PaddedConvolution),
    /// DEQUANTIZE and QUANTIZE.
    Offset(Offset),
    /// ABS and REDUCE_MAX.
    Magnitude(LargestMagnitude),
    /// Element-wise ones that give integers, a layer whose weights are such, and what scales its result.
    DynamicallyQuantized(DynamicallyQuantized),
}

impl FusedGroup {
    /// How many operations these are.
    pub(super) fn operations(&self) -> usize {
        match self {
            FusedGroup::Elements(fused) => fused.operations(),
            FusedGroup::Rows(chain) => chain.operations(),
            FusedGroup::Layer(layer) => layer.operations(),
            FusedGroup::Padded(_) | FusedGroup::Offset(_) | FusedGroup::Magnitude(_) => 2,
            FusedGroup::DynamicallyQuantized(dynamically_quantized) => dynamically_quantized.operations(),
        }
    }

    /// The operand that they compute.
    pub(super) fn output(&self) -> u32 {
        match self {
            FusedGroup::Elements(fused) => fused.output(),
            FusedGroup::Rows(chain) => chain.output(),
            FusedGroup::Layer(layer) => layer.output(),
            FusedGroup::Padded(convolution) => convolution.output(),
            FusedGroup::Offset(offset) => offset.output(),
            FusedGroup::Magnitude(magnitude) => magnitude.output(),
            FusedGroup::DynamicallyQuantized(dynamically_quantized) => dynamically_quantized.output(),
        }
    }

    /// The numbers of operations among these that are computed by themselves, before the others.
    pub(super) fn before(&self) -> &[usize] {
        match self {
            FusedGroup::DynamicallyQuantized(dynamically_quantized) => dynamically_quantized.before(),
            _ => &[],
        }
    }

    /// Whether so many threads had better compute these together.
    pub(super) fn suits(&self, threads: usize) -> bool {
        match self {
            FusedGroup::Rows(chain) => chain.suits(threads),
            _ => true,
        }
    }

    /// The name of what computes the first of them.
    pub(super) fn name(&self) -> &'static str {
        match self {
            FusedGroup::Elements(_) => "f32 element-wise, with the next",
            FusedGroup::Rows(_) => "f32 row by row, with the next",
            FusedGroup::Layer(layer) => layer.name(),
            FusedGroup::Padded(_) => "as padding of the next",
            FusedGroup::Offset(_) => "8-bit offset, with the next",
            FusedGroup::Magnitude(_) => "f32 largest magnitude, with the next",
            FusedGroup::DynamicallyQuantized(_) => "integers of floats as bytes, with the next",
        }
    }
}

/// Most operations after one that are looked at with it.
const MOST_AHEAD: usize = 64;

/// Notes with the first of operations that can be computed together that they are.
///
/// # Errors
/// `interrupt`, which is asked before each of them.
pub(super) fn fuse(
    graph: &Subgraph,
    constants: &[Option<Constant>],
    steps: &mut [Step],
    interrupt: &dyn Interrupt,
) -> Result<(), Interrupted> {
    let readers = Readers::of(graph);
    let mut first = 0;
    while first < steps.len() {
        interrupt.check()?;
        // Nothing is left to compute.
        if steps[first].is_clamped_before && steps[first].renames {
            first += 1;
            continue;
        }
        let operations = graph.operations[first..].iter().zip(&steps[first..]);
        let declared = |operation| Declared {
            operation,
            operands: &graph.operands,
            constants,
        };
        let ends_within = |operand, count| readers.end_before(operand, first + count);
        // What was computed beforehand reads nothing any more.
        let next = operations.clone().nth(1).filter(|_| !steps[first].is_folded());
        let padded = next.and_then(|convolution| {
            PaddedConvolution::of(&declared(&graph.operations[first]), convolution, ends_within)
        });
        let offset = next.and_then(|(second, step)| {
            let elements = steps[first]
                .elements()
                .filter(|all| step.elements() == Some(*all))?;
            let (first, second) = (declared(&graph.operations[first]), declared(second));
            Offset::of(&first, &second, elements, |operand| ends_within(operand, 2))
        });
        let magnitude = next.and_then(|(second, step)| {
            let elements = [steps[first].elements()?, step.elements()?];
            let both = (&declared(&graph.operations[first]), &declared(second));
            LargestMagnitude::of(both, elements, |operand| ends_within(operand, 2))
        });
        let pair = padded.map(FusedGroup::Padded);
        let pair = pair.or(offset.map(FusedGroup::Offset));
        let pair = pair.or(magnitude.map(FusedGroup::Magnitude));
        let group = pair.or_else(|| {
            let candidates = candidates((graph, constants), &steps[first..], first);
            find(candidates, ends_within)
        });
        let group = group.map(|group| match group {
            FusedGroup::Elements(head) => {
                let following = operations.map(|(operation, step)| Following {
                    declared: declared(operation),
                    elements: step.elements(),
                    layer: step.planned().and_then(PlannedStep::integer_layer),
                    is_plain: match step.work {
                        Work::Compute { .. } | Work::Planned { .. } => Some(true),
                        Work::If | Work::While => Some(false),
                        Work::Folded => None,
                    },
                });
                let all: Vec<_> = following.take(MOST_AHEAD).collect();
                DynamicallyQuantized::new(head, &all, ends_within)
                    .map_or_else(FusedGroup::Elements, FusedGroup::DynamicallyQuantized)
            }
            other => other,
        });
        let count = group.as_ref().map_or(1, FusedGroup::operations);
        steps[first].group = group;
        first += count;
    }
    Ok(())
}

/// Notes with the first of layers that several threads had better compute together that they are, after
/// [`fuse`].
///
/// # Errors
/// `interrupt`, which is asked before each of them.
pub(super) fn fuse_for_several(
    graph: &Subgraph,
    constants: &[Option<Constant>],
    steps: &mut [Step],
    interrupt: &dyn Interrupt,
) -> Result<(), Interrupted> {
    let readers = Readers::of(graph);
    let mut first = 0;
    while first < steps.len() {
        interrupt.check()?;
        let ends_within = |operand, count| readers.end_before(operand, first + count);
        // One that ended in the middle of what is computed together otherwise would leave the rest of that
        // one by one.
        let ends_between = |count| {
            let mut at = first;
            while at < first + count {
                at += operations_from(Some(&steps[at]), 1);
            }
            at == first + count
        };
        let chain = steps[first].float_layer().and_then(|_| {
            // It ends before an operation with nothing left to compute, which gives its memory on: in a chain
            // it would be computed.
            let is_computed = |step: &&Step| !(step.is_clamped_before && step.renames);
            let ahead = steps[first..].iter().take(MOST_AHEAD);
            let steps = &steps[first..first + ahead.take_while(is_computed).count()];
            let all: Vec<_> = candidates((graph, constants), steps, first).collect();
            StripChain::longest(&all, (FusionThreshold::BY_SEVERAL, ends_between), ends_within)
        });
        let always = operations_from(Some(&steps[first]), 1);
        let chain = chain.filter(|chain| chain.operations() > always);
        let operations = chain.as_ref().map_or(always, StripChain::operations);
        steps[first].parted = chain.map(FusedGroup::Rows);
        first += operations;
    }
    Ok(())
}

/// The operations that `steps` compute, the first of which has this number, as far as they may be computed
/// together.
fn candidates<'d>(
    (graph, constants): (&'d Subgraph, &'d [Option<Constant>]),
    steps: &'d [Step],
    first: usize,
) -> impl Iterator<Item = Candidate<'d>> {
    let operations = graph.operations[first..].iter().zip(steps);
    let executed = operations.take_while(|(_, step)| !step.is_folded());
    let candidates = executed.map(move |(operation, step)| Candidate {
        declared: Declared {
            operation,
            operands: &graph.operands,
            constants,
        },
        layer: step.float_layer(),
        elements: step.elements(),
    });
    candidates.take(MOST_AHEAD)
}

/// The first ones of some operations that can be computed together.
fn find<'d>(
    mut operations: impl Iterator<Item = Candidate<'d>>,
    ends_within: impl Fn(u32, usize) -> bool,
) -> Option<FusedGroup> {
    let first = operations.next()?;
    let elements = first.elements?;
    let all = std::iter::once(first).chain(operations);
    if first.layer.is_some() {
        let all: Vec<_> = all.collect();
        let chain = StripChain::longest(&all, (FusionThreshold::ALWAYS, |_| true), &ends_within)
            .map(FusedGroup::Rows);
        return chain.or_else(|| LayerWithEpilogue::longest(&all, &ends_within).map(FusedGroup::Layer));
    }
    let alike = all.take_while(|operation| operation.elements == Some(elements));
    let declared = alike.map(|operation| operation.declared);
    Fused::longest(declared, (elements, 2), ends_within).map(FusedGroup::Elements)
}

/// How long operands are needed.
struct Readers {
    /// By operand: the number behind that of the last operation which reads it; none if it is read from
    /// outside.
    ends: Vec<Option<usize>>,
}

impl Readers {
    fn of(graph: &Subgraph) -> Readers {
        let operands = graph.operands.iter();
        let mut ends: Vec<Option<usize>> = operands
            .map(|operand| (operand.lifetime == OperandLifeTime::TemporaryVariable).then_some(0))
            .collect();
        for (number, operation) in graph.operations.iter().enumerate() {
            for &operand in &operation.inputs {
                if let Some(Some(end)) = ends.get_mut(operand as usize) {
                    *end = number + 1;
                }
            }
        }
        Readers { ends }
    }

    /// Whether nothing reads an operand from this operation on, nor from outside.
    fn end_before(&self, operand: u32, operation: usize) -> bool {
        let end = self.ends.get(operand as usize).copied().flatten();
        end.is_some_and(|end| end <= operation)
    }
}
