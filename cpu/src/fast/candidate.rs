//! Operations that may be computed with a layer of floats.

use std::sync::Arc;

use super::float_layer::FloatLayer;
use super::layer::Layer;
use crate::plan::Declared;
use crate::plan::cost::MOST_BETWEEN;

/// An operation that may be computed with others.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'d> {
    pub(crate) declared: Declared<'d>,
    /// What it is, if it is a layer.
    pub(crate) layer: Option<Arc<Layer>>,
    /// How many elements its only output has, if that is known.
    pub(crate) elements: Option<usize>,
}

/// The operations from one on, as what may compute some of them as one looks at them.
pub(crate) struct Candidates<'c, 'd> {
    pub(crate) all: &'c [Candidate<'d>],
    /// See [`Candidates::ends_within`].
    pub(crate) ends: &'c dyn Fn(u32, usize) -> bool,
}

impl<'c, 'd> Candidates<'c, 'd> {
    /// Whether no other than the first `count` read an operand.
    pub(super) fn ends_within(&self, operand: u32, count: usize) -> bool {
        (self.ends)(operand, count)
    }

    /// The next operation from this one on that reads `operand`, and its number, if no other reads it. There
    /// may be some before it that have nothing to do with it.
    pub(super) fn reader(&self, operand: u32, from: usize) -> Option<(usize, &'c Candidate<'d>)> {
        let all = self.all.iter().enumerate();
        let mut behind = all.skip(from).take(MOST_BETWEEN + 1);
        let reader = behind.find(|(_, other)| other.declared.operation.inputs.contains(&operand));
        reader.filter(|(number, _)| self.ends_within(operand, number + 1))
    }

    /// The first one and the one that follows on it, if that alone reads what the first one computes.
    pub(super) fn pair(&self) -> Option<[&'c Candidate<'d>; 2]> {
        let [first, second, ..] = self.all else {
            return None;
        };
        let between = first.output()?;
        let follows = second.declared.operation.inputs.first() == Some(&between);
        (follows && self.ends_within(between, 2)).then_some([first, second])
    }
}

impl Candidate<'_> {
    pub(super) fn output(&self) -> Option<u32> {
        self.declared.operation.outputs.first().copied()
    }

    /// What it is, if it is a convolution of floats of which everything is known.
    pub(super) fn float_layer(&self) -> Option<FloatLayer<'_>> {
        self.layer.as_ref()?.float_layer()
    }
}
